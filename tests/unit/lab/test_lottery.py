"""The lottery of a simulation: every device can check it, it repeats, and it draws about the wanted share."""

from __future__ import annotations

from helpers.refusals import refused
from tacit.errors import DevicePolicyError
from tacit.lab.lottery import ParticipantLottery
from tacit.protocols.secure_aggregation.draw import check_draw
from tacit.random import Key
from tacit.reasons import ReasonCode


def test_drawn_clients_and_no_others_pass_the_check_of_every_device() -> None:
    lots = ParticipantLottery(Key(3), 40, 5, 0.3)
    for number in range(5):
        drawn, beacon = lots.draw_participants(number).tolist(), lots.beacon(number)
        cohort = [lots.identities[person].public for person in drawn]
        known = lots.directory("a task", number)
        check_draw(known, "a task", number, beacon, cohort, lots.prove_draw(drawn, number))
        other = next(person for person in range(40) if person not in drawn)
        smuggled = [*cohort, lots.identities[other].public], lots.prove_draw([*drawn, other], number)
        with refused(DevicePolicyError, ReasonCode.NOT_DRAWN, round=number):
            check_draw(known, "a task", number, beacon, *smuggled)


def test_draws_repeat_with_the_seed_and_take_the_share() -> None:
    lots, again, other = (
        ParticipantLottery(Key(3), 50, 60, 0.2),
        ParticipantLottery(Key(3), 50, 60, 0.2),
        ParticipantLottery(Key(4), 50, 60, 0.2),
    )
    drawn = [lots.draw_participants(number).tolist() for number in range(60)]
    assert drawn == [again.draw_participants(number).tolist() for number in range(60)]
    assert drawn != [other.draw_participants(number).tolist() for number in range(60)]
    assert 450 < sum(map(len, drawn)) < 750, "3,000 coins of a fifth"
