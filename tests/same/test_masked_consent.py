"""One answer per round, readable or masked; what the user forbids is not repeated; who leaves may join elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from pathlib import Path

import pytest

from helpers.loopback_federation import CARE, KNOWN, Egress, Field, masked
from helpers.refusals import refused
from helpers.town_federation import BOLD, PI
from tacit.errors import ConsentError, WireError
from tacit.field.carriers.loopback import Loopback
from tacit.field.coordinator import CoordinatorJournal
from tacit.field.device import Device, Sharing
from tacit.protocols.secure_aggregation import ServerPhase
from tacit.reasons import ReasonCode
from tacit.wire.federation import Federation
from tacit.wire.messages import read_secure_request

pytestmark = pytest.mark.slow

ONE_STAGE = {**CARE, "two_stage": False}
Between = Callable[[Device, ServerPhase, bytes], None]


class Meddling(Loopback):
    """Does something to the first device before, or after, it takes a turn."""

    def __init__(self, field: Field, before: Between | None = None, after: Between | None = None) -> None:
        super().__init__(field.devices)
        self.field, self.before, self.after = field, before, after

    def ask(self, requests: Mapping[int, bytes], seconds: float, most_bytes: int) -> Generator[tuple[int, bytes]]:
        for number, content in requests.items():
            phase = ServerPhase(read_secure_request(self.field.federation, content).phase)
            for meddle, now in ((self.before, True), (self.after, False)):
                if now is False:
                    yield from super().ask({number: content}, seconds, most_bytes)
                if number == 1 and meddle is not None:
                    meddle(self.devices[1], phase, content)


def test_a_round_opened_under_masks_is_not_answered_in_the_clear(tmp_path: Path) -> None:
    field, plain, phases = masked(tmp_path), list[bytes](), list[ServerPhase]()
    for device in field.devices.values():
        device.share(Sharing(pi=PI, coin="row", device_policy=BOLD, masked_only=False))

    def ask_in_the_clear(device: Device, phase: ServerPhase, content: bytes) -> None:
        plain.extend([turn.request] if (turn := read_secure_request(field.federation, content)).request else [])
        if phase < ServerPhase.VECTORS:
            with refused(WireError, ReasonCode.ROUND_ANSWERED):
                device.learn(plain[0])
        else:  # with the vector it becomes a device of masked rounds only
            with refused(ConsentError, ReasonCode.MASKED_ONLY):
                device.learn(plain[0])
        phases.append(phase)

    field.run(Meddling(field, after=ask_in_the_clear), rounds=1, **KNOWN, secure=ONE_STAGE)
    assert len(phases) == 5
    assert [(entry.round, entry.masked) for entry in field.devices[1].ledger.list()] == [(0, True)]


def test_no_vector_follows_a_readable_answer_of_its_round(tmp_path: Path) -> None:
    """As if a readable answer had slipped in after the sum was opened."""
    field, seen = masked(tmp_path), list[ServerPhase]()
    for device in field.devices.values():
        device.share(Sharing(pi=PI, coin="row", device_policy=BOLD, masked_only=False))

    def answer_first(device: Device, phase: ServerPhase, content: bytes) -> None:
        seen.append(phase)
        if phase == ServerPhase.SHARES:
            opening = device._store.get("opening")
            assert opening is not None
            with device._store.transaction():
                device._store.drop("opening")
            device.learn(opening[8:])
            with device._store.transaction():
                device._store.put("opening", opening)

    field.run(Meddling(field, before=answer_first), rounds=1, **KNOWN, secure=ONE_STAGE)
    assert ServerPhase.VECTORS in seen
    assert [(entry.round, entry.masked) for entry in field.devices[1].ledger.list()] == [(0, False)]


def test_a_vector_is_not_repeated_once_the_user_forbids_what_it_holds(tmp_path: Path) -> None:
    field, repeated = masked(tmp_path), list[ServerPhase]()

    def forbid(device: Device, phase: ServerPhase, content: bytes) -> None:
        if phase == ServerPhase.VECTORS:
            before = device.sharing
            assert device.answers.step_session(content)[1] is not None, "unchanged it may be repeated"
            for less in ({"pi": 0.0}, {"measure": False}, {"never_items": (field.catalog.item_ids[0],)}):
                device.share(before.model_copy(update=less))
                with refused(ConsentError, ReasonCode.SETTINGS_NARROWED):
                    device.answers.step_session(content)
            device.share(before)
            repeated.append(phase)

    field.run(Meddling(field, after=forbid), rounds=1, **KNOWN, secure=ONE_STAGE)
    assert repeated == [ServerPhase.VECTORS]
    assert len(field.devices[1].ledger.list()) == 1


@pytest.mark.parametrize("restarts", [False, True], ids=["in one life", "restarted"])
def test_a_device_that_leaves_and_returns_still_remembers_its_sums(tmp_path: Path, restarts: bool) -> None:
    field = masked(tmp_path)
    rules = {"rounds": 2, **KNOWN, "secure": ONE_STAGE}
    field.run(Egress(field), **rules)
    old, home = field.federation, field.journal
    elsewhere = Federation.create("ef" * 16, "elsewhere", "fpl", dict(old.options), field.catalog)
    away = CoordinatorJournal.create(tmp_path / "elsewhere.db", elsewhere, field.catalog)

    def move(federation: Federation, journal: CoordinatorJournal) -> None:
        field.federation, field.journal = federation, journal
        for number in list(field.devices):
            device = field.devices[number]
            device.leave()
            journal.file.connection.execute(
                "UPDATE devices SET identity = ? WHERE number = ?", (device.identity, number)
            )
            device.join(journal.welcome, accepts={ReasonCode.NO_GUARANTEE})  # with a new key, as after every enrolment
            if restarts:
                field.restart(number - 1)

    for number, device in field.devices.items():
        assert away.members.add(bytes([number]), device.identity) == number
    move(elsewhere, away)
    field.run(Egress(field), **{**rules, "rounds": 1})
    assert [happened.state for happened in away.rounds.records()] == ["finished"]
    move(old, home)
    field.run(Egress(field), **{**rules, "rounds": 3})
    assert [happened.state for happened in home.rounds.records()] == ["finished"] * 3
    machine = field.devices[1]._masked._machine
    assert machine is not None
    assert machine.history.rounds == {0, 1, 2}, "leaving and returning does not reset what the device policy needs"
    assert [other.rounds for other in machine.history.others] == [{0}]
    away.close()
