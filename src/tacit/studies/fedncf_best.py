"""How far FedNCF's family goes beyond its paper: options chosen on validation, beside centralised and local-only
models.

The paper runs every model with Adam's 0.001, small first vectors, cross-entropy and plain averages. Here each model
chooses on the validation part, with few passes: the steps of what is shared and of users' own vectors and the scale of
the first vectors together, then, one after the other and kept only where it helps, the loss, the size of a group, the
server's momentum and optimiser, shrinkage, the size of a batch and the number of negatives. A centralised counterpart
chooses what it has of these in the same way. What was chosen runs with several seeds; validation says after which pass
it is reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from tacit.errors import DivergedError
from tacit.studies import fedncf_figures as draw
from tacit.studies import fedncf_published as printed
from tacit.studies.base import StudyResult, reproduction
from tacit.studies.fedncf import (
    CHECKPOINTS,
    LOCAL_ONLY_USERS,
    POPULAR,
    QUICK,
    alone,
    mean_and_deviation,
    paper_options,
    recipe,
)
from tacit.studies.setup import StudySetup
from tacit.studies.sheets import PublishedRow, Sheet, format_cell
from tacit.studies.traces import METRICS, PRIMARY, Trace, trace_method

CENTRALISED = tuple(name.removeprefix("fed-") for name in printed.MODELS)
PASSES: dict[str, dict[str, tuple[int, int]]] = {  # of a trial, and of what was chosen
    "ml-100k": {"fed-gmf": (60, 160), "fed-mlp": (30, 120), "fed-neumf": (30, 80)}
    | dict.fromkeys(CENTRALISED, (20, 30)),
    "ml-1m": {"fed-gmf": (20, 100), "fed-mlp": (8, 40), "fed-neumf": (8, 40)} | dict.fromkeys(CENTRALISED, (8, 15)),
}
CHECKPOINTS_OF_A_TRIAL = 4
FEW, SEEDS_OF_A_TRIAL = 4000, 3  # users; fewer would let the luckiest of many single trials win
Stage = Mapping[str, tuple[Any, ...]]
STEPS: Stage = {"learning_rate": (0.001, 0.005), "init_scale": (0.01, 0.1)}
LOSS: Stage = {"loss": ("bpr", "softmax")}
SAMPLES: tuple[Stage, ...] = ({"batch_size": (64, 1024)}, {"negatives": (8,)})


def stages(group: int) -> list[Stage]:
    """Return what is searched, one after the other; without groups there are no devices."""
    if not group:
        return [STEPS, LOSS, *SAMPLES]
    return [
        {**STEPS, "own_rate": (1.0, 10.0)},
        {"own_rate": (3.0, 30.0)},
        LOSS,
        {"clients_per_round": (group // 2, 2 * group)},
        {"server_momentum": (0.9,), "server_rate": (0.1, 0.3)},
        {"server_optimiser": ("adam", "yogi"), "server_momentum": (0.9,), "server_rate": (0.003, 0.01)},
        {"shrink": (1.0,)},
        *SAMPLES,
    ]


def trials(group: int) -> int:
    """Return how many combinations are tried."""
    return sum(prod(len(values) for values in stage.values()) for stage in stages(group))


@reproduction("fedncf-best", "The best of FedNCF's family", "Beyond the paper's options", ("ml-100k", "ml-1m"), recipe)
def best(setup: StudySetup) -> StudyResult:
    """The three models with options chosen on validation, and their centralised counterparts."""
    searched = {name: _search_model(setup, name) for name in (*printed.MODELS, *CENTRALISED)}
    chosen = {name: found["method"] for name, found in searched.items()}
    traces = {name: trace_method(setup, name, method, CHECKPOINTS) for name, method in chosen.items()}
    local_only_users = {name: alone(setup, traces[name], chosen[name]) for name in printed.MODELS}
    popular = trace_method(setup, POPULAR, {"name": POPULAR}, 1, seeds=setup.seeds[:1])
    known = printed.TABLE_6.get(setup.name, {}) if setup.is_named else {}
    rows, lines = [], []
    for trace in (popular, *traces.values()):
        published = dict(zip(METRICS, known.get(trace.label, ()), strict=False))
        rows += [
            PublishedRow.of(trace.label, m, trace.test_values(m), published.get(m), trace.settings) for m in METRICS
        ]
        cells = [text for m in METRICS for text in (format_cell(published.get(m)), mean_and_deviation(trace, m))]
        local_only = local_only_users.get(trace.label)
        lines.append([trace.label, *cells, format_cell(local_only["HR@10"] if local_only else None), _describe(trace)])
    for name, local_only in local_only_users.items():
        rows += [PublishedRow.of(f"{name}, alone", metric, [local_only[metric]]) for metric in METRICS if local_only]
    columns = ["method", "HR@10 published", "ours", "NDCG@10 published", "ours", "alone HR@10", "chosen"]
    figures = {"convergence": draw.curves({name: trace.curve("HR@10") for name, trace in traces.items()}, "HR@10")}
    notes = [
        f"Options were chosen on validation with few passes (one seed, or the mean of {SEEDS_OF_A_TRIAL} below {FEW:,} "
        f"users); the pass of each run by validation too.",
        f"On devices {trials(1)} combinations were tried for each model, in one place {trials(0)}.",
        f"'alone': the same model learnt by {LOCAL_ONLY_USERS} users each from their own history only.",
    ]
    return StudyResult(
        rows,
        [Sheet("Chosen on validation", columns, lines), *([_search_sheet(searched)] if not setup.quick else [])],
        figures,
        notes,
        {"choices": searched, "clean": {name: trace.as_json() for name, trace in traces.items()}},
    )


def _search_model(setup: StudySetup, name: str) -> dict[str, Any]:
    """Return a model with what validation chose, and the stages on the way; a quick run takes the paper's options."""
    trial, most = (QUICK, QUICK) if setup.quick else PASSES.get(setup.name, PASSES["ml-100k"])[name]
    first = paper_options(setup, name, epochs=trial)
    if setup.quick:
        return {"method": first, "stages": []}
    asked = stages(first.get("clients_per_round", 0))
    repeat = SEEDS_OF_A_TRIAL if len(setup.parts.train) < FEW else 1
    question = {"first": first, "stages": asked, "looks": CHECKPOINTS_OF_A_TRIAL, "repeat": repeat}
    found = setup.recall(f"fedncf-best-{name}", question, lambda: _search(setup, name, first, asked, repeat))
    return {**found, "method": found["method"] | {"epochs": most}}


