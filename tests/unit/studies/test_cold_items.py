"""The study of cold items: what chooses options, that every row has all measures, and that it goes on after a stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.studies import cold_items as study
from tacit.studies import reproduce
from tacit.studies.setup import StudySetup

TINY = {"data.users": 60, "data.places": 40, "data.vectors_width": 8}


def setup_of(folder: Path, seeds: int = 2) -> StudySetup:
    given: dict[str, Any] = {"seeds": seeds, "quick": False, "choices": folder, "progress": lambda *_: None}
    return StudySetup("town", study.recipe("town"), TINY, **given)


def test_means_over_the_validation_parts_of_all_seeds_choose(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first seed alone would choose otherwise."""
    setup = setup_of(tmp_path)
    cuts = [study._Cut(setup, seed) for seed in setup.seeds]
    reached = {("a", 42): 0.5, ("b", 42): 0.4, ("a", 43): 0.1, ("b", 43): 0.4}

    def measure(cut: study._Cut, score: Any, validates: bool) -> study.Found:
        value = reached[score, cut.seed] if validates else cut.seed + ord(score)
        return dict.fromkeys([*study.CHOSEN_BY.values(), *study.MEASURES.values()], value)

    monkeypatch.setattr(study._Cut, "measure", measure)
    row = study._rival(cuts, "a rival", {"x": ("a", "b")}, lambda cut, _, options: iter([(options, options["x"])]))
    assert row.chosen == {"among all": {"x": "b"}, "among cold": {"x": "b"}}
    assert row.values == {measure: [42 + ord("b"), 43 + ord("b")] for measure in study.MEASURES}
    assert row.overall == [42 + ord("b"), 43 + ord("b")]


def test_a_rival_that_learns_in_rounds_stops_past_its_best(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    setup = setup_of(tmp_path, 1)
    curve = [0.1, 0.3, 0.2, 0.2, 0.2, 0.9]

    def measure(cut: study._Cut, score: Any, validates: bool) -> study.Found:
        return dict.fromkeys([*study.CHOSEN_BY.values(), *study.MEASURES.values()], curve[score])

    monkeypatch.setattr(study._Cut, "measure", measure)
    asked: list[int] = []

    def make(cut: study._Cut, validates: bool, options: Any) -> Any:
        for at in range(len(curve)):
            asked.append(at)
            yield {**options, "rounds": at}, at

    row = study._rival([study._Cut(setup, 42)], "a rival", {"x": (1,)}, make)
    assert row.chosen["among all"] == {"x": 1, "rounds": 1}
    assert asked == [0, 1, 2, 3, 4, 0, 1]


@pytest.mark.slow
def test_trials_are_kept_as_they_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A study that is stopped while it chooses does not learn again what it has learnt."""
    monkeypatch.setattr(study, "OURS", {"fed-svd": ({"name": "fed-svd", "epochs": 1}, {"factors": (2, 3)}, {})})
    monkeypatch.setattr(study, "MAPS", {"weight": (0.5,), "boost": (1.0, 2.0)})
    learnt: list[int] = []
    once = study._try_boosts

    def stopped_at_the_second(cuts: Any, method: Any, boosts: Any) -> Any:
        learnt.append(method["factors"])
        if len(learnt) == 2:
            raise KeyboardInterrupt
        return once(cuts, method, boosts)

    monkeypatch.setattr(study, "_try_boosts", stopped_at_the_second)
    for _ in range(2):
        setup = setup_of(tmp_path, 1)
        try:
            row = study._ours([study._Cut(setup, 42)], "fed-svd", False)
        except KeyboardInterrupt:
            continue
    assert learnt == [2, 3, 3]
    assert set(row.values) == set(study.MEASURES)


@pytest.mark.slow
def test_the_study_has_a_row_for_every_method(tmp_path: Path) -> None:
    made = reproduce("cold-items", "town", quick=True, settings=TINY | {"data.places": 150}, out=tmp_path)[0]
    rows = made.found.detail["rows"]
    assert [row["name"] for row in rows] == [*study.NAMES[:2], "fed-svd, cold_items", study.NAMES[2]]
    for row in rows:
        assert all(0 <= value <= 1 for values in row["values"].values() for value in values)
        assert np.isfinite(row["overall"]).all()
