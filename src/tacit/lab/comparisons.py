"""Many runs under one protocol: the same clients, the same held-out items, the same candidates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from tacit.config import Comparison, Experiment, to_yaml
from tacit.data import Dataset
from tacit.evaluation import Evaluation, PairedTest, average, mean_interval
from tacit.evaluation import compare_methods as test_differences
from tacit.lab.experiments import folder_name, name_data, reopen_run, run, silent, take_data, take_settings
from tacit.lab.jobs import ONE_AT_A_TIME, JobsConfig, PreparedParts, raise_failures, run_jobs
from tacit.report.comparison import ComparisonResult, MethodRow, is_leaking
from tacit.report.figures import draw, save_figures
from tacit.report.folder import Run, check_writable, refuse_foreign, remove_partials, whole_folder, write_json
from tacit.report.page import write_report
from tacit.report.table import write_tables
from tacit.types import Progress


@dataclass(frozen=True)
class RunJob:
    """One run of a comparison: it is made, or reopened where it is finished."""

    label: str
    experiment: Experiment
    folder: Path
    again: bool
    travels: bool  # the run stays in its folder, and only that is said

    def run(self, parts: PreparedParts, progress: Progress) -> RunOutcome:
        """Make the run, unless the folder holds it."""
        prepared = parts.prepare(self.experiment, progress)
        found = None if self.again else reopen_run(self.folder, self.experiment, prepared)
        made = found or run(self.experiment, folder=self.folder, progress=progress, prepared=prepared)
        return RunOutcome(self.folder if self.travels else made, found is not None)


@dataclass(frozen=True)
class RunOutcome:
    """A run, or where it is, and whether it was made before."""

    made: Run | Path
    is_reused: bool

    def open(self) -> Run:
        """Return the run."""
        return Run.open(self.made) if isinstance(self.made, Path) else self.made


def compare(
    comparison: Comparison | Path | str,
    data: Any = None,
    *,
    out: Path | str = "runs",
    progress: Progress = silent,
    jobs: JobsConfig | int = ONE_AT_A_TIME,
    on_run: Callable[[Run], object] | None = None,
) -> ComparisonResult:
    """Run every method of a comparison, or of one in a YAML file, and write its folder: report, tables, figures.

    `data` takes the place of the configured source: a dataset, a pandas or polars frame, a path or a name. `jobs` says
    how many runs are made side by side, and where. Runs that are finished are reused. `on_run` is called with every
    run when all are finished.
    """
    comparison = take_settings(Comparison, comparison)
    data = take_data(comparison, data)
    out, comparison = Path(out), name_data(comparison, data)
    config = JobsConfig.of(jobs, comparison.runtime) if isinstance(jobs, int) else jobs
    refuse_foreign(out / comparison.name)
    check_writable(out)
    runs, reused = _run_all([*comparison.experiments()], out, config, progress, data)
    groups = [(label, [run for _, run in group]) for label, group in groupby(runs, key=lambda pair: pair[0])]
    compared = _test_rows(comparison.name, comparison.evaluation.primary, groups)
    folder = out / comparison.name
    finished = replace(compared, folder=folder, reused=reused)
    with whole_folder(folder) as partial:
        (partial / "comparison.yaml").write_text(to_yaml(comparison), encoding="utf-8")
        write_json(partial / "result.json", finished.as_json())
        write_tables(finished, partial)
        figures = draw(finished)
        save_figures(figures, partial)
        write_report(finished, partial / "report.html", figures)
    if on_run is not None:
        for _, one in runs:
            on_run(one)
    return finished


def run_repeatedly(
    experiment: Experiment,
    repeat: int,
    out: Path,
    progress: Progress = silent,
    data: Dataset | None = None,
    jobs: JobsConfig = ONE_AT_A_TIME,
) -> ComparisonResult:
    """Run one experiment with seeds s, s+1, ... and keep each in a folder of its own."""
    check_writable(out)
    experiment = name_data(experiment, data)
    seeds = range(experiment.seed, experiment.seed + repeat)
    planned = [(f"seed {seed}", experiment.model_copy(update={"seed": seed})) for seed in seeds]
    runs, reused = _run_all(planned, out, jobs if repeat > 1 else replace(jobs, n=1, again=True), progress, data)
    compared = _test_rows(
        experiment.name, experiment.evaluation.primary, [(experiment.method.name, [run for _, run in runs])]
    )
    return replace(compared, reused=reused)


def _run_all(
    planned: list[tuple[str, Experiment]], out: Path, config: JobsConfig, progress: Progress, data: Dataset | None
) -> tuple[list[tuple[str, Run]], int]:
    """Return labelled runs in order, and how many were finished before; a failure is raised when all others are."""
    placed = [(label, config.place(experiment)) for label, experiment in planned]
    jobs = [
        RunJob(label, experiment, out / folder_name(experiment), config.again, config.is_spread)
        for label, experiment in placed
    ]
    try:
        found = run_jobs(jobs, config, progress, data)
    finally:
        remove_partials(out)
    raise_failures(found)
    runs = [(label, outcome.open()) for (label, _), outcome in zip(planned, found, strict=True)]
    if any(one.evaluation is None for _, one in runs):  # users are named otherwise in folders than in memory
        runs = [(label, replace(one, evaluation=None)) for label, one in runs]
    return runs, sum(outcome.is_reused for outcome in found)


def _test_rows(name: str, primary: str, groups: list[tuple[str, list[Run]]], tested: bool = True) -> ComparisonResult:
    """Test every row against the best one under the same conditions; what leaks is not compared with.

    Rows with different numbers of seeds are not `tested`.
    """
    against: dict[str, PairedTest] = {}  # label -> its comparison with the best
    for prepared in dict.fromkeys(_conditions(runs) for _, runs in groups if tested):
        peers = {label: runs for label, runs in groups if _conditions(runs) == prepared and not is_leaking(runs)}
        if len(peers) > 1:
            found = test_differences({label: _evaluations(runs) for label, runs in peers.items()}, primary)
            against |= {row.method: row.against_best for row in found.rows if row.against_best is not None}
    rows = []
    for label, runs in groups:
        seeds, pair = _evaluations(runs), against.get(label)
        ci = {metric: mean_interval(average(seeds, metric)) for metric in seeds[0].values}
        p_t, p_wilcoxon = (None, None) if pair is None else (pair.p_t_holm, pair.p_wilcoxon_holm)
        rows.append(MethodRow(label, tuple(runs), ci, p_t, p_wilcoxon, _conditions(runs)))
    return ComparisonResult(name, primary, tuple(rows))


def compare_runs(runs: list[Run]) -> list[ComparisonResult]:
    """Put runs read from folders beside each other: one comparison for each data, split and protocol among them.

    Runs that differ in their seed only make one row, in which each seed counts once. Rows of one method are named by
    the options that differ.
    """
    found, named = [], []
    for _, group in groupby(sorted(runs, key=lambda run: _conditions([run])), key=lambda run: _conditions([run])):
        rows: dict[str, dict[int, Run]] = {}
        alike = list(group)
        names = _labels(alike)
        for one, label in zip(alike, names, strict=True):
            rows.setdefault(label, {})[one.experiment.seed] = one
        seeds = {len(row) for row in rows.values()}
        primary = alike[0].experiment.evaluation.primary
        name = f"{alike[0].result['data']}, {alike[0].experiment.split.kind}, {alike[0].result['protocol']}"
        ordered = [(label, [*rows[label].values()]) for label in sorted(rows, key=names.index)]
        found.append(_test_rows(name, primary, ordered, tested=len(seeds) == 1))
        under = {"data", "split", "evaluation"}
        named.append((name, _flat(alike[0].experiment.model_dump(mode="json", include=under))))
    return [replace(one, name=name) for one, name in zip(found, _distinguish_names(named), strict=True)]


def _distinguish_names(named: list[tuple[str, dict[str, Any]]]) -> list[str]:
    """Add to names that occur twice in what they differ: 'with validation', 'k=20'."""
    names = []
    for name, options in named:
        peers = [other for peer, other in named if peer == name]
        differing = {key for other in peers for key in {*options, *other} if options.get(key) != other.get(key)}
        words = []
        for key in sorted(differing):
            last, value = key.rpartition(".")[2].replace("_", " "), options.get(key)
            yes_or_no = value is None or isinstance(value, bool)
            words.append(f"{'with' if value else 'without'} {last}" if yes_or_no else f"{last}={value}")
        names.append(", ".join([name, *words]))
    return names


def _labels(runs: list[Run]) -> list[str]:
    """Name each run by its method and those options in which it differs from others of that method."""
    named = [
        (run.experiment.method.name, _flat(run.experiment.model_dump(mode="json", exclude={"seed"}))) for run in runs
    ]
    labels = []
    for name, options in named:
        peers = [other for peer, other in named if peer == name]
        labels.append(" ".join([name, *_differences(options, peers)]))
    return labels


def _differences(options: dict[str, Any], peers: list[dict[str, Any]]) -> list[str]:
    """Say in which options a run differs from its peers; of a group that others lack, what differs within it."""
    shown: dict[str, None] = {}
    for key in sorted(options):
        group = next((head for head in _heads(key) if any(other.get(head, "") is None for other in peers)), None)
        if group is not None:
            shown[f"with {group.rpartition('.')[2]}"] = None
        having = [other for other in peers if key in other] if group is not None else peers
        if all(other.get(key) == options[key] for other in having):
            continue
        name, value = key.rpartition(".")[2], options[key]
        if value is None:
            shown[f"without {name}"] = None
        else:
            shown[f"{name}={' > '.join(map(str, value)) if isinstance(value, list) else value}"] = None
    return [*shown]


def _heads(key: str) -> list[str]:
    parts = key.split(".")
    return [".".join(parts[:n]) for n in range(1, len(parts))]


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    """Return {"method.pi": 0.5, ...} of nested options; the name of an experiment says nothing about it."""
    if not isinstance(value, dict):
        return {path: value}
    inside = {name: part for name, part in value.items() if path or name != "name"}
    return {
        key: leaf for name, part in inside.items() for key, leaf in _flat(part, f"{path}.{name}".strip(".")).items()
    }


def _evaluations(runs: list[Run]) -> list[Evaluation]:
    return [run.evaluation or run.load_evaluation() for run in runs]


def _conditions(runs: list[Run]) -> str:
    """Return what must be equal for two rows to be comparable: data, split and protocol; seeds are paired anyway.

    How a run was checked for leaks changes none of its figures.
    """
    experiment = runs[0].experiment
    unchecked = experiment.evaluation.model_copy(update={"local_only_users": 0, "placebo": "never"})
    sections = (experiment.data, experiment.split, unchecked)
    return "".join(to_yaml(section) for section in sections)