def _search(
    setup: StudySetup, name: str, first: Mapping[str, Any], searched: Sequence[Stage], repeat: int
) -> dict[str, Any]:
    """Try the values of each stage with what the stages before it have chosen."""
    method, reached = dict(first), -1.0
    stages: list[dict[str, Any]] = []
    runtime = {"evaluate_every": max(1, first["epochs"] // CHECKPOINTS_OF_A_TRIAL)}
    for stage in searched:
        tried = {option: list(values) for option, values in stage.items()}
        grid = {f"method.{option}": values for option, values in stage.items()}
        try:
            found = setup.search(f"{', '.join(stage)} of {name}", method, grid, runtime, repeat).best
        except DivergedError:
            stages.append({"tried": tried, "best": {}, "value": None, "kept": False})
            continue
        best = {path.removeprefix("method."): value for path, value in found.settings.items()}
        value = found.value or 0.0
        stages.append({"tried": tried, "best": best, "value": value, "kept": value > reached})
        if value > reached:
            reached = value
            method |= best
    return {"method": method, "stages": stages}


def _search_sheet(searched: Mapping[str, Mapping[str, Any]]) -> Sheet:
    """Return the stages of every search: the best of what was tried, and whether it was kept."""
    lines = []
    for name, found in searched.items():
        for stage in found["stages"]:
            tried = "; ".join(f"{key} {', '.join(map(str, values))}" for key, values in stage["tried"].items())
            best = " ".join(f"{key}={value}" for key, value in stage["best"].items()) or "all diverged"
            lines.append([name, tried, best, format_cell(stage["value"]), "kept" if stage["kept"] else "not better"])
    return Sheet("The search, on validation", ["method", "tried", "the best", PRIMARY, ""], lines)


def _describe(trace: Trace) -> str:
    passes = ", ".join(str(checkpoint.passes) for checkpoint in trace.best_checkpoints())
    return f"{trace.settings}; passes {passes}" if trace.settings else "–"
