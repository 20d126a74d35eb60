"""Equally tuned tables: as many trials for every row, chosen on validation, kept one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tacit.methods.base import options
from tacit.random import Key
from tacit.studies import reproduce, tuned_table
from tacit.studies.setup import StudySetup
from tacit.studies.tuned_spaces import NEURAL, SPACES, SearchSpace

TINY = {"data.users": 150, "data.places": 80}
NOTHING_TO_TRY = {"random", "most-popular"}


@pytest.mark.parametrize("label", [*SPACES])
def test_every_row_tries_as_many_different_points(label: str) -> None:
    space = SPACES[label]
    points = space.draw(tuned_table.TRIALS, Key(1))
    assert len(points) == (1 if label in NOTHING_TO_TRY else tuned_table.TRIALS)
    assert len({json.dumps(point) for point in points}) == len(points)
    name = space.method["name"]
    for point in points:
        options(name, {k: v for k, v in {**space.method, **point}.items() if k != "name"})  # none is refused


def test_values_around_todays_defaults_are_among_those_tried() -> None:
    for label, space in SPACES.items():
        usual = options(space.method["name"], {}).model_dump()
        for option, values in space.values.items():
            if isinstance(usual[option], (int, float)) and not isinstance(usual[option], bool):
                assert min(values) <= usual[option] <= max(values), (label, option)


def setup_of(folder: Path, **other: Any) -> StudySetup:
    given: dict[str, Any] = {"seeds": 1, "quick": False, "choices": folder, "progress": lambda *_: None}
    return StudySetup("town", tuned_table.recipe("town"), TINY, **given | other)


@pytest.mark.slow
def test_the_best_on_validation_is_run_on_test(tmp_path: Path) -> None:
    space = SearchSpace({"name": "fed-svd", "epochs": 3}, {"factors": (1, 2, 4, 8)}, 1)
    row = tuned_table._tune_row(setup_of(tmp_path), "fed-svd", space)
    assert len(row.trials) == 4
    best = max(row.trials, key=lambda trial: trial["value"])
    assert row.best["settings"] == best["settings"], "one seed and three agree on data this small"
    assert row.method == {"name": "fed-svd", **row.best["settings"], "epochs": row.best["passes"]}
    assert row.test["rounds"] == row.best["passes"]
    assert row.test["leak"]["ok"]
    assert row.values("Precision@10") == [pytest.approx(row.test["metrics"][0]["Precision@10"])]


@pytest.mark.slow
def test_trials_are_kept_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = SearchSpace({"name": "ease"}, {"reg": (10.0, 100.0, 1000.0)})
    made = []
    run_trial = tuned_table.run_trial

    def stopped_after_two(jobs: Any, point: Any) -> Any:
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(point)
        return run_trial(jobs, point)

    monkeypatch.setattr(tuned_table, "run_trial", stopped_after_two)
    with pytest.raises(KeyboardInterrupt):
        tuned_table._tune_row(setup_of(tmp_path), "ease", space)
    monkeypatch.setattr(tuned_table, "run_trial", lambda jobs, point: (made.append(point), run_trial(jobs, point))[1])
    first = tuned_table._tune_row(setup_of(tmp_path), "ease", space)
    assert made[:3] == [{"reg": 10.0}, {"reg": 100.0}, {"reg": 1000.0}], "the first two were not made again"
    monkeypatch.setattr(tuned_table, "run_trial", None)
    assert tuned_table._tune_row(setup_of(tmp_path), "ease", space) == first


def test_trials_that_diverge_are_last() -> None:
    trials = [{"value": None}, {"value": 0.1}, {"value": 0.3}]
    assert [trial["value"] for trial in tuned_table._best_first(trials)] == [0.3, 0.1, None]


def test_what_is_left_out_is_reported(tmp_path: Path) -> None:
    notes = tuned_table._notes(setup_of(tmp_path), NEURAL)
    assert all(any(label in note for note in notes) for label in NEURAL)


@pytest.mark.fuzz
def test_a_quick_look_has_every_row(tmp_path: Path) -> None:
    made = reproduce("tuned-table", "town", quick=True, settings=TINY, out=tmp_path)[0]
    assert {row.method for row in made.found.rows} == {*SPACES}
    assert all(row.ours is not None and row.seeds == 1 for row in made.found.rows)
