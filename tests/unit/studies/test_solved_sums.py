"""All sums that were opened, as equations in users: what they name under which policy."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.protocols.secure_aggregation import DevicePolicy
from tacit.random import Key
from tacit.studies.secure_attacks import ANY, _combination
from tacit.studies.sheets import value_of
from tacit.studies.solved_sums import (
    SumSchedule,
    draw_part,
    mentions_of_sums,
    scheduled_cohorts,
    solve_sums,
)
from tacit.studies.sum_sizes import own_items
from tacit.testing import make_clients

pytestmark = pytest.mark.slow

PEOPLE = make_clients([sorted({at, (3 * at + 1) % 78, (7 * at + 2) % 78, at + 78}) for at in range(78)], 156)
IS_OWN = own_items(PEOPLE)


def test_four_cohorts_name_a_user_unless_devices_stay_with_the_first() -> None:
    named = {
        name: value_of(_combination(name, policy, PEOPLE, IS_OWN), f"{name}, combination of four", "P@|K|")
        for name, policy in {"any": ANY, "default": DevicePolicy()}.items()
    }
    assert named["any"] == 1.0
    assert named["default"] < 0.6


def test_all_sums_of_the_default_schedule_name_less_than_a_users_own_items() -> None:
    """Anybody with anybody is solved exactly; batches are not, also while devices leave for good."""
    errors = {}
    for name, policy, leaving in (("any", ANY, 0.0), ("batches", DevicePolicy(), 0.0), ("left", DevicePolicy(), 0.002)):
        cohorts = scheduled_cohorts(78, policy, SumSchedule(300, 20, leaving), Key(1).child(name))
        solved = solve_sums(78, cohorts, mentions_of_sums(PEOPLE, cohorts, False, Key(2)))
        errors[name] = np.abs(solved - IS_OWN).max(axis=1)  # of each user
    assert errors["any"].max() < 1e-6
    assert errors["batches"].min() > 0.5
    assert errors["left"].min() > 0.5


def test_a_part_of_a_history_is_drawn_once() -> None:
    part = draw_part(PEOPLE, 0.7, Key(1))
    assert (own_items(part) <= IS_OWN).all()
    assert 0.6 < len(part.items) / len(PEOPLE.items) < 0.8
    assert (own_items(draw_part(PEOPLE, 0.7, Key(1))) == own_items(part)).all()
    assert len(draw_part(PEOPLE, 1.0, Key(1)).items) == len(PEOPLE.items)
