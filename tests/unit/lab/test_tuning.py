"""A search sees the validation part and nothing else of what is held out."""

from __future__ import annotations

import csv
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tacit.config import Experiment, read_config
from tacit.data import DataConfig, Dataset, SplitConfig, load
from tacit.data.split import TEST, assign
from tacit.errors import ConfigError, DivergedError
from tacit.lab.bayesian import BayesianConfig, Proposals
from tacit.lab.experiments import run
from tacit.lab.jobs import JobsConfig
from tacit.lab.private_choice import PrivateChoiceConfig, choose_trial
from tacit.lab.search_space import Range
from tacit.lab.tuning import Tuning, tune
from tacit.privacy.accounting import PrivacyEvent, account, mu_for
from tacit.random import Key
from tacit.types import Interactions

SMALL = {"source": "town", "users": 120, "places": 80}


def searching(**changes: object) -> Tuning:
    given: dict[str, object] = {
        "data": SMALL,
        "split": {"validation": 0.2},
        "method": {"name": "bpr-mf", "epochs": 6},
        "runtime": {"evaluate_every": 2},
        "search": {"method.learning_rate": [0.01, 0.1], "method.factors": [4, 8]},
    }
    return Tuning.from_options({**given, **changes}, "the test")


def with_other_test_rows(dataset: Dataset, split: SplitConfig) -> Dataset:
    """The same log, in which every held-out test row is about another item."""
    log = dataset.interactions
    is_test = assign(dataset, split, Key(42).child("split")) == TEST
    items = np.where(is_test, (log.items + 7) % len(log.item_ids), log.items).astype(np.int32)
    changed = Interactions(log.users, items, log.values, log.times, log.user_ids, log.item_ids)
    return replace(dataset, interactions=changed)


@pytest.mark.slow
def test_other_test_rows_change_nothing_in_the_search() -> None:
    tuning = searching()
    town = load(DataConfig.from_options(SMALL, "data"))
    other = with_other_test_rows(town, tuning.split)
    assert (other.interactions.items != town.interactions.items).mean() > 0.1
    first, second = (tune(tuning, None, data=data) for data in (town, other))
    assert [t.metrics for t in first.trials] == [t.metrics for t in second.trials]
    assert first.best.settings == second.best.settings
    before, after = (run(first.experiment, data).metrics["Recall@10"] for data in (town, other))
    assert before != after, "the rows that were changed are those the run is judged on"


def test_the_best_configuration_runs_as_written(tmp_path: Path) -> None:
    tuned = tune(searching(), tmp_path)
    assert tuned.folder is not None
    assert tuned.best.value == max(trial.value or 0 for trial in tuned.trials)
    experiment = read_config(Experiment, tuned.folder / "best.yaml")
    assert experiment == tuned.experiment
    assert experiment.method.options.model_dump()["epochs"] == tuned.best.passes
    assert not experiment.split.validation
    assert run(experiment).metrics["NDCG@10"] > 0
    stored = json.loads((tuned.folder / "result.json").read_text())
    assert [trial["settings"] for trial in stored["trials"]] == [
        {"method.learning_rate": rate, "method.factors": factors} for rate in (0.01, 0.1) for factors in (4, 8)
    ]
    lines = (tuned.folder / "trials.csv").read_text().splitlines()
    assert lines[0] == "method.learning_rate,method.factors,NDCG@10,passes,seconds,problem"
    assert len(lines) == 5
    assert lines[1].startswith(f"{tuned.best.settings['method.learning_rate']},")


def test_with_several_seeds_the_mean_counts() -> None:
    grid = {"method.factors": [4, 8]}
    both = tune(searching(search=grid, repeat=2), None)
    alone = [tune(searching(search=grid, seed=seed, runtime={}), None).trials for seed in (42, 43)]
    plain = tune(searching(search=grid, repeat=2, runtime={}), None)
    for at, trial in enumerate(plain.trials):
        assert trial.value == pytest.approx(np.mean([trials[at].value or 0 for trials in alone]))
    assert plain.trials[0].value != alone[0][0].value
    for trial, last in zip(both.trials, plain.trials, strict=True):
        assert (trial.value or 0) >= (last.value or 0), "the last pass is one of those that are looked at"
        assert trial.passes in (2, 4, 6)
    assert both.best.value == max(trial.value or 0 for trial in both.trials)


