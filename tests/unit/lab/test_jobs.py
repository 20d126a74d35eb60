"""Whole runs side by side: the same results, each made once, and a failure that costs only itself."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import tacit
from helpers.waiting import LONG
from tacit.errors import DataError, EngineError, MethodError
from tacit.lab.comparisons import compare, run_repeatedly
from tacit.lab.jobs import JobFailure, JobsConfig, PreparedParts, raise_failures, run_jobs
from tacit.lab.tuning import Tuning, tune
from tacit.methods import registry
from tacit.report.folder import remove_partials, whole_folder, write_json

SMALL = {"source": "town", "users": 60, "places": 40}
TIMES = {"train_seconds", "evaluate_seconds", "peak_mb", "run", "runs", "report"}


def comparing(**changes: Any) -> tacit.Comparison:
    given = {"name": "mine", "data": SMALL, "methods": ["most-popular", "ease"], "repeat": 2}
    return tacit.Comparison.from_options({**given, **changes}, "the test")


def searching(**changes: Any) -> Tuning:
    given: dict[str, Any] = {
        "data": SMALL,
        "split": {"validation": 0.2},
        "method": {"name": "bpr-mf", "epochs": 2},
        "search": {"method.learning_rate": [0.01, 0.1], "method.factors": [4, 8]},
    }
    return Tuning.from_options({**given, **changes}, "the test")


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(inner) for key, inner in value.items() if key not in TIMES}
    return [without_times(inner) for inner in value] if isinstance(value, list) else value


@dataclass(frozen=True)
class Steps:
    """A job that fails, dies, or says in which process it ran."""

    label: str
    scratch: str = ""

    def run(self, parts: PreparedParts, progress: Any) -> int:
        if self.label == "refused":
            raise MethodError("this cannot work", "try another")
        if self.label == "broken":
            raise ZeroDivisionError
        if self.label == "dies":
            deaths = Path(self.scratch, "death")
            if not deaths.exists():
                deaths.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return os.getpid()


@pytest.fixture(scope="module")
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


@pytest.mark.slow
def test_a_comparison_side_by_side_is_the_comparison_one_after_the_other(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    alone = compare(comparing(), out=tmp_path / "alone")
    spread = compare(comparing(), out=tmp_path / "spread", jobs=2, progress=lambda what, at, n: seen.append((at, n)))
    assert without_times(spread.as_json()) == without_times(alone.as_json())
    assert seen[-1] == (4, 4)
    assert spread.reused == 0
    names = sorted(path.name for path in (tmp_path / "alone").iterdir())
    assert sorted(path.name for path in (tmp_path / "spread").iterdir()) == names


@pytest.mark.slow
def test_finished_runs_are_reused_until_data_or_options_change(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    rows = [f"{user},{(user * 7 + i * 3) % 23},{i}" for user in range(30) for i in range(6)]
    file.write_text("\n".join(["user,item,timestamp", *rows]))
    asked = comparing(data={"source": str(file)}, repeat=1)
    first = compare(asked, out=tmp_path / "runs")
    second = compare(asked, out=tmp_path / "runs")
    assert (first.reused, second.reused) == (0, 2)
    assert second.as_json() == first.as_json(), "times too: nothing was made anew"
    assert compare(asked, out=tmp_path / "runs", jobs=JobsConfig(again=True)).reused == 0
    other = comparing(data={"source": str(file)}, repeat=1, methods=["most-popular", {"name": "ease", "reg": 7}])
    assert compare(other, out=tmp_path / "runs").reused == 1
    file.write_text("\n".join(["user,item,timestamp", *rows[:-1], "29,22,99"]))
    assert compare(asked, out=tmp_path / "runs").reused == 0


@pytest.mark.slow
def test_a_run_of_other_code_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = comparing(repeat=1, methods=["most-popular"])
    compare(asked, out=tmp_path)
    monkeypatch.setattr("tacit.lab.shard_worker._versions", lambda: (("numpy", "0.1"),))
    assert compare(asked, out=tmp_path).reused == 0


MINE = """
import numpy as np, tacit
class Options(tacit.Config): "Options."
@tacit.register("mine", Options)
class Mine(tacit.Centralised):
    "Mine."
    def __init__(self, config): self.config = config
    def explain(self, shared, private, client, item): return []
    def fit(self, clients, catalog, key):
        yield tacit.Model({"p": SIGN * np.bincount(clients.items, minlength=catalog.n_items).astype(np.float32)}, {})
    def score(self, shared, private, clients): return np.tile(shared["p"], (len(clients), 1))
