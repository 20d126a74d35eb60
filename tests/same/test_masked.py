"""Rounds under masks make what the simulator's secure sums make, and nothing readable leaves."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from pathlib import Path

import numpy as np
import pytest

from helpers.loopback_federation import CARE, KNOWN, Egress, Field, masked
from helpers.refusals import refused
from helpers.town_federation import BOLD, PASSPHRASE, assert_same, simulated
from tacit.errors import ConsentError, SecureSumError, WireError
from tacit.field.carriers.loopback import Loopback
from tacit.field.coordinator import Coordinator, RoundRules
from tacit.field.coordinator.round_policy import LOSSES
from tacit.field.device import Device
from tacit.lab.secure_rounds import SecureRoundsConfig
from tacit.methods.base import build_federated, names
from tacit.protocols.secure_aggregation import DevicePolicy, ServerPhase
from tacit.protocols.secure_aggregation.two_stage import SecureAggregationConfig
from tacit.reasons import ReasonCode
from tacit.updates import Ring
from tacit.wire.envelope import message_kind
from tacit.wire.messages import SecureRequest, read_secure_request, write_secure_request

pytestmark = pytest.mark.slow

ROUNDS = 3
MASKABLE = [name for name in names("federated") if not build_federated(name).spec.client_tables]


@pytest.mark.parametrize("two_stage", [False, True], ids=["one stage", "two stages"])
@pytest.mark.parametrize("method", MASKABLE)
def test_masked_rounds_are_the_simulators(tmp_path: Path, method: str, two_stage: bool) -> None:
    field = masked(tmp_path, method)
    carrier = Egress(field)
    coordinator = field.run(carrier, rounds=ROUNDS, **KNOWN, secure={**CARE, "two_stage": two_stage})
    expected = simulated(
        field.federation, field.clients, field.catalog, ROUNDS, secure=SecureRoundsConfig(**CARE, two_stage=two_stage)
    )
    assert_same(expected, coordinator.shared, field.people())
    assert [happened.state for happened in field.journal.rounds.records()] == ["finished"] * ROUNDS
    for device in field.devices.values():
        entries = device.ledger.list()
        assert len(entries) == ROUNDS * (2 if two_stage else 1)
        assert all(entry.masked and entry.state == "sent" for entry in entries)


def test_one_stage_is_the_plain_sum_with_devices_that_restart_in_every_phase(tmp_path: Path) -> None:
    field = masked(tmp_path, ring=Ring(bits=32, fraction=16))
    carrier = Egress(field)
    carrier.restarts = True
    coordinator = field.run(carrier, rounds=2, **KNOWN, secure={**CARE, "two_stage": False})
    assert_same(simulated(field.federation, field.clients, field.catalog, 2), coordinator.shared, field.people())


@pytest.mark.parametrize("phase", list(ServerPhase)[:5], ids=lambda phase: phase.name.lower())
def test_a_device_that_drops_out_in_any_phase_is_in_the_sum_or_as_if_never_asked(
    tmp_path: Path, phase: ServerPhase
) -> None:
    field = masked(tmp_path)
    coordinator = field.run(Egress(field, {(2, 0): phase}), rounds=2, **KNOWN, secure={**CARE, "two_stage": False})
    first = field.journal.rounds.records()[0]
    assert (first.state, first.answered) == ("finished", 5 if phase >= ServerPhase.CONFIRMATIONS else 4)
    assert np.isfinite(coordinator.shared["items"]).all()
    counted = {device.number: device.counted for device in field.journal.members.devices()}
    assert set(counted.values()) == {1}, "the device takes part again in the next round"


def test_nothing_readable_leaves(tmp_path: Path) -> None:
    field = masked(tmp_path)
    carrier = Egress(field)
    field.run(carrier, rounds=1, **KNOWN, secure={**CARE, "two_stage": False})
    device = field.devices[1]
    assert device.membership is not None
    private = device.membership.last_private()
    assert private is not None
    secrets = [str(entry.item).encode() for entry in device.history.list() if len(str(entry.item)) > 4]
    secrets += [field.catalog.title(item).encode() for item in range(field.catalog.n_items)]
    secrets += [private["p"].tobytes()[start : start + 8] for start in (0, 8)]
    for _, content in carrier.left:
        assert message_kind(content) == "secure-reply"
        assert not [secret for secret in secrets if secret in content]
    vectors = [content for who, content in carrier.left if len(content) > 2000]
    assert len(vectors) == 5
    for content in vectors:  # a masked vector looks like noise: all bytes occur about equally often
        counts = np.bincount(np.frombuffer(content[100:], np.uint8), minlength=256)
        assert ((counts - counts.mean()) ** 2 / counts.mean()).sum() < 400


def test_a_device_that_wants_masks_sends_nothing_readable_and_keeps_its_policy(tmp_path: Path) -> None:
    field = masked(tmp_path, device_policy=DevicePolicy())
    coordinator = Coordinator(field.journal, RoundRules(rounds=1, readable=True), Loopback(field.devices))
    assert coordinator.round().answered == 0
    strict = Coordinator(
        field.journal,
        RoundRules(rounds=2, secure=SecureAggregationConfig(**CARE), device_policy=BOLD),
        Loopback(field.devices),
    )
    assert strict.round().state == "abandoned", "five people are fewer than these devices want in a sum"
    assert not any(device.ledger.list() for device in field.devices.values())


class Replaying(Loopback):
    """A coordinator that asks again, otherwise, or out of turn."""

    def __init__(self, field: Field) -> None:
        super().__init__(field.devices)
        self.federation, self.seen = field.federation, list[bytes]()

    def ask(self, requests: Mapping[int, bytes], seconds: float, most_bytes: int) -> Generator[tuple[int, bytes]]:
        self.seen.append(requests[1])
        yield from super().ask(requests, seconds, most_bytes)


def test_replayed_and_forged_messages_are_refused_and_a_paused_device_answers_none(tmp_path: Path) -> None:
    field = masked(tmp_path)
    carrier = Replaying(field)
    field.run(carrier, rounds=1, **KNOWN, secure={**CARE, "two_stage": False})
    device = field.devices[1]
    before = device.readable()
    entries = len(device.ledger.list())
    for content in carrier.seen[:-1]:
        with pytest.raises((WireError, SecureSumError)):
            device.answers.step_session(content)
    again, entry = device.answers.step_session(carrier.seen[-1])
    assert (message_kind(again), entry) == ("secure-reply", None), "the last turn may be repeated, as it is"
    turn = read_secure_request(field.federation, carrier.seen[0])
    for forged in (
        SecureRequest(7, turn.phase, turn.content, turn.request),
        SecureRequest(1, ServerPhase.VECTORS, b""),
        SecureRequest(0, 9, b""),
        SecureRequest(0, turn.phase, turn.content[:-1], turn.request),
    ):
        with pytest.raises((WireError, SecureSumError)):
            device.answers.step_session(write_secure_request(field.federation, forged))
    assert device.readable() == before
    assert len(device.ledger.list()) == entries
    device.pause()
    with refused(ConsentError, ReasonCode.PAUSED):
        device.answers.step_session(carrier.seen[-1])


class DeadError(Exception):
    """The coordinator is killed."""


class Killed(Egress):
    """The coordinator dies in the middle of a sum."""

    def ask(self, requests: Mapping[int, bytes], seconds: float, most_bytes: int) -> Generator[tuple[int, bytes]]:
        if len(self.left) >= 10:
            raise DeadError
        yield from super().ask(requests, seconds, most_bytes)


def test_a_coordinator_killed_in_the_middle_repeats_the_round_and_goes_on(tmp_path: Path) -> None:
    field = masked(tmp_path)
    with pytest.raises(DeadError):
        field.run(Killed(field), rounds=2, **KNOWN, secure={**CARE, "two_stage": False})
    field.reopen()
    field.run(Egress(field), rounds=2, **KNOWN, secure={**CARE, "two_stage": False})
    assert [happened.state for happened in field.journal.rounds.records()] == ["abandoned", "finished", "finished"]
    for person in range(5):
        with Device.open(tmp_path / f"{person}.db", PASSPHRASE) as device:
            rounds = [entry.round for entry in device.ledger.list()]
            assert len(rounds) == len(set(rounds)), "a round was released twice"


class LosesOne(Loopback):
    """Loses one device between the stages of the first round, and for good."""

    def __init__(self, field: Field) -> None:
        super().__init__(field.devices)
        self.field, self.vectors, self.asked = field, 0, dict[int, set[int]]()

    def ask(self, requests: Mapping[int, bytes], seconds: float, most_bytes: int) -> Generator[tuple[int, bytes]]:
        turn = read_secure_request(self.field.federation, next(iter(requests.values())))
        self.asked.setdefault(turn.round, set()).update(requests)
        self.vectors += turn.phase == ServerPhase.VECTORS
        for device, answer in super().ask(requests, seconds, most_bytes):
            if device != 5 or self.vectors < 2:
                yield device, answer


def test_a_device_lost_between_the_stages_costs_a_repeat_without_it(tmp_path: Path) -> None:
    field = masked(tmp_path)
    carrier = LosesOne(field)
    field.run(carrier, rounds=2, **KNOWN, secure={**CARE, "k_min": 1})
    rounds = field.journal.rounds.records()
    assert (rounds[0].state, rounds[0].answered) == ("abandoned", 0)
    assert rounds[0].reason is not None
    assert rounds[0].reason.code in LOSSES
    assert (rounds[1].state, rounds[1].answered) == ("finished", 4)
    assert carrier.asked[1] == {1, 2, 3, 4}
    assert [happened.state for happened in rounds].count("finished") == 2