def test_diverged_trials_are_recorded_and_do_not_win() -> None:
    tuned = tune(searching(search={"method.learning_rate": [500.0, 0.05]}), None)
    assert [trial.diverged for trial in tuned.trials] == [True, False]
    assert "diverged" in tuned.trials[0].problem
    assert tuned.best.settings == {"method.learning_rate": 0.05}
    assert tuned.rank()[-1].diverged


def test_a_search_in_which_everything_diverges_says_so() -> None:
    with pytest.raises(DivergedError, match="All 1 trials diverged"):
        tune(searching(search={"method.learning_rate": [500.0]}), None)


def test_some_combinations_are_drawn_from_the_seed() -> None:
    grid = {"method.factors": list(range(1, 41))}
    drawn = [settings["method.factors"] for settings, _ in searching(search=grid, trials=5).points()]
    again = [settings["method.factors"] for settings, _ in searching(search=grid, trials=5).points()]
    other = [settings["method.factors"] for settings, _ in searching(search=grid, trials=5, seed=7).points()]
    assert drawn == again == sorted(drawn)
    assert len(set(drawn)) == 5
    assert drawn != other
    assert len(searching(search=grid, trials=100).points()) == 40


def test_a_preset_can_be_searched() -> None:
    method = {"name": "fpl", "epochs": 2}
    points = searching(method=method, search={"method.preset": ["sFPL", "pFPL+"]}).points()
    assert [point[1].method.options.model_dump()["clients_per_round"] for point in points] == [1, 0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"split": {}}, "split.validation"),
        ({"search": {}}, "search"),
        ({"search": {"method.factors": []}}, "no values"),
        ({"search": {"split.test": [0.1, 0.2]}}, "would change what is measured"),
        ({"search": {"method.factors": [4, -1]}}, "factors"),
        ({"search": {"method.learning_rte": [0.1]}}, "learning_rate"),
        ({"trials": -1}, "trials"),
        ({"repeat": 0}, "repeat"),
    ],
)
def test_what_cannot_be_searched_is_refused_before_anything_runs(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        tune(searching(**changes), None, data=None, progress=_nothing_runs)


def _nothing_runs(what: str, done: int, total: int) -> None:
    raise AssertionError(f"{what}: nothing should have been started")


def test_a_search_under_differential_privacy_says_that_its_cost_is_not_counted() -> None:
    grid = {"method.item_weight": [0.1, 0.3]}
    private = [{"name": "dp", "epsilon": 8.0}]
    given = {"method": {"name": "dp-svd", "epochs": 4}, "runtime": {}, "search": grid}
    with_guarantee, without = (tune(searching(**given, privacy=privacy), None) for privacy in (private, []))
    assert with_guarantee.as_json()["privacy"] == {"counts_search": False}
    assert len(with_guarantee.notes) == 1
    assert without.as_json()["privacy"] is None
    assert not without.notes
    own = {"method": {"name": "dpals", "epsilon": 8.0}, "runtime": {}, "search": {"method.factors": [2]}}
    assert tune(searching(**own), None).is_private


PRIVATE = {
    "method": {"name": "dp-svd", "epochs": 4},
    "runtime": {},
    "search": {"method.item_weight": [0.1, 0.3], "method.factors": [2, 16]},
    "privacy": [{"name": "dp", "epsilon": 2.0}],
}


@pytest.mark.slow
def test_a_private_choice_counts_every_training_and_the_choice(tmp_path: Path) -> None:
    tuned = tune(searching(**PRIVATE, private_choice={"epsilon": 0.5}), tmp_path)
    found = tuned.as_json()["privacy"]
    assert (found["counts_search"], found["trainings"], found["simulated_noise"]) == (True, 4, True)
    events = [PrivacyEvent("gaussian", noise_multiplier=1 / mu_for(2.0 * 0.999, found["delta"]), count=4)]
    by_hand = account([*events, PrivacyEvent("exponential", epsilon=0.5)], found["delta"]).epsilon_server
    assert found["epsilon_server"] == pytest.approx(by_hand, rel=2e-3)
    assert 2.0 < found["epsilon_server"] < 4 * 2.0 + 0.5
    assert all(trial.value is None and not trial.metrics and not trial.diverged for trial in tuned.trials)
    assert tuned.folder is not None
    told = list(csv.DictReader((tuned.folder / "trials.csv").read_text(encoding="utf-8").splitlines()))
    assert [row[tuned.primary] for row in told] == [""] * 4
    chosen = dict(searching(**PRIVATE).points()[tuned.trials.index(tuned.best)][0])
    assert chosen == tuned.best.settings


def test_a_private_choice_prefers_what_is_better_the_more_it_may_cost() -> None:
    config = PrivateChoiceConfig(epsilon=1.0)
    chosen = [choose_trial([10.0, 14.0], config, Key(n)) for n in range(400)]
    share = 1 / (1 + np.exp(-0.999 * 4 / 2))  # sensitivity 1: exp(epsilon u / 2)
    assert np.mean(chosen) == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / 400))


