"""Ranges: what is drawn from them, the same for the same seed, and what is refused."""

from __future__ import annotations

from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.config import to_yaml
from tacit.errors import ConfigError
from tacit.lab.search_space import Range, list_points
from tacit.lab.tuning import Tuning
from tacit.random import Key
from tacit.strict_yaml import read_yaml

KEY = Key(3).child("search")
SPACE = {"a": Range(low=1, high=1000, log=True), "b": Range(low=0.0, high=2.0), "c": (True, False)}


@given(
    share=st.floats(0, 1, exclude_max=True), low=st.integers(1, 50), width=st.integers(1, 500), by_ratio=st.booleans()
)
def test_values_stay_inside_grow_with_the_share_and_are_whole_where_the_ends_are(
    share: float, low: int, width: int, by_ratio: bool
) -> None:
    whole = Range(low=low, high=low + width, log=by_ratio)
    real = Range(low=float(low), high=float(low + width), log=by_ratio)
    assert isinstance(whole.value(share), int)
    assert low <= whole.value(share) <= low + width
    assert low * (1 - 1e-12) <= real.value(share) <= (low + width) * (1 + 1e-12)
    assert whole.value(share * 0.5) <= whole.value(share)
    assert (whole.value(0), real.value(0)) == (low, pytest.approx(low))


def test_every_whole_number_is_drawn_and_ratios_are_equally_likely() -> None:
    assert {Range(low=3, high=6).value(at / 100) for at in range(100)} == {3, 4, 5, 6}
    assert {Range(low=1, high=4, log=True).value(at / 100) for at in range(100)} == {1, 2, 3, 4}
    points = list_points({"a": Range(low=0.01, high=1.0, log=True)}, 400, KEY)
    below = sum(log(point["a"]) < log(0.1) for point in points) / 400
    assert abs(below - 0.5) < 0.1


def test_points_are_different_repeat_with_the_seed_and_more_trials_begin_alike() -> None:
    few, many = list_points(SPACE, 5, KEY), list_points(SPACE, 12, KEY)
    assert many[:5] == few
    assert len({repr(point) for point in many}) == 12
    assert list_points(SPACE, 5, Key(4).child("search")) != few
    assert all(point.keys() == SPACE.keys() for point in many)
    two = list_points({"n": Range(low=1, high=2)}, 9, KEY)
    assert sorted(point["n"] for point in two) == [1, 2], "a space may have fewer points than trials"


def test_a_search_takes_ranges_and_is_written_and_read_again() -> None:
    given = {
        "method": "ease",
        "split": {"validation": True},
        "search": {"method.reg": {"low": 1, "high": 500, "log": True}},
        "trials": 4,
    }
    tuning = Tuning.from_options(given, "the test")
    points = tuning.points()
    assert [experiment.method.options.reg for _, experiment in points] == [point["method.reg"] for point, _ in points]
    again = Tuning.from_options(read_yaml(to_yaml(tuning), "the test"), "the test")
    assert (again, [point for point, _ in again.points()]) == (tuning, [point for point, _ in points])
    with pytest.raises(ConfigError, match="trials"):
        Tuning.from_options({**given, "trials": 0}, "the test").points()


@pytest.mark.parametrize(
    "wrong", [{"low": 2, "high": 2}, {"low": 3, "high": 1}, {"low": 0, "high": 1, "log": True}, {"low": 1}, {"lo": 1}]
)
def test_ranges_that_are_none_are_refused(wrong: dict[str, object]) -> None:
    given = {"method": "ease", "split": {"validation": True}, "search": {"method.reg": wrong}, "trials": 2}
    with pytest.raises(ConfigError):
        Tuning.from_options(given, "the test")
