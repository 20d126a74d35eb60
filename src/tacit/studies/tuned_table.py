"""The README's two tables: every row with the same search budget, then three seeds on the test part.

A row tries twenty points of its space (`tuned_spaces.py`) on the validation part with one seed. Where there are few
users, the best three learn with three seeds, and their means are compared: otherwise the luckiest would win. Passes
are chosen by checkpoints, which end a trial that has not improved for three of them. What was chosen learns from the
training and validation part together. Every trial is kept in a file of its own: a study that was stopped goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tacit.config import Experiment, apply_overrides
from tacit.lab.experiments import TrainingJob
from tacit.lab.trials import Trial, run_trial
from tacit.lab.tuning import final_experiment
from tacit.methods.choice import MethodChoice
from tacit.random import Key
from tacit.report.folder import Run
from tacit.studies import fedncf_published, fpl_published
from tacit.studies.base import StudyResult, reproduction
from tacit.studies.setup import FIRST_SEED, StudySetup
from tacit.studies.sheets import PublishedRow, Sheet, format_cell
from tacit.studies.tuned_spaces import NEURAL, SPACES, SearchSpace

DATASETS = ("ml-1m", "ml-100k")
TRIALS, QUICK_TRIALS = 20, 2
PATIENCE = 3  # checkpoints
FEW, FINALISTS, SEEDS_OF_A_FINALIST = 4000, 3, 3  # below so many users, the best trials learn with more seeds
LOCAL_ONLY_USERS = 20
LEFT_OUT = {"ml-1m": NEURAL}  # rows that would take hours there
SINGLE = {"ml-100k"}  # cut as in the neural papers: the last item against 100 unseen ones


def recipe(source: str) -> dict[str, Any]:
    """Return data, split and evaluation: the FPL papers' for ML-1M and data of one's own, NCF's for ML-100K."""
    if source in SINGLE:
        return {
            "data": {"source": source},
            "split": {"kind": "leave-last-out"},
            "evaluation": {"protocol": "sampled-100", "k": [10], "primary": "HR@10"},
        }
    least = {"min_per_user": 20} if source == "ml-1m" else {}
    return {
        "data": {"source": source, **least},
        "split": {"kind": "temporal", "test": 0.2, "catalog": "train"},
        "evaluation": {"protocol": "full", "k": [10], "primary": "Precision@10"},
    }


@dataclass(frozen=True)
class TunedRow:
    """A row of the table: its trials, the best of them, and its runs on the test part."""

    label: str
    default: float | None  # what the method's defaults reach on validation
    trials: Sequence[Mapping[str, Any]]
    best: Mapping[str, Any]
    method: Mapping[str, Any]  # with what was chosen
    test: Mapping[str, Any]

    def values(self, metric: str) -> list[float]:
        """Return a metric of every seed."""
        return [one[metric] for one in self.test["metrics"]]


@reproduction("tuned-table", "Equally tuned tables", "The tables of the README", DATASETS, recipe)
def tuned_study(setup: StudySetup) -> StudyResult:
    """Every method with options chosen on validation under the same budget, and what defaults reach there."""
    left_out = LEFT_OUT.get(setup.name, ())
    rows = [_tune_row(setup, label, space) for label, space in SPACES.items() if label not in left_out]
    primary = setup.base["evaluation"]["primary"]
    metrics = ("HR@10", "NDCG@10") if primary == "HR@10" else ("Precision@10", "Recall@10", "ItemCoverage@10")
    known = _find_published(setup)
    found = [
        PublishedRow.of(row.label, metric, row.values(metric), known.get((row.label, metric)), _describe(row.method))
        for row in rows
        for metric in metrics
    ]
    detail = {"rows": [asdict(row) for row in rows], "spaces": {label: asdict(SPACES[label]) for label in SPACES}}
    sheets = [_test_sheet(rows, found, metrics), _validation_sheet(rows, primary), _trials_sheet(rows, primary)]
    return StudyResult(found, sheets, {}, _notes(setup, left_out), detail)


def _tune_row(setup: StudySetup, label: str, space: SearchSpace) -> TunedRow:
    """Search one row, and run what was chosen on the test part."""
    points = space.draw(QUICK_TRIALS if setup.quick else TRIALS, Key(FIRST_SEED).child("tuned-table", label))
    seeds = [FIRST_SEED]
    trials = [_try(setup, label, space, point, seeds) for point in points]
    best = _best_first(trials)
    if len(setup.practice.parts.train) < FEW and len(points) > 1 and not setup.quick:
        more = [FIRST_SEED + number for number in range(SEEDS_OF_A_FINALIST)]
        best = _best_first([_try(setup, label, space, one["settings"], more) for one in best[:FINALISTS]])
    given = {key: value for key, value in space.method.items() if key != "epochs"}
    default = _try(setup, label, SearchSpace(given), {}, seeds)["value"]
    method = {**space.method, **best[0]["settings"]}
    if space.evaluate_every:
        final = final_experiment(_experiment(setup, space, best[0]["settings"]), best[0]["passes"])
        method["epochs"] = final.method.options.model_dump()["epochs"]
    test = setup.recall(
        f"tuned-table/{_file_name(label)}-test",
        {"method": MethodChoice.model_validate(method).model_dump(mode="json"), "seeds": list(setup.seeds)},
        lambda: _test(setup, label, method),
    )
    return TunedRow(label, default, trials, best[0], method, test)


