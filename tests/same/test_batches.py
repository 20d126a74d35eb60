"""Devices are summed with the same others for life: whole batches take part or stay out, and no row is listed alone."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tacit.field.device.answers as answers_module
from helpers.loopback_federation import CARE, Field
from helpers.town_federation import PI, founded, journal_of, town
from tacit.errors import FieldError, TacitError
from tacit.field.carriers.loopback import Loopback
from tacit.field.coordinator import Coordinator, CoordinatorJournal, RoundRules
from tacit.field.coordinator.members import EnrolledDevice
from tacit.field.coordinator.round_policy import RoundPolicy, decide_round
from tacit.field.device import Sharing
from tacit.field.exchange import respond
from tacit.privacy.sum_exposure import SumExposure
from tacit.protocols.secure_aggregation import DevicePolicy, ServerPhase
from tacit.protocols.secure_aggregation.encoding import SegmentKind
from tacit.protocols.secure_aggregation.messages import SessionInvitation
from tacit.reasons import ReasonCode
from tacit.web.operator import FederationStatus
from tacit.wire.messages import read_secure_request
from tacit.wire.status import CoordinatorStatus

STAYING = 7  # devices of a half that have to stay, in tests without devices
SMALL = DevicePolicy(n_min=3, k_min=2, cool_down=0, corrupted=0.0)
"""What small federations of these tests agree on; batches, as by default."""


@pytest.fixture
def journal(tmp_path: Path) -> CoordinatorJournal:
    _, catalog = town()
    return journal_of(tmp_path, founded("fpl", catalog), catalog)


def enrolled(journal: CoordinatorJournal, n_devices: int) -> list[EnrolledDevice]:
    for _ in range(n_devices):
        number = len(journal.members.devices())
        journal.members.add(number.to_bytes(2, "big"), number.to_bytes(32, "big"))
    return journal.members.devices()


def decided(journal: CoordinatorJournal, here: set[int], number: int, **rules: Any) -> RoundPolicy:
    coordinator = Coordinator(journal, RoundRules.from_options(rules, "rules"), Loopback({}))
    members = [device for device in journal.members.devices() if device.number in here and not device.revoked]
    return decide_round(coordinator.rules, journal, number, members, coordinator._draw(number))


def summed(journal: CoordinatorJournal, number: int, found: RoundPolicy, lost: frozenset[int] = frozenset()) -> None:
    """Note what the coordinator notes when a round is run in which some are lost before their vectors."""
    assert found.batch is not None
    asked = {device.number for device in found.asked}
    journal.sums.begin(number, len(asked), 5, 5)
    journal.sums.note_asked(number, asked)
    if not found.batch.is_formed:
        for half, devices in enumerate(found.batch.halves):
            journal.batches.note(number + 1, half, set(devices) - lost, sorted(set(devices) - lost)[:STAYING])
    journal.sums.note_participants(number, 2, asked - lost)


def numbers(found: RoundPolicy) -> set[int]:
    return {device.number for device in found.asked}


class Room(Loopback):
    """Some devices are here, and what they are told is kept."""

    def __init__(self, here: set[int]) -> None:
        super().__init__({})
        self.here, self.told = here, list[CoordinatorStatus]()

    def present(self) -> frozenset[int]:
        return frozenset(self.here)

    def announce(self, status: CoordinatorStatus) -> None:
        self.told.append(status)


def test_operator_and_devices_see_how_many_newcomers_are_missing(
    journal: CoordinatorJournal, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tacit.field.coordinator")
    rules = RoundRules()

    def told(here: set[int]) -> tuple[CoordinatorStatus, int]:
        room = Room(here)
        Coordinator(journal, rules, room)._attendance.check_members("pause", 60)
        alerts = FederationStatus.of(journal, rules, len(here)).alerts()
        return room.told[-1], sum("no batch" in alert.what for alert in alerts)

    first = {device.number for device in enrolled(journal, 13)}
    assert told(first) == (CoordinatorStatus("pause", 13, 13, 60), 0), "no device is new before the first batch"
    summed(journal, 0, decided(journal, first, 0))
    assert told(first) == (CoordinatorStatus("pause", 13, 13, 60, 0, 13), 0)
    all_devices = {device.number for device in enrolled(journal, 4)}
    status, n_alerts = told(all_devices - {17})
    assert (status.new_here, status.new_missing, n_alerts) == (3, 10, 1)
    assert [record.__dict__["fields"]["missing"] for record in caplog.records if record.msg == "newcomers wait"] == [10]
    all_devices = {device.number for device in enrolled(journal, 9)}
    status, n_alerts = told(all_devices)
    assert (status.new_here, status.new_missing, n_alerts) == (13, 0, 0)
    assert numbers(decided(journal, all_devices, 1)) == all_devices - first, "they are asked next"


def test_who_is_in_the_first_sum_is_a_batch_and_only_whole_batches_are_asked(journal: CoordinatorJournal) -> None:
    all_devices = {device.number for device in enrolled(journal, 45)}
    batches = []
    for number in (0, 1):  # 45 devices are two batches
        found = decided(journal, all_devices, number)
        assert found.batch is not None
        assert (found.batch.is_formed, len(found.batch.halves)) == (False, 1)
        lost = frozenset(sorted(numbers(found))[:1])
        summed(journal, number, found, lost)
        batches.append(numbers(found) - lost)
    assert not batches[0] & batches[1]
    assert sorted(len(batch) for batch in batches) == [21, 22], "of 22 and of 23 one was lost, and none was left over"
    waits = decided(journal, all_devices, 2)
    assert (waits.asked, waits.waits) == ([], False), "they cool down"
    assert numbers(decided(journal, all_devices, 6)) == batches[0], "who has waited longest"
    one_gone = all_devices - {min(batches[0])}
    assert numbers(decided(journal, one_gone, 7)) == batches[1], "a batch that lacks a device stays out"
    incomplete = decided(journal, one_gone - {min(batches[1])}, 7)
    assert (incomplete.asked, incomplete.waits, incomplete.reason.code) == ([], True, ReasonCode.BATCHES_INCOMPLETE)
    new = {device.number for device in enrolled(journal, 11)} - all_devices
    left = all_devices - batches[0] - batches[1]
    assert numbers(decided(journal, all_devices | new, 7)) == new | left, "devices without a batch make a new one"


def test_the_journal_forgets_who_was_in_which_sum_and_keeps_the_batch(journal: CoordinatorJournal) -> None:
    all_devices = {device.number for device in enrolled(journal, 14)}
    for number in (0, 6, 12):
        found = decided(journal, all_devices, number)
        assert numbers(found) == all_devices
        summed(journal, number, found)
    assert {number for number, _ in journal.sums.participants()} == {12}, "cool-downs need no more"
    assert {(device.batch, device.summed, device.cohorts) for device in journal.members.devices()} == {(1, 2, 1)}


def test_a_large_batch_is_counted_in_two_halves_that_stay(journal: CoordinatorJournal) -> None:
    all_devices = {device.number for device in enrolled(journal, 30)}
    found = decided(journal, all_devices, 0)
    assert found.batch is not None
    assert [len(half) for half in found.batch.halves] == [15, 15]
    lost = frozenset({found.batch.halves[0][3]})
    summed(journal, 0, found, lost)
    again = decided(journal, all_devices - lost, 6)
    assert again.batch is not None
    assert again.batch.is_formed
    assert [set(half) for half in again.batch.halves] == [set(half) - lost for half in found.batch.halves]


def test_a_batch_whose_device_is_revoked_is_over_and_who_need_not_stay_makes_a_new_one(
    journal: CoordinatorJournal,
) -> None:
    all_devices = {device.number for device in enrolled(journal, 20)}
    summed(journal, 0, decided(journal, all_devices, 0))
    stay = {device.number for device in journal.members.devices() if device.stays}
    assert len(stay) == STAYING
    journal.members.revoke(min(stay))
    found = decided(journal, all_devices, 6)
    assert found.batch is not None
    assert not found.batch.is_formed
    assert numbers(found) == all_devices - stay
    summed(journal, 6, found)
    assert {device.cohorts for device in journal.members.devices() if device.number not in stay} == {2}
    assert numbers(decided(journal, all_devices, 12)) == all_devices - stay, "the new batch is summed again"
    journal.members.revoke(max(all_devices))
    over = decided(journal, all_devices, 18)
    assert (over.asked, over.reason.code) == ([], ReasonCode.BATCHES_INCOMPLETE), "six are left, and need others"
    new = {device.number for device in enrolled(journal, 12)} - all_devices
    free = {device.number for device in journal.members.devices() if device.cohorts == 2 and not device.stays}
    assert numbers(decided(journal, all_devices | new, 18)) == new | free - {max(all_devices)}


# --- with devices -----------------------------------------------------------------------------------------------------


def field_of(folder: Path, people: int, method: str = "fed-gmf", policy: DevicePolicy = SMALL) -> Field:
    field = Field(folder, method, people=people)
    for device in field.devices.values():
        device.share(Sharing(pi=PI, coin="row", masked_only=True, device_policy=policy))
    return field


class Meddling(Loopback):
    """Loses answers by round, phase and device, and knows who is asked, so that one device can lie."""

    def __init__(self, field: Field, lost: Mapping[tuple[int, ServerPhase], set[int]] | None = None) -> None:
        super().__init__(field.devices)
        self.field, self.lost, self.now = field, dict(lost or {}), 0
        self.listed: dict[str, np.ndarray] = {}  # the rows of the last second stage

    def ask(self, requests: Mapping[int, bytes], seconds: float, most_bytes: int) -> Generator[tuple[int, bytes]]:
        for number, content in requests.items():
            turn = read_secure_request(self.field.federation, content)
            if number in self.lost.get((turn.round, ServerPhase(turn.phase)), ()):
                continue
            if turn.phase == ServerPhase.ADVERTS:
                layout = SessionInvitation.decode(turn.content).session.terms.layout
                self.listed = {part.table: part.listed for part in layout.segments}
            self.now, answers = number, list[bytes]()
            try:
                respond(self.devices[number], content, answers.append)
            except TacitError:
                continue
            yield number, answers[0]


def rules_of(policy: DevicePolicy = SMALL, **rules: Any) -> RoundRules:
    return RoundRules.from_options(
        {"rounds": 9, "device_policy": policy.model_dump(), "patience": 0.2, **rules}, "rules"
    )


@pytest.mark.slow
def test_a_device_lost_before_its_first_vector_is_in_no_batch_and_the_others_go_on_without_it(tmp_path: Path) -> None:
    field = field_of(tmp_path, 5)
    carrier = Meddling(field, {(number, ServerPhase.SHARES): {2} for number in range(9)})
    coordinator = Coordinator(field.journal, rules_of(), carrier)
    rounds = [coordinator.round() for _ in range(4)]
    assert [(one.state, one.asked, one.answered) for one in rounds] == [
        ("finished", 5, 4),
        *[("finished", 4, 4)] * 3,
    ]
    assert {device.number for device in field.journal.members.devices() if not device.batch} == {2}
    found = {number: device.sum_exposure for number, device in field.devices.items()}
    assert found == {number: None if number == 2 else SumExposure(4, 1.0) for number in found}, "fewer than measured"


@pytest.mark.slow
@pytest.mark.parametrize("phase", [ServerPhase.ADVERTS, ServerPhase.VECTORS], ids=lambda phase: phase.name.lower())
def test_a_batch_that_loses_a_device_is_repeated_with_it_and_no_sum_lacks_it(
    tmp_path: Path, phase: ServerPhase
) -> None:
    field = field_of(tmp_path, 5)
    coordinator = Coordinator(field.journal, rules_of(), Meddling(field, {(1, phase): {3}}))
    rounds = [coordinator.round() for _ in range(3)]
    assert [(one.state, one.answered) for one in rounds] == [("finished", 5), ("abandoned", 0), ("finished", 5)]
    assert rounds[1].reason is not None
    assert rounds[1].reason.code == ReasonCode.TOO_MANY_DROPOUTS
    sets = {people for (_, stage), people in field.journal.sums.participants().items() if stage}
    assert sets <= {frozenset(range(1, 6))}


def test_the_coordinator_knows_who_stays_by_every_sum_of_a_batch_not_by_its_first_alone(tmp_path: Path) -> None:
    """A batch may be formed by the counts of its halves, and its rows be added for the first time rounds later."""
    field = field_of(tmp_path, 5)
    coordinator = Coordinator(field.journal, rules_of(), Meddling(field))
    coordinator.round()
    with field.journal.file.transaction():
        field.journal.file.connection.execute("UPDATE devices SET stays = 0")
    assert coordinator.round().state == "finished"
    stay = set()
    for number, device in field.devices.items():
        assert device.membership is not None
        history = device._masked._machine_of(field.federation, SMALL).history.of(device.membership.task)
        stay |= {number for past in history.sums if past.participants and past.stays}
    assert stay
    assert {device.number for device in field.journal.members.devices() if device.stays} == stay
    assert {(device.batch, device.cohorts) for device in field.journal.members.devices()} == {(1, 1)}


@pytest.mark.slow
def test_the_operator_sees_which_device_a_batch_waits_for(tmp_path: Path) -> None:
    field = field_of(tmp_path, 5)
    assert Coordinator(field.journal, rules_of(), Meddling(field)).round().state == "finished"
    away = field.devices.pop(4)
    coordinator = Coordinator(field.journal, rules_of(), Meddling(field))
    for _ in range(2):
        with pytest.raises(FieldError):
            coordinator.round()
        assert {device.number for device in field.journal.members.devices() if device.missing} == {4}
    field.devices[4] = away
    assert Coordinator(field.journal, rules_of(), Meddling(field)).round().state == "finished"
    assert not any(device.missing for device in field.journal.members.devices())


@pytest.mark.slow
@pytest.mark.parametrize(
    "phase", [ServerPhase.CONFIRMATIONS, ServerPhase.UNMASKINGS], ids=lambda phase: phase.name.lower()
)
def test_a_device_that_is_lost_after_its_vector_does_not_end_the_sum(tmp_path: Path, phase: ServerPhase) -> None:
    field = field_of(tmp_path, 6, policy=SMALL.model_copy(update={"k_min": 1}))
    always = {(number, phase): {3} for number in range(9)}
    secure = {**CARE, "two_stage": phase == ServerPhase.UNMASKINGS}
    coordinator = Coordinator(field.journal, rules_of(secure=secure), Meddling(field, always))
    rounds = [coordinator.round() for _ in range(3)]
    assert [(one.state, one.answered) for one in rounds] == [("finished", 6)] * 3


@pytest.mark.slow
def test_who_lies_in_the_counts_of_one_half_lists_no_row_that_the_other_half_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without halves one participant that adds to all counts lists rows of a single honest one."""
    real, shown = answers_module.vector_of, {}
    for halves in (1, 2):
        field = field_of(tmp_path / str(halves), 8, "fed-svd")
        carrier = Meddling(field)

        def lying(learnt, found, terms, carrier=carrier):  # type: ignore[no-untyped-def]
            vector, *rest = real(learnt, found, terms)
            if carrier.now == 8:
                for (_, kind), view in terms.layout.views(vector).items():
                    if kind is SegmentKind.COUNTS:
                        view[:] += 2
            return vector, *rest

        monkeypatch.setattr(answers_module, "vector_of", lying)
        policy = SMALL.model_copy(update={"n_min": 3 if halves == 2 else 6})
        for device in field.devices.values():
            device.share(Sharing(pi=1.0, masked_only=True, device_policy=policy))
        happened = Coordinator(field.journal, rules_of(policy), carrier).round()
        assert happened.state == "finished"
        assert len({device.half for device in field.journal.members.devices()}) == halves
        honest = np.zeros(field.catalog.n_items, int)
        for person in range(7):
            honest[np.unique(field.clients.of(person))] += 1
        rows = carrier.listed[field.federation.built.spec.tables[0]]
        assert len(rows)
        shown[halves] = int((honest[rows] < SMALL.k_min).sum())
    assert shown[1] > 0
    assert shown[2] == 0
