"""Many runs under one protocol: the same people, the same held-out items, the same candidates."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from tacit.config import Comparison, Experiment, to_yaml
from tacit.data import Dataset
from tacit.evaluation import Evaluation, Pair, average, mean_interval
from tacit.evaluation import compare as test_differences
from tacit.experiments import Bench, folder_name, prepare, run, silent
from tacit.report.compared import Compared, Row, is_leaking
from tacit.report.figures import draw, save_figures
from tacit.report.folder import Run, refuse_foreign, whole_folder, write_json
from tacit.report.page import write_report
from tacit.report.table import write_tables
from tacit.runtimes.learning import Progress


def compare(
    comparison: Comparison, out: Path = Path("runs"), progress: Progress = silent, data: Dataset | None = None
) -> Compared:
    """Run every method of a comparison and write its folder: a report, tables and figures beside the runs."""
    refuse_foreign(out / comparison.name)
    benches: dict[str, Bench] = {}
    planned = list(comparison.experiments())
    groups: list[tuple[str, list[Run]]] = []
    done = 0
    for label, group in groupby(planned, key=lambda pair: pair[0]):
        runs = []
        for _, experiment in group:

            def shown(what: str, at: int, total: int, label: str = label, done: int = done) -> None:
                progress(f"{done + 1}/{len(planned)} {label}: {what}", at, total)

            runs.append(_one(experiment, benches, out, shown, data))
            done += 1
        groups.append((label, runs))
    compared = _compared(comparison.name, comparison.evaluation.primary, groups)
    folder = out / comparison.name
    finished = Compared(compared.name, compared.primary, compared.rows, folder)
    with whole_folder(folder) as partial:
        (partial / "comparison.yaml").write_text(to_yaml(comparison), encoding="utf-8")
        write_json(partial / "result.json", finished.as_json())
        write_tables(finished, partial)
        figures = draw(finished)
        save_figures(figures, partial)
        write_report(finished, partial / "report.html", figures)
    return finished


def run_repeatedly(
    experiment: Experiment, repeat: int, out: Path, progress: Progress = silent, data: Dataset | None = None
) -> Compared:
    """Run one experiment with seeds s, s+1, ... and keep each in a folder of its own."""
    benches: dict[str, Bench] = {}
    seeds = range(experiment.seed, experiment.seed + repeat)
    runs = [_one(experiment.model_copy(update={"seed": s}), benches, out, progress, data) for s in seeds]
    return _compared(experiment.name, experiment.evaluation.primary, [(experiment.method.name, runs)])


def _one(experiment: Experiment, benches: dict[str, Bench], out: Path, progress: Progress, data: Dataset | None) -> Run:
    by_chance = str(experiment.seed) if experiment.split.kind == "random" else ""
    cut = to_yaml(experiment.data) + to_yaml(experiment.split) + by_chance
    if cut not in benches:
        benches[cut] = prepare(experiment, data, progress)
    return run(experiment, folder=out / folder_name(experiment), progress=progress, bench=benches[cut])


def _compared(name: str, primary: str, groups: list[tuple[str, list[Run]]]) -> Compared:
    """Test every row against the best one under the same conditions; what leaks is not compared with."""
    tested: dict[str, Pair] = {}  # label -> its comparison with the best
    for bench in dict.fromkeys(_conditions(runs) for _, runs in groups):
        peers = {label: runs for label, runs in groups if _conditions(runs) == bench and not is_leaking(runs)}
        if len(peers) > 1:
            found = test_differences({label: _evaluations(runs) for label, runs in peers.items()}, primary)
            tested |= {row.method: row.against_best for row in found.rows if row.against_best is not None}
    rows = []
    for label, runs in groups:
        seeds, pair = _evaluations(runs), tested.get(label)
        ci = {metric: mean_interval(average(seeds, metric)) for metric in seeds[0].values}
        p_t, p_wilcoxon = (None, None) if pair is None else (pair.p_t_holm, pair.p_wilcoxon_holm)
        rows.append(Row(label, tuple(runs), ci, p_t, p_wilcoxon, _conditions(runs)))
    return Compared(name, primary, tuple(rows))


def _evaluations(runs: list[Run]) -> list[Evaluation]:
    return [run.evaluation for run in runs if run.evaluation is not None]


def _conditions(runs: list[Run]) -> str:
    """Return what must be equal for two rows to be comparable: data, split and protocol; seeds are paired anyway."""
    experiment = runs[0].experiment
    sections = (experiment.data, experiment.split, experiment.evaluation)
    return "".join(to_yaml(section) for section in sections)
