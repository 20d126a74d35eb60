"""How far FedNCF's family goes beyond its paper: options chosen on validation, beside centralised and local-only twins.

The paper runs every model with Adam's 0.001 and small first vectors. Here each model chooses on the validation part,
with few passes: the step and the scale of the first vectors together, then the size of a group, the server's own step,
the size of a batch and shrinkage, one after the other. A centralised twin chooses its step and scale in the same way.
What was chosen runs with several seeds; validation says after which pass it is reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit.reproduce import fedncf_figures as draw
from tacit.reproduce import fedncf_published as printed
from tacit.reproduce.base import Found, reproduction
from tacit.reproduce.fedncf import LOOKS, POPULAR, QUICK, TWINS, alone, options, recipe, spread
from tacit.reproduce.lab import Lab
from tacit.reproduce.sheets import Row, Sheet, number
from tacit.reproduce.traces import METRICS, Trace, traced

CENTRALISED = tuple(name.removeprefix("fed-") for name in printed.MODELS)
PASSES: dict[str, dict[str, tuple[int, int]]] = {  # of a trial, and of what was chosen
    "ml-100k": {"fed-gmf": (80, 160), "fed-mlp": (30, 80), "fed-neumf": (30, 80)}
    | dict.fromkeys(CENTRALISED, (20, 30)),
    "ml-1m": {"fed-gmf": (30, 100), "fed-mlp": (10, 40), "fed-neumf": (10, 40)} | dict.fromkeys(CENTRALISED, (8, 15)),
}
STEPS = {"learning_rate": (0.001, 0.005), "init_scale": (0.01, 0.1)}


@reproduction("fedncf-best", "The best of FedNCF's family", "Beyond the paper's options", ("ml-100k", "ml-1m"), recipe)
def best(lab: Lab) -> Found:
    """The three models with options chosen on validation, and their twins."""
    chosen = {name: _chosen(lab, name) for name in (*printed.MODELS, *CENTRALISED)}
    traces = {name: traced(lab, name, method, LOOKS) for name, method in chosen.items()}
    twins = {name: alone(lab, traces[name], chosen[name]) for name in printed.MODELS}
    popular = traced(lab, POPULAR, {"name": POPULAR}, 1, seeds=lab.seeds[:1])
    known = printed.TABLE_6.get(lab.name, {}) if lab.is_named else {}
    rows, lines = [], []
    for trace in (popular, *traces.values()):
        published = dict(zip(METRICS, known.get(trace.label, ()), strict=False))
        rows += [Row.of(trace.label, m, trace.reached(m), published.get(m), trace.settings) for m in METRICS]
        cells = [text for m in METRICS for text in (number(published.get(m)), spread(trace, m))]
        twin = twins.get(trace.label)
        lines.append([trace.label, *cells, number(twin["HR@10"] if twin else None), _said(trace)])
    for name, twin in twins.items():
        rows += [Row.of(f"{name}, alone", metric, [twin[metric]]) for metric in METRICS if twin]
    columns = ["method", "HR@10 published", "ours", "NDCG@10 published", "ours", "alone HR@10", "chosen"]
    figures = {"convergence": draw.curves({name: trace.curve("HR@10") for name, trace in traces.items()}, "HR@10")}
    notes = [
        "Options were chosen on validation, one seed, few passes; the pass of each run by validation too.",
        f"'alone': the same model learnt by {TWINS} people each from her own history only.",
    ]
    return Found(
        rows,
        [Sheet("Chosen on validation", columns, lines)],
        figures,
        notes,
        {"choices": chosen, "clean": {name: trace.as_json() for name, trace in traces.items()}},
    )


def _chosen(lab: Lab, name: str) -> dict[str, Any]:
    """Return a model with the options that validation chose; a quick look takes the paper's."""
    trial, most = (QUICK, QUICK) if lab.quick else PASSES.get(lab.name, PASSES["ml-100k"])[name]
    first = options(lab, name, epochs=trial)
    if lab.quick:
        return first
    group = first.get("clients_per_round", 0)
    stages: list[Mapping[str, tuple[Any, ...]]] = [STEPS]
    if group:
        stages += [{"clients_per_round": (group // 2, 2 * group)}, {"server_rate": (2.0,)}]
        stages += [{"batch_size": (64,)}, {"shrink": (1.0,)}]

    def searched() -> dict[str, Any]:
        method, reached = dict(first), -1.0
        for stage in stages:
            grid = {f"method.{option}": values for option, values in stage.items()}
            found = lab.search(f"{', '.join(stage)} of {name}", method, grid, {"look_every": trial}).best
            if (found.value or 0.0) > reached:
                reached = found.value or 0.0
                method |= {path.removeprefix("method."): value for path, value in found.settings.items()}
        return method

    asked = {"first": first, "stages": stages}
    return lab.remembered(f"fedncf-best-{name}", asked, searched) | {"epochs": most}


def _said(trace: Trace) -> str:
    passes = ", ".join(str(look.passes) for look in trace.chosen())
    return f"{trace.settings}; passes {passes}" if trace.settings else "–"