"""


@pytest.fixture
def own_method() -> Iterator[str]:
    yield MINE
    for key in [key for key in registry._REGISTERED if key[1] == "mine"]:
        del registry._REGISTERED[key]


@pytest.mark.slow
def test_runs_and_trials_of_an_own_method_are_made_anew_when_its_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_method: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    file, found = tmp_path / "own_method_of_a_test.py", []
    for sign in ("+1", "-1.0"):
        file.write_text(own_method.replace("SIGN", sign))
        sys.modules.pop(file.stem, None)
        importlib.invalidate_caches()
        importlib.import_module(file.stem)
        asked = comparing(repeat=1, methods=["mine"])
        search = searching(method="mine", search={"runtime.threads": [1]})
        for _ in range(2):
            made, tuned = compare(asked, out=tmp_path / "runs"), tune(search, tmp_path / "runs")
            found.append((made.reused, tuned.reused, made.rows[0].metrics["NDCG@10"], tuned.best.value))
    assert [one[:2] for one in found] == [(0, 0), (1, 1), (0, 0), (1, 1)]
    assert found[0][2:] == found[1][2:]
    assert found[2][2:] == found[3][2:]
    assert found[0][2] > found[2][2]


@pytest.mark.slow
def test_runs_of_a_method_without_a_file_are_made_anew(tmp_path: Path, own_method: str) -> None:
    exec(own_method.replace("SIGN", "+1"), {"__name__": "__main__"})
    asked = comparing(repeat=1, methods=["mine"])
    assert [compare(asked, out=tmp_path).reused for _ in range(2)] == [0, 0]


@pytest.mark.slow
def test_runs_and_trials_are_made_anew_when_a_file_that_an_option_names_changes(tmp_path: Path) -> None:
    file, found = tmp_path / "pi.csv", []
    given = {"methods": [{"name": "fpl", "epochs": 1}], "privacy": [{"pi": str(file)}], "repeat": 1}
    search = {"method": {"name": "fpl"}, "privacy": given["privacy"], "search": {"method.epochs": [1]}}
    for pi in (1.0, 1.0, 0.0):
        file.write_text("\n".join(["user,pi", *(f"{user},{pi}" for user in range(1, 61))]))
        made = compare(comparing(**given), out=tmp_path / "runs")
        found.append((made.reused, tune(searching(**search), tmp_path / "runs").reused))
    assert found == [(0, 0), (1, 1), (0, 0)]


@pytest.mark.slow
def test_runs_are_made_anew_when_the_run_they_start_from_is_another(tmp_path: Path) -> None:
    found = []
    for seed in (1, 2):
        start = {"data": SMALL, "method": {"name": "fed-ease"}, "seed": seed}
        tacit.run(tacit.Experiment.from_options(start, "the test"), folder=tmp_path / "start")
        asked = comparing(repeat=1, methods=[{"name": "fed-ease", "warm_start": str(tmp_path / "start")}])
        found.append(compare(asked, out=tmp_path / "runs").reused)
    assert found == [0, 0]


@pytest.mark.slow
def test_an_executor_that_lives_on_reads_a_file_again(tmp_path: Path, executor: ThreadPoolExecutor) -> None:
    file, found = tmp_path / "log.csv", []
    for step in (3, 5):
        rows = [f"{user},{(user * 7 + i * step) % 23},{i}" for user in range(30) for i in range(6)]
        file.write_text("\n".join(["user,item,timestamp", *rows]))
        asked = comparing(data={"source": str(file)}, repeat=1, methods=["most-popular"])
        made = compare(asked, out=tmp_path / "runs", jobs=JobsConfig(2, executor=executor))
        found.append(made.rows[0].runs[0].result["about_data"]["digest"])
        assert found[-1] == tacit.load(file).digest
    assert found[0] != found[1]


def test_a_run_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    asked = comparing(repeat=1, methods=[{"name": "fpl", "learning_rate": 1e30, "epochs": 2}, "most-popular"])
    with pytest.raises(tacit.TacitError) as refused:
        compare(asked, out=tmp_path)
    assert refused.value.exit_code == 7
    assert "fpl" in refused.value.message
    kept = [path.name for path in tmp_path.iterdir() if (path / "result.json").is_file()]
    assert len(kept) == 1
    assert "most-popular" in kept[0]


def test_seeds_are_reused_and_one_run_is_not(tmp_path: Path) -> None:
    experiment = tacit.Experiment.from_options({"data": SMALL, "method": "most-popular"}, "the test")
    assert [run_repeatedly(experiment, n, tmp_path).reused for n in (1, 1, 3)] == [0, 0, 1]


@pytest.mark.slow
def test_data_of_a_program_reaches_jobs(tmp_path: Path, executor: ThreadPoolExecutor) -> None:
    rows = [(user, (user * 7 + i * 3) % 23) for user in range(30) for i in range(6)]
    handed = tacit.load(pl.DataFrame(rows, schema=["user", "item"], orient="row"))
    asked = comparing(repeat=1, data={}, split={"kind": "random"})
    alone = compare(asked, handed, out=tmp_path / "alone")
    spread = compare(asked, handed, out=tmp_path / "spread", jobs=JobsConfig(2, executor=executor))
    assert without_times(spread.as_json()) == without_times(alone.as_json())


def test_trials_side_by_side_are_the_same_and_are_kept(tmp_path: Path, executor: ThreadPoolExecutor) -> None:
    alone = tune(searching(), None)
    spread = tune(searching(), tmp_path, jobs=JobsConfig(2, executor=executor))
    assert [trial.metrics for trial in spread.trials] == [trial.metrics for trial in alone.trials]
    assert (spread.experiment, spread.data) == (alone.experiment, alone.data)
    again = tune(searching(trials=3), tmp_path)
    assert (spread.reused, again.reused) == (0, 3)
    assert {trial.value for trial in again.trials} <= {trial.value for trial in alone.trials}


def test_a_trial_that_fails_does_not_stop_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tacit.lab import trials

    whole = trials.run_trial

    def fails_once(jobs: Any, settings: Any, *more: Any) -> Any:
        if settings["method.factors"] == 4:
            raise MethodError("four do not fit")
        return whole(jobs, settings, *more)

    monkeypatch.setattr(trials, "run_trial", fails_once)
    tuned = tune(searching(), tmp_path)
    assert [trial.outcome for trial in tuned.trials] == ["failed", "", "failed", ""]
    assert tuned.best.settings["method.factors"] == 8
    assert len(list((tmp_path / "trials").iterdir())) == 2, "a failure may have been of the moment: it is not kept"
    with pytest.raises(MethodError):
        tune(searching(search={"method.factors": [4]}), tmp_path)


@pytest.mark.slow
def test_what_private_trials_reached_is_kept_nowhere(tmp_path: Path) -> None:
    private = [{"name": "dp", "epsilon": 4.0, "bound": 1.0}]
    given = {"method": {"name": "fed-svd", "factors": 2}, "privacy": private, "search": {"method.factors": [2, 3]}}
    tune(searching(**given, private_choice={"epsilon": 0.5}), tmp_path)
    assert not (tmp_path / "trials").exists()


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_failures_are_results(tmp_path: Path) -> None:
    jobs = [Steps("dies", str(tmp_path)), Steps("refused"), Steps("fine"), Steps("broken")]
    found = run_jobs(jobs, JobsConfig(2))
    assert (tmp_path / "death").exists()
    assert isinstance(found[0], int)
    assert isinstance(found[2], int)
    assert [type(one.error) for one in (found[1], found[3])] == [MethodError, ZeroDivisionError]
    assert found[1].error.hint == "try another"
    with pytest.raises(MethodError, match="broken"):
        raise_failures(found)


@pytest.mark.slow
def test_there_are_no_more_workers_than_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tacit.lab.jobs.usable_cores", lambda: 1)
    found = run_jobs([Steps(f"job {number}") for number in range(3)], JobsConfig(8))
    assert len(set(found)) == 1
    assert os.getpid() not in found


@pytest.mark.parametrize("jobs", [1, 2])
def test_one_failure_alone_is_raised_as_it_is(jobs: int, executor: ThreadPoolExecutor) -> None:
    found = run_jobs([Steps("refused")], JobsConfig(jobs, executor=executor if jobs > 1 else None))
    assert isinstance(found[0], JobFailure)
    with pytest.raises(MethodError) as refused:
        raise_failures(found)
    assert refused.value.message == "this cannot work"


def test_a_worker_without_the_data_is_named(executor: ThreadPoolExecutor, tmp_path: Path) -> None:
    asked = comparing(data={"source": str(tmp_path / "missing.csv")}, repeat=1)
    with pytest.raises(DataError):
        compare(asked, out=tmp_path, jobs=JobsConfig(2, executor=executor))


def write_often(folder: Path, mark: int) -> None:
    for _ in range(60):
        with whole_folder(folder) as partial:
            write_json(partial / "result.json", mark)
            write_json(partial / "other.json", mark)


def test_two_processes_that_write_one_folder_leave_one_whole(tmp_path: Path) -> None:
    context, folder = multiprocessing.get_context("fork"), tmp_path / "run"
    both = [context.Process(target=write_often, args=(folder, mark)) for mark in (1, 2)]
    for process in both:
        process.start()
    for process in both:
        process.join(LONG)
        assert process.exitcode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert (folder / "result.json").read_text() == (folder / "other.json").read_text()


def test_what_a_dead_process_left_is_removed_and_what_a_live_one_writes_is_not(tmp_path: Path) -> None:
    with whole_folder(tmp_path / "run") as partial:
        dead = tmp_path / partial.name.replace(f"-{os.getpid()}-", "-99999999-")
        dead.mkdir()
        remove_partials(tmp_path)
        assert not dead.exists()
        assert partial.exists()
        write_json(partial / "result.json", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.slow
def test_no_cluster_is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("tacit.lab.workers.REACH_SECONDS", 1)
    jobs = JobsConfig(2, "dask", "tcp://127.0.0.1:9")
    with pytest.raises(EngineError) as refused:
        compare(comparing(), out=tmp_path / "runs", jobs=jobs)
    assert refused.value.exit_code == 18
    assert not (tmp_path / "runs").exists()
