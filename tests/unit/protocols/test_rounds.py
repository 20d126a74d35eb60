"""Who answers in a round: dropouts, spares and rounds that are given up."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.errors import ConfigError
from tacit.methods.base import Schedule
from tacit.protocols.rounds import RoundsConfig, draw_attendance, is_abandoned
from tacit.protocols.selection import select_clients
from tacit.random import Key

KEY = Key(5)
SCHEDULES = [Schedule(4, 10, 20), Schedule(4, 10, 20, partition=True), Schedule(4, 1, 200)]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_in_calm_weather_those_who_are_asked_answer(schedule: Schedule) -> None:
    for number in range(12):
        who = draw_attendance(schedule, RoundsConfig(), KEY, number, 200)
        assert np.array_equal(who.asked, select_clients(schedule, KEY.child("choose"), number, 200))
        assert np.array_equal(who.answered, who.asked)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_dropouts_are_as_many_as_configured_and_differ_from_round_to_round(schedule: Schedule) -> None:
    config = RoundsConfig(dropout=0.3)
    rounds = [draw_attendance(schedule, config, KEY, number, 200) for number in range(40)]
    share = 1 - sum(len(who.answered) for who in rounds) / sum(len(who.asked) for who in rounds)
    assert 0.25 < share < 0.35
    assert all(np.isin(who.answered, who.asked).all() for who in rounds)
    assert all((np.diff(who.answered) > 0).all() for who in rounds if len(who.answered))
    lost = {tuple(np.setdiff1d(who.asked, who.answered)) for who in rounds}
    assert len(lost) > 30


def test_spares_make_up_for_dropouts_and_never_count_beyond_what_was_wanted() -> None:
    schedule = SCHEDULES[1]
    config = RoundsConfig(dropout=0.2, over_selection=0.5)
    rounds = [draw_attendance(schedule, config, KEY, number, 200) for number in range(40)]
    assert all(len(who.asked) == 30 and len(np.unique(who.asked)) == 30 for who in rounds)
    assert all(len(who.answered) <= 20 for who in rounds)
    assert np.mean([len(who.answered) == 20 for who in rounds]) > 0.9
    members = select_clients(schedule, KEY.child("choose"), 3, 200)
    assert np.isin(members, rounds[3].asked).all()
    everyone = draw_attendance(SCHEDULES[2], config, KEY, 0, 200)
    assert len(everyone.asked) == 200


def test_a_round_with_too_few_answers_is_given_up() -> None:
    config = RoundsConfig(dropout=0.5, minimum=15)
    answers = [draw_attendance(SCHEDULES[0], config, KEY, number, 200) for number in range(20)]
    assert all(is_abandoned(who, config) == (len(who.answered) < 15) for who in answers)
    assert any(is_abandoned(who, config) for who in answers)


@pytest.mark.parametrize("given", [{"dropout": 1.0}, {"dropout": -0.1}, {"minimum": 0}, {"over_selection": -1}])
def test_impossible_rounds_are_refused(given: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(given))):
        RoundsConfig.from_options(given, "runtime.rounds")
