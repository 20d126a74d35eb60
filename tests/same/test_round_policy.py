"""Rounds are masked as soon as there are enough devices, and never readable again after that."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.loopback_federation import Field
from helpers.refusals import refused
from helpers.town_federation import PI, founded, journal_of, town
from tacit.errors import ConsentError, FieldError
from tacit.field.carriers.loopback import Loopback
from tacit.field.coordinator import Coordinator, CoordinatorJournal, RoundRules
from tacit.field.coordinator.members import EnrolledDevice
from tacit.field.coordinator.round_log import RoundRecord
from tacit.field.coordinator.round_policy import (
    Past,
    RoundPolicy,
    count_needed,
    decide_round,
    enough,
    is_like,
    is_settled,
)
from tacit.field.device import Sharing
from tacit.protocols.robust import RobustConfig
from tacit.protocols.secure_aggregation import DevicePolicy, ServerPhase
from tacit.reasons import ReasonCode, RoundReason
from tacit.wire.messages import Request, read_secure_request, write_request
from tacit.wire.status import CoordinatorStatus

pytestmark = pytest.mark.slow

EASY = DevicePolicy(n_min=4, k_min=1, cool_down=2)
"""What four people may agree on, so that five make a sum."""


def field_of(folder: Path, device_policy: DevicePolicy = EASY) -> Field:
    field = Field(folder, "fpl")
    for device in field.devices.values():
        device.share(Sharing(pi=PI, coin="row", device_policy=device_policy, masked_only=False))
    return field


@pytest.mark.slow
def test_thirteen_devices_with_usual_settings_are_summed_without_a_word_of_configuration(tmp_path: Path) -> None:
    field = Field(tmp_path, "fed-gmf", people=13)
    field.run(rounds=1)
    (happened,) = field.journal.rounds.records()
    assert (happened.state, happened.masked, happened.answered) == ("finished", 1, 13)
    assert happened.reason == RoundReason(ReasonCode.ENOUGH_DEVICES, {"eligible": 13, "needed": 13})
    for device in field.devices.values():
        assert device.sharing.device_policy == DevicePolicy()
        assert [entry.masked for entry in device.ledger.list()] == [True, True]
        assert device.sharing.masked_only


def test_too_few_devices_make_a_readable_round_and_the_reason_is_recorded(tmp_path: Path) -> None:
    field = field_of(tmp_path, DevicePolicy())
    field.run(rounds=2)
    rounds = field.journal.rounds.records()
    assert [(r.state, r.masked) for r in rounds] == [("finished", 0)] * 2
    assert {r.reason for r in rounds} == {
        RoundReason(ReasonCode.TOO_FEW_DEVICES, {"capable": 5, "here": 5, "needed": 13})
    }
    assert not any(device.sharing.masked_only for device in field.devices.values())


def test_enough_devices_are_summed_under_masks_cool_down_and_are_not_read_again(tmp_path: Path) -> None:
    field = field_of(tmp_path)
    coordinator = field.run(rounds=7, device_policy=EASY.model_dump())
    rounds = field.journal.rounds.records()
    assert [r.state for r in rounds] == ["finished", "skipped", "skipped"] * 2 + ["finished"]
    assert [r.masked for r in rounds] == [1, 0, 0] * 2 + [1]
    counts = {"eligible": 0, "here": 5, "needed": 5, "cool_down": 2}
    assert rounds[1].reason == RoundReason(ReasonCode.COOL_DOWN, counts)
    for device in field.devices.values():
        entries = device.ledger.list()
        assert {entry.round for entry in entries} == {0, 3, 6}
        assert all(entry.masked and entry.state == "sent" for entry in entries)
        assert device.sharing.masked_only, "after the first sum no round is readable"
    before = coordinator.shared["items"].copy()
    back = Coordinator(field.journal, RoundRules(rounds=9, secure=None, readable=True), Loopback(field.devices))
    happened = back.round()
    fewer = RoundReason(ReasonCode.TOO_FEW_ANSWERS, {"answered": 0, "needed": 1})
    assert (happened.state, happened.answered, happened.reason) == ("abandoned", 0, fewer)
    assert np.array_equal(back.shared["items"], before)
    device = field.devices[1]
    asked = write_request(field.federation, Request(8, field.federation.download(back.shared), True, 6))
    with refused(ConsentError, ReasonCode.MASKED_ONLY):
        device.learn(asked)
    device.share(
        device.sharing.model_copy(update={"masked_only": False})
    )  # the user may allow it, and it stays allowed
    assert device.release(device.learn(asked))
    field.journal.rounds.abandon(happened.__class__(8, "abandoned", 0, 0, 0, 0, 0, 0, 0.0))
    field.run(rounds=10, device_policy=EASY.model_dump())
    assert not device.sharing.masked_only


def test_a_sum_that_would_show_too_little_is_not_made_and_no_readable_round_follows(tmp_path: Path) -> None:
    device_policy = DevicePolicy(n_min=4, k_min=5, cool_down=2)
    field = field_of(tmp_path, device_policy)
    field.run(rounds=3, device_policy=device_policy.model_dump())
    rounds = field.journal.rounds.records()
    assert [(r.state, r.masked) for r in rounds] == [("abandoned", 1), ("skipped", 0), ("skipped", 0)]
    assert [r.reason is not None and r.reason.code for r in rounds] == [
        ReasonCode.THIN_SUM,
        ReasonCode.COOL_DOWN,
        ReasonCode.COOL_DOWN,
    ]
    for device in field.devices.values():
        assert all(entry.masked for entry in device.ledger.list())


def test_a_sum_of_empty_histories_says_that_they_are_empty(tmp_path: Path) -> None:
    field = field_of(tmp_path)
    for device in field.devices.values():
        for entry in device.history.list():
            device.history.remove(entry.item, device.catalog)
    field.run(rounds=1, device_policy=EASY.model_dump())
    assert [r.reason for r in field.journal.rounds.records()] == [RoundReason(ReasonCode.EMPTY_SUM)]


class Lost(Loopback):
    """Loses all answers in one phase of the stage that adds rows, after the devices have made it."""

    def __init__(self, field: Field, phase: ServerPhase) -> None:
        super().__init__(field.devices)
        self.field, self.phase, self.seen = field, phase, 0

    def ask(self, requests: Mapping[int, bytes], seconds: float, most_bytes: int) -> Generator[tuple[int, bytes]]:
        self.seen += read_secure_request(self.field.federation, next(iter(requests.values()))).phase == self.phase
        for answer in super().ask(requests, seconds, most_bytes):
            if self.seen < 2:
                yield answer


@pytest.mark.parametrize("phase", [ServerPhase.VECTORS, ServerPhase.UNMASKINGS], ids=lambda phase: phase.name.lower())
def test_a_round_lost_after_the_vectors_were_sent_is_not_followed_by_a_readable_one(
    tmp_path: Path, phase: ServerPhase
) -> None:
    field = field_of(tmp_path)
    rules = RoundRules(rounds=3, device_policy=EASY, readable=True)
    happened = Coordinator(field.journal, rules, Lost(field, phase)).round()
    assert (happened.state, happened.masked) == ("abandoned", 1)
    for device in field.devices.values():
        assert device.sharing.masked_only
        assert [entry.masked for entry in device.ledger.list()] == [True, True]
    coordinator = Coordinator(field.journal, rules, Loopback(field.devices))
    after = coordinator.round()
    assert (after.state, after.reason and after.reason.code) == ("skipped", ReasonCode.COOL_DOWN)
    asked = write_request(field.federation, Request(2, field.federation.download(coordinator.shared), True))
    with refused(ConsentError, ReasonCode.MASKED_ONLY):
        field.devices[1].learn(asked)


def test_masks_stay_when_devices_go(tmp_path: Path) -> None:
    field = field_of(tmp_path)
    rules: dict[str, Any] = {"rounds": 4, "device_policy": EASY.model_dump(), "patience": 0.1}
    field.run(**{**rules, "rounds": 1})
    few = Loopback({number: field.devices[number] for number in (1, 2, 3, 4)})
    with refused(FieldError, ReasonCode.SECURE_QUORUM_MISSED, here=4, needed=5, seconds=0.1):
        field.run(few, **rules)
    assert all(entry.masked for device in field.devices.values() for entry in device.ledger.list())


# --- with many devices: the coordinator's side alone ------------------------------------------------------------------


@pytest.fixture
def journal(tmp_path: Path) -> CoordinatorJournal:
    _, catalog = town()
    return journal_of(tmp_path, founded("fpl", catalog), catalog)


def enrolled(journal: CoordinatorJournal, n_devices: int) -> list[EnrolledDevice]:
    for number in range(n_devices):
        journal.members.add(bytes([number]), bytes([number]) * 32)
    return journal.members.devices()


def begun(journal: CoordinatorJournal, number: int, devices: set[int], cool_down: int, kept: int = 100) -> None:
    """Begin a sum and ask some devices for their vectors."""
    journal.sums.begin(number, len(devices), cool_down, kept)
    journal.sums.note_asked(number, devices)


def decided(journal: CoordinatorJournal, members: list[EnrolledDevice], number: int = 0, **rules: Any) -> RoundPolicy:
    coordinator = Coordinator(journal, RoundRules.from_options(rules, "rules"), Loopback({}))
    return decide_round(coordinator.rules, journal, number, members, coordinator._draw(number))


SEVERAL = {"most_cohorts": None}
"""Of users who allow more cohorts than one."""


def numbers(found: RoundPolicy) -> set[int]:
    return {device.number for device in found.asked}


def test_who_is_asked_is_eligible_and_drawn_alike_each_time(journal: CoordinatorJournal) -> None:
    members = enrolled(journal, 80)
    first = decided(journal, members, clients_per_round=13, device_policy=SEVERAL)
    assert first.secure_config is not None
    agreed = first.secure_config
    assert (len(first.asked), agreed.n_min, agreed.k_min, agreed.spare) == (13, 10, 3, 1)
    assert numbers(first) == numbers(decided(journal, members, clients_per_round=13, device_policy=SEVERAL))
    begun(journal, 0, numbers(first), cool_down=5)
    journal.sums.note_participants(0, 2, numbers(first))
    second = decided(journal, members, 1, clients_per_round=13, device_policy=SEVERAL)
    assert not numbers(second) & numbers(first)
    assert numbers(decided(journal, members, 6, device_policy=SEVERAL)) == {device.number for device in members}, (
        "five rounds of cool-down"
    )
    assert len(numbers(decided(journal, members, 5, device_policy=SEVERAL))) == 80 - 13


def test_nearly_the_same_people_are_not_summed_twice(journal: CoordinatorJournal) -> None:
    members = enrolled(journal, 24)
    all_devices = {device.number for device in members}
    begun(journal, 0, all_devices, cool_down=5)
    journal.sums.note_participants(0, 1, all_devices)
    journal.sums.note_participants(0, 2, all_devices - {7})  # one was lost in the second stage
    for number in range(6, 30):
        found = numbers(decided(journal, members, number, device_policy=SEVERAL))
        assert not is_like(frozenset(found), journal.sums.participants(), DevicePolicy())
        assert len(found) >= enough(DevicePolicy())
    few = [device for device in members if device.number <= 14]
    begun(journal, 6, {device.number for device in few}, cool_down=5)
    journal.sums.note_participants(6, 1, {device.number for device in few})
    fewer = decided(journal, few[:13], 12, device_policy=SEVERAL)
    assert not fewer.asked
    assert fewer.reason == RoundReason(ReasonCode.COHORT_TOO_SIMILAR)
    assert numbers(decided(journal, few, 12, device_policy=SEVERAL)) == {device.number for device in few}, (
        "the very same people may be"
    )


def test_rules_that_exclude_masks_and_devices_that_cannot(journal: CoordinatorJournal) -> None:
    members = enrolled(journal, 30)
    robust = decided(journal, members, robust=RobustConfig(rule="median").model_dump(), readable=True)
    assert (robust.secure_config, len(robust.asked), robust.reason.code) == (None, 30, ReasonCode.ROBUST_RULE)
    off = decided(journal, members, secure=None, readable=True)
    assert (off.secure_config, off.reason.code) == (None, ReasonCode.SECURE_AGGREGATION_OFF)
    few = decided(journal, members[:12], readable=True)
    assert (few.secure_config, len(few.asked)) == (None, 12)
    waiting = decided(journal, members[:12])
    assert (waiting.asked, waiting.waits, waiting.reason.code) == ([], True, ReasonCode.TOO_FEW_DEVICES)
    either = RoundRules(readable=True)
    assert count_needed(either, is_settled(either, journal)) == 1
    assert count_needed(RoundRules(), is_settled(RoundRules(), journal)) == 13
    begun(journal, 0, {1, 2}, cool_down=0)
    assert count_needed(either, is_settled(either, journal)) == 13, "no way back, whatever became of the sum"
    assert not decided(journal, members[:12], 1, readable=True).asked
    journal.sums.note_participants(0, 2, [1, 2])
    assert decided(journal, members, 1).secure_config is not None
    assert not decided(journal, members, 1, device_policy={"most_rounds": 1, "n_min": 23}).asked, "two have had enough"


def test_a_sum_takes_its_least_where_fewer_answers_are_wanted(journal: CoordinatorJournal) -> None:
    members = enrolled(journal, 100)
    found = decided(journal, members, clients_per_round=10)
    assert found.secure_config is not None, "ten are wanted, and a sum of thirteen can be had"
    assert len(found.asked) == 13
    assert len(decided(journal, members, clients_per_round=10, over_selection=0.5).asked) == 15
    given = decided(journal, members, clients_per_round=5, secure={"n_min": 10})
    assert given.secure_config is not None
    assert len(given.asked) == 10
    assert len(decided(journal, members, clients_per_round=5, secure=None, readable=True).asked) == 5, (
        "readable ones are as wanted"
    )


# --- rounds that must wait --------------------------------------------------------------------------------------------


class Coming:
    """A carrier without devices: some are there, others come after some polls; none answers."""

    def __init__(self, there: set[int], later: set[int] | None = None) -> None:
        self.there, self.later, self.looks, self.told = there, later or set(), 3, 0

    def present(self) -> frozenset[int]:
        self.looks -= 1
        return frozenset(self.there if self.looks >= 0 else self.there | self.later)

    def ask(self, requests: Mapping[int, bytes], seconds: float, most_bytes: int) -> Generator[tuple[int, bytes]]:
        yield from ()

    def tell(self, messages: Mapping[int, bytes], seconds: float) -> None:
        self.told += 1

    def offer(self, messages: Mapping[int, bytes]) -> None:
        """Nobody looks."""

    def announce(self, status: CoordinatorStatus) -> None:
        """Nobody looks."""


def summed(journal: CoordinatorJournal, number: int, people: set[int]) -> None:
    """Note a sum of some people, and close its round and all before it."""
    begun(journal, number, people, cool_down=99)
    for stage in (1, 2):
        journal.sums.note_participants(number, stage, people)
    for past in range(journal.rounds.next_number, number + 1):
        journal.rounds.abandon(RoundRecord(past, "abandoned", 0, 0, 0, 0, 0, 0, 0.0))


def close_until(journal: CoordinatorJournal, number: int) -> None:
    for past in range(journal.rounds.next_number, number):
        journal.rounds.abandon(RoundRecord(past, "skipped", 0, 0, 0, 0, 0, 0, 0.0))


def coordinated(journal: CoordinatorJournal, carrier: Coming, **rules: Any) -> Coordinator:
    given = {"rounds": 30, "patience": 0.5, **rules}
    return Coordinator(journal, RoundRules.from_options(given, "rules"), carrier)


def test_people_alike_for_ever_end_it_with_a_word_and_cost_no_rounds(journal: CoordinatorJournal) -> None:
    all_devices = {device.number for device in enrolled(journal, 14)}
    summed(journal, 0, all_devices)
    close_until(journal, 6)  # all are eligible
    carrier = Coming(all_devices - {14})
    with refused(FieldError, ReasonCode.COHORT_TOO_SIMILAR):
        coordinated(journal, carrier, device_policy=SEVERAL).run()
    assert journal.rounds.next_number == 6, "no number was used up"
    assert carrier.told == 0, "no device gets the status of a finished federation"


def test_who_comes_back_in_time_is_summed_with_the_others(journal: CoordinatorJournal) -> None:
    all_devices = {device.number for device in enrolled(journal, 14)}
    summed(journal, 0, all_devices)
    close_until(journal, 6)
    happened = coordinated(journal, Coming(all_devices - {14}, {14}), patience=600, device_policy=SEVERAL).round()
    assert (happened.number, happened.masked, happened.asked) == (6, 1, 14)


def test_while_others_cool_down_rounds_are_skipped_and_no_longer_than_that(journal: CoordinatorJournal) -> None:
    all_devices = {device.number for device in enrolled(journal, 27)}
    summed(journal, 0, set(range(1, 15)))
    summed(journal, 4, set(range(15, 28)))
    coordinator = coordinated(journal, Coming(all_devices - {14, 27}), device_policy={"d_min": 27, **SEVERAL})
    close_until(journal, 6)
    assert [coordinator.round().state for _ in range(4)] == ["skipped"] * 4, "until the others are eligible"
    with refused(FieldError, ReasonCode.COHORT_TOO_SIMILAR):
        coordinator.round()
    assert journal.rounds.next_number == 10


def test_devices_that_cannot_be_in_a_sum_are_not_waited_for_round_by_round(journal: CoordinatorJournal) -> None:
    able = {device.number for device in enrolled(journal, 12)}
    journal.members.add(b"of an older version")
    summed(journal, 0, able)
    close_until(journal, 6)
    with refused(FieldError, ReasonCode.TOO_FEW_DEVICES, capable=12, here=13, needed=13):
        coordinated(journal, Coming(able | {13})).round()
    newer = journal.members.add(b"new", b"n" * 32)
    with refused(FieldError, ReasonCode.PARTICIPATION_LIMIT, willing=1, here=13):
        coordinated(journal, Coming(able | {13, newer}), device_policy={"most_rounds": 1}).round()
    assert journal.rounds.next_number == 6


def test_who_was_asked_is_forgotten_with_the_cool_down_and_who_was_summed_is_not(journal: CoordinatorJournal) -> None:
    all_devices = {device.number for device in enrolled(journal, 20)}
    begun(journal, 0, all_devices, cool_down=5)
    journal.sums.note_participants(0, 1, all_devices - {3})
    begun(journal, 5, {1, 2}, cool_down=5)
    assert (0, 0) in journal.sums.participants(), "whoever was asked cools down"
    past = Past(journal.sums.participants())
    assert (past.last(3), past.times(3), past.last(1), past.times(1), past.last(99)) == (0, 0, 5, 1, None)
    begun(journal, 6, {4}, cool_down=5)
    assert set(journal.sums.participants()) == {(0, 1), (5, 0), (6, 0)}


def test_a_round_cut_off_says_how_many_were_asked_and_how(journal: CoordinatorJournal) -> None:
    all_devices = {device.number for device in enrolled(journal, 14)}
    begun(journal, 0, all_devices, cool_down=5)  # and it was killed
    happened = coordinated(journal, Coming(all_devices)).round()
    assert (happened.state, happened.asked, happened.masked, happened.lost) == ("abandoned", 14, 1, 0)
    assert happened.reason == RoundReason(ReasonCode.COORDINATOR_INTERRUPTED)
    assert journal.rounds.records() == [happened]


def test_who_was_in_a_sum_is_forgotten_after_the_agreed_rounds_and_how_often_is_not(
    journal: CoordinatorJournal,
) -> None:
    all_devices = {device.number for device in enrolled(journal, 14)}
    summed(journal, 0, all_devices)
    begun(journal, 9, all_devices, cool_down=5, kept=9)
    assert set(journal.sums.participants()) == {(0, 1), (0, 2), (9, 0)}
    begun(journal, 10, all_devices, cool_down=0, kept=9)
    assert set(journal.sums.participants()) == {(10, 0)}
    assert {device.summed for device in journal.members.devices()} == {1}
    over = decided(journal, journal.members.devices(), 20, device_policy={"most_rounds": 1})
    assert (over.asked, over.reason.code) == ([], ReasonCode.PARTICIPATION_LIMIT)
