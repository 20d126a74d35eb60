"""How long FPL's tables take is said before they start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tacit.studies import fpl, fpl_choices, fpl_time, plan_studies
from tacit.studies.setup import StudySetup

TINY = {"data.users": 60, "data.places": 40}


def setup_of(folder: Path, **other: Any) -> StudySetup:
    given: dict[str, Any] = {"seeds": 2, "quick": False, "choices": folder, "progress": lambda *_: None}
    return StudySetup("town", fpl.recipe("town"), TINY, **given | other)


def test_every_planned_pass_and_evaluation_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a second for every pass and none for evaluations, the estimate is the number of passes."""
    setup, made = setup_of(tmp_path), []
    monkeypatch.setattr(fpl_time, "_time", lambda _, method: (1.0, 0.0))
    counted = fpl_time.estimate_seconds(setup)

    def search(_: StudySetup, label: str, method: dict[str, Any], values: dict[str, Any], *rest: Any) -> Any:
        repeat, n = (rest[1] if len(rest) > 1 else 1), 1
        for tried in values.values():
            n *= len(tried)
        made.append(n * repeat * method.get("epochs", 1))
        raise AssertionError  # a search that was counted needs no result

    monkeypatch.setattr(StudySetup, "search", search)
    for label in (*fpl_choices.CONFIGURATIONS, *fpl_choices.SHORTENED):
        with pytest.raises(AssertionError):
            fpl_choices._configure(setup, label, 10)
    first_stage = sum(made)  # the step of each configuration; lengths and pis come on top
    tests = sum(
        2 * fpl_choices.most_passes(setup, label) for label in (*fpl_choices.CONFIGURATIONS, *fpl_choices.SHORTENED)
    )
    assert first_stage + tests < counted < 4 * (first_stage + tests)


def test_trials_are_counted_as_they_are_made() -> None:
    steps = len(fpl_choices.STEPS) * len(fpl_choices.STEPS_AT)
    assert fpl_choices.count_trials("sFPL", 50) == steps + 2 + len(fpl_choices.PIS) - 1
    assert fpl_choices.count_trials("pFPL+", 600) == steps + len(fpl_choices.LONG_PIS) - 2


def test_a_pass_and_an_evaluation_are_timed_on_the_data(tmp_path: Path) -> None:
    for method in ({"name": "fpl", "preset": "pFPL+"}, {"name": "user-knn"}):
        a_pass, a_look = fpl_time._time(setup_of(tmp_path), method)
        assert a_pass > 0
        assert a_look > 0


def test_a_quick_look_and_other_studies_say_nothing(tmp_path: Path) -> None:
    assert plan_studies("fpl-accuracy", "town", quick=True, out=tmp_path)[0].estimate() is None
    assert plan_studies("sums-quality", "town", out=tmp_path)[0].estimate() is None