@pytest.mark.parametrize(
    "changes",
    [
        {"privacy": []},
        {"private_choice": {"epsilon": 0.0}},
        {"private_choice": {"epsilon": float("nan")}},
        {"runtime": {"evaluate_every": 2, "keep": "last"}},
        {"evaluation": {"primary": "Coverage@10"}},
        {"method": {"name": "dpals", "epsilon": 1.0}, "search": {"method.factors": [2]}, "privacy": []},
    ],
)
def test_a_private_choice_without_an_account_is_refused_before_anything_runs(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        tune(searching(**{**PRIVATE, "private_choice": {"epsilon": 1.0}, **changes}), None, progress=_nothing_runs)


def proposing(trials: int, batch: int = 2, **changes: object) -> Tuning:
    space = {"method.learning_rate": {"low": 0.001, "high": 0.3, "log": True}, "method.factors": [4, 8, 12]}
    few = {"name": "bpr-mf", "epochs": 2}
    learns = {"bayesian": {"drawn": 3, "batch": batch}, "trials": trials, "search": space, "method": few}
    return searching(**{**learns, **changes})


@pytest.mark.slow
def test_a_bayesian_search_repeats_and_longer_ones_reuse_what_shorter_ones_tried(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    short, again = tune(proposing(4), tmp_path), tune(proposing(4), None)
    assert [(t.settings, t.value) for t in short.trials] == [(t.settings, t.value) for t in again.trials]
    assert len({repr(t.settings) for t in short.trials}) == 4
    longer = tune(proposing(6), tmp_path)
    assert [t.settings for t in longer.trials[:4]] == [t.settings for t in short.trials]
    assert longer.reused == 4


@pytest.mark.slow
def test_a_bayesian_search_proposes_the_same_points_side_by_side() -> None:
    pytest.importorskip("optuna")
    with ThreadPoolExecutor(2) as pool:
        spread = tune(proposing(5), None, jobs=JobsConfig(2, executor=pool))
    assert [t.settings for t in spread.trials] == [t.settings for t in tune(proposing(5), None).trials]


@pytest.mark.slow
def test_proposals_go_where_values_are_high_and_end_with_the_space() -> None:
    pytest.importorskip("optuna")
    space = {"x": Range(low=0.0, high=1.0), "kind": ("a", "b")}
    proposals = Proposals(space, BayesianConfig(drawn=8), Key(5))
    found = []
    for _ in range(40):
        (point,) = proposals.propose(1)
        found.append(point)
        proposals.record(point, 1.0 - (point["x"] - 0.8) ** 2 - (point["kind"] == "a"))
    late = [abs(point["x"] - 0.8) for point in found[20:]]
    assert np.mean(late) < np.mean([abs(point["x"] - 0.8) for point in found[:8]])
    small = Proposals({"x": (1, 2, 3)}, BayesianConfig(), Key(5))
    assert sorted(point["x"] for point in small.propose(10)) == [1, 2, 3]


def test_a_trial_that_diverges_does_not_end_a_bayesian_search() -> None:
    pytest.importorskip("optuna")
    tuned = tune(proposing(4, 1, search={"method.learning_rate": [0.01, 1e30, 0.05, 1e35]}), None)
    assert [trial.diverged for trial in tuned.trials].count(True) == 2
    assert not tuned.best.diverged


@pytest.mark.parametrize(
    "changes", [{"private_choice": {"epsilon": 1}}, {"bayesian": {"batch": 0}}, {"bayesian": {"drawn": 0}}], ids=str
)
def test_a_bayesian_search_that_cannot_be_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        proposing(4, **changes)
    with pytest.raises(ConfigError):
        proposing(0)


def test_without_its_extra_a_bayesian_search_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError) as raised:
        tune(proposing(2), None)
    assert "tacit[optuna]" in raised.value.hint