def _experiment(setup: StudySetup, space: SearchSpace, point: Mapping[str, Any]) -> Experiment:
    epochs = {"epochs": 4} if setup.quick and "epochs" in space.method else {}
    runtime = {"evaluate_every": space.evaluate_every, "patience": PATIENCE} if space.evaluate_every else {}
    given = {"method": {**space.method, **point, **epochs}, "runtime": runtime}
    return Experiment.from_options(apply_overrides(setup.validation_split(), given), "the recipe")


def _try(
    setup: StudySetup, label: str, space: SearchSpace, point: Mapping[str, Any], seeds: Sequence[int]
) -> dict[str, Any]:
    """Return a trial, made now or kept from before; what it is kept under has every option, defaults included."""
    experiment = _experiment(setup, space, point)
    asked = {
        "method": experiment.method.model_dump(mode="json"),
        "every": experiment.runtime.evaluate_every,
        "patience": experiment.runtime.patience,
        "seeds": list(seeds),
    }

    def make() -> dict[str, Any]:
        jobs = [
            TrainingJob.from_split(experiment.model_copy(update={"seed": seed}), setup.practice.parts) for seed in seeds
        ]
        setup.progress(f"{setup.name}: {label}: {_describe(point)}", 0, 0)
        made: Trial = run_trial(jobs, point)
        return asdict(made)

    return setup.recall(f"tuned-table/{_file_name(label)}", asked, make)


def _best_first(trials: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(trials, key=lambda trial: -1.0 if trial["value"] is None else trial["value"], reverse=True)


def _test(setup: StudySetup, label: str, method: Mapping[str, Any]) -> dict[str, Any]:
    runs: list[Run] = setup.runs(label, method, local_only_users=LOCAL_ONLY_USERS)
    leak = runs[0].result["leak"] if runs else None
    return {
        "metrics": [run.metrics for run in runs],
        "rounds": runs[0].result["rounds"] if runs else None,
        "leak": leak,
    }


def _find_published(setup: StudySetup) -> dict[tuple[str, str], float]:
    """Return printed figures by row and metric; `pFPL+` is our fpl."""
    if not setup.is_named:
        return {}
    table: Mapping[str, tuple[float | None, float | None]] = (
        fedncf_published.TABLE_6.get(setup.name, {})
        if setup.name in SINGLE
        else fpl_published.TABLE_2.get(setup.name, {})
    )
    names = ("HR@10", "NDCG@10") if setup.name in SINGLE else fpl_published.ACCURACY
    return {
        ("fpl" if label == "pFPL+" else label, name): value
        for label, printed in table.items()
        for name, value in zip(names, printed, strict=True)
        if value is not None
    }


def _test_sheet(rows: Sequence[TunedRow], found: Sequence[PublishedRow], metrics: Sequence[str]) -> Sheet:
    at = {(one.method, one.metric): one for one in found}
    lines = []
    for row in rows:
        cells = []
        for metric in metrics:
            one = at[row.label, metric]
            spread = f" ± {format_cell(one.sd)}" if one.sd and one.sd > 1e-12 else ""
            printed = f" ({format_cell(one.published)})" if one.published is not None else ""
            cells.append(f"{format_cell(one.ours)}{spread}{printed}")
        leak, rounds = row.test["leak"], row.test["rounds"]
        verdict = "–" if leak is None or leak["ok"] is None else "ok" if leak["ok"] else "leaking"
        lines.append([row.label, *cells, "–" if rounds is None else str(rounds), verdict, _describe(row.method)])
    return Sheet("On the test part", ["method", *metrics, "rounds", "leak check", "chosen on validation"], lines)


def _validation_sheet(rows: Sequence[TunedRow], primary: str) -> Sheet:
    lines = [
        [
            row.label,
            format_cell(row.default),
            format_cell(row.best["value"]),
            str(len(row.trials)),
            _count_diverged(row),
        ]
        for row in rows
    ]
    return Sheet(
        f"{primary} on the validation part", ["method", "by default", "the best", "trials", "of these diverged"], lines
    )


def _trials_sheet(rows: Sequence[TunedRow], primary: str) -> Sheet:
    lines = [
        [row.label, _describe(trial["settings"]), format_cell(trial["value"]), str(trial["passes"] or "–")]
        for row in rows
        for trial in _best_first([dict(trial) for trial in row.trials])
        if trial["settings"]
    ]
    return Sheet("All trials, one seed, the best first", ["method", "options", primary, "passes"], lines)


def _notes(setup: StudySetup, left_out: Sequence[str]) -> list[str]:
    quick = ["Quick: two trials and few passes. These numbers say nothing about the methods."] if setup.quick else []
    return [
        *quick,
        f"Each row tried {TRIALS} points of its space on validation with one seed; random and most-popular have none.",
        f"Below {FEW:,} users the best {FINALISTS} learnt with {SEEDS_OF_A_FINALIST} seeds, and their means decided.",
        f"Under the first seed of each row {LOCAL_ONLY_USERS} users at most learnt alone, for the leak check.",
        *([f"Left out, because their search would take hours: {', '.join(left_out)}."] if left_out else []),
    ]


def _count_diverged(row: TunedRow) -> str:
    return str(sum(trial["value"] is None for trial in row.trials))


def _describe(options: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in options.items() if key != "name") or "–"


def _file_name(label: str) -> str:
    return "".join(sign if sign.isalnum() or sign == "-" else "_" for sign in label)
