"""The coordinator and the devices of the field, in one process, make what the simulator makes: bit for bit."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from pathlib import Path

import numpy as np
import pytest

from helpers.loopback_federation import ROUNDS, Field
from helpers.refusals import refused
from helpers.town_federation import (
    assert_same,
    journal_of,
    simulated,
    who_answers,
)
from tacit.errors import FieldError, StorageError
from tacit.field.carriers.loopback import Loopback
from tacit.field.coordinator import Coordinator, CoordinatorJournal, RoundRules
from tacit.methods.base import names
from tacit.protocols.robust import RobustConfig
from tacit.protocols.rounds import RoundsConfig
from tacit.reasons import ReasonCode
from tacit.updates import Ring
from tacit.wire.messages import read_request

pytestmark = pytest.mark.slow


class Losing(Loopback):
    """Loses the answers that the simulator loses: every other one before it was made, the others on their way."""

    def __init__(self, field: Field, rules: RoundsConfig) -> None:
        super().__init__(field.devices)
        self.field, self.rules, self.n_lost = field, rules, 0

    def ask(self, requests: Mapping[int, bytes], seconds: float, most_bytes: int) -> Generator[tuple[int, bytes]]:
        number = read_request(self.field.federation, next(iter(requests.values()))).round
        there = who_answers(self.field.clients, self.rules, number)
        for device, content in requests.items():
            is_lost = device - 1 not in there
            self.n_lost += is_lost
            if is_lost and self.n_lost % 2:
                continue
            self.devices = self.field.devices
            for answer in super().ask({device: content}, seconds, most_bytes):
                if not is_lost:
                    yield answer
            if number == 1:
                self.field.restart(device - 1)  # a device that restarts between rounds


@pytest.mark.parametrize("method", names("federated"))
def test_calm_rounds(tmp_path: Path, method: str) -> None:
    field = Field(tmp_path, method)
    readable = {"secure": None} if field.federation.built.spec.client_tables else {}
    coordinator = field.run(**readable)
    assert_same(simulated(field.federation, field.clients, field.catalog, ROUNDS), coordinator.shared, field.people())
    for number, device in field.devices.items():
        assert device.membership is not None
        model = device.membership.model()
        assert model is not None
        assert (model.round, model.learn) == (ROUNDS, False)
        spec = field.federation.built.spec
        received = spec.received(coordinator.shared) | field.federation.download(coordinator.shared, number - 1)
        assert model.shared.keys() == received.keys(), "what the server remembers stays with it"
        assert all(np.array_equal(model.shared[name], array) for name, array in received.items())
        assert [entry.state for entry in device.ledger.list()] == ["sent"] * ROUNDS
        assert device.recommend(3)


@pytest.mark.parametrize("method", ["fpl", "fed-gmf"])
def test_with_devices_that_drop_out_and_restart(tmp_path: Path, method: str) -> None:
    field, rules = Field(tmp_path, method), RoundsConfig(dropout=0.35, minimum=3)
    carrier = Losing(field, rules)
    coordinator = field.run(carrier, minimum=3)
    assert carrier.n_lost >= 4
    expected = simulated(field.federation, field.clients, field.catalog, ROUNDS, rules)
    assert_same(expected, coordinator.shared, field.people())
    rounds = field.journal.rounds.records()
    assert [happened.lost for happened in rounds] == [
        5 - len(who_answers(field.clients, rules, number)) for number in range(ROUNDS)
    ]
    assert [happened.state for happened in rounds] == [
        "finished" if happened.answered >= 3 else "abandoned" for happened in rounds
    ]


def test_everything_restarts_between_rounds_and_a_narrow_ring(tmp_path: Path) -> None:
    field = Field(tmp_path, "fpl", Ring(bits=32, fraction=16))
    for number in range(ROUNDS):
        Coordinator(field.journal, RoundRules(rounds=number + 1, readable=True), Loopback(field.devices)).run()
        field.reopen()
    shared = field.journal.model()
    assert shared is not None
    shared |= field.federation.constants(field.catalog)
    assert_same(simulated(field.federation, field.clients, field.catalog, ROUNDS), shared, field.people())


def test_a_robust_rule_sees_what_the_simulator_lets_it_see(tmp_path: Path) -> None:
    field = Field(tmp_path, "fpl")
    coordinator = field.run(robust={"rule": "median", "groups": 0})
    rules = RoundsConfig(robust=RobustConfig(rule="median"))
    assert_same(
        simulated(field.federation, field.clients, field.catalog, ROUNDS, rules), coordinator.shared, field.people()
    )


class DeadError(Exception):
    """The coordinator is killed."""


class Killed(Loopback):
    """The coordinator dies after some answers of a round."""

    def __init__(self, field: Field, after: int) -> None:
        super().__init__(field.devices)
        self.after, self.seen = after, 0

    def ask(self, requests: Mapping[int, bytes], seconds: float, most_bytes: int) -> Generator[tuple[int, bytes]]:
        for answer in super().ask(requests, seconds, most_bytes):
            if self.seen == self.after:
                raise DeadError
            self.seen += 1
            yield answer


@pytest.mark.parametrize("method", ["fpl", "fed-gmf"])  # the server of the second remembers
def test_a_killed_coordinator_resumes_and_loses_no_finished_round(tmp_path: Path, method: str) -> None:
    field = Field(tmp_path, method)
    for after in range(7):  # in the first and in the second of two rounds
        with pytest.raises(DeadError):
            field.run(Killed(field, after))
        finished = len(field.journal.rounds.records())
        field.reopen()
        assert len(field.journal.rounds.records()) == finished
    coordinator = field.run()
    assert_same(simulated(field.federation, field.clients, field.catalog, ROUNDS), coordinator.shared, field.people())
    for device in field.devices.values():
        entries = device.ledger.list()
        assert [entry.round for entry in entries] == list(range(ROUNDS)), "a round was released twice"


def test_over_selection_takes_the_first_and_the_others_go_on_as_if_never_asked(tmp_path: Path) -> None:
    field = Field(tmp_path, "fpl")
    field.run(clients_per_round=2, over_selection=1.0)
    for happened in field.journal.rounds.records():
        assert (happened.asked, happened.answered, happened.state) == (4, 2, "finished")
        assert (happened.called_off, happened.lost) == (2, 0), "they were not waited for, which is not their loss"
    for course in field.journal.rounds.stats().values():
        told = [(phase.name, phase.asked, phase.answered, phase.called_off) for phase in course.phases]
        assert told == [("waiting", 0, 0, 0), ("answers", 4, 2, 2), ("applying", 0, 0, 0)]
    counted = {device.number: device.counted for device in field.journal.members.devices()}
    assert max(counted.values()) == ROUNDS - 1


def test_a_quorum_is_not_awaited_for_ever_and_a_revoked_device_is_not_asked(tmp_path: Path) -> None:
    field = Field(tmp_path, "fpl")
    with refused(FieldError, ReasonCode.QUORUM_MISSED, here=5, needed=6):
        field.run(quorum=6, patience=0.3)
    assert field.journal.members.revoke(2)
    assert not field.journal.members.revoke(99)
    field.run()
    assert not field.devices[2].ledger.list()
    assert all(happened.asked == 4 for happened in field.journal.rounds.records())


class Lying(Loopback):
    """One device sends what it should not."""

    def ask(self, requests: Mapping[int, bytes], seconds: float, most_bytes: int) -> Generator[tuple[int, bytes]]:
        honest = dict(super().ask(requests, seconds, most_bytes))
        if 1 in honest:
            yield 1, honest[1][:-3]
        yield 2, honest[2]
        yield 2, honest[2]  # replayed
        yield 77, honest[4]  # it was not asked
        if 3 in honest:
            yield 3, b"x" * 100
        yield from ((device, content) for device, content in honest.items() if device > 3)


def test_what_is_malformed_replayed_or_unasked_is_refused_and_counted(tmp_path: Path) -> None:
    field = Field(tmp_path, "fpl")
    field.run(Lying(field.devices), strikes=ROUNDS + 1)
    assert [(happened.answered, happened.refused) for happened in field.journal.rounds.records()] == [(3, 4)] * ROUNDS


def test_a_device_that_lies_again_and_again_is_revoked_and_the_others_go_on(tmp_path: Path) -> None:
    field = Field(tmp_path, "fpl")
    field.run(Lying(field.devices), strikes=2)
    assert [happened.asked for happened in field.journal.rounds.records()] == [5, 5] + [3] * (ROUNDS - 2)
    assert [device.number for device in field.journal.members.devices() if device.revoked] == [1, 3]


def test_a_journal_is_refused_when_it_is_none(tmp_path: Path) -> None:
    field = Field(tmp_path, "fpl")
    with pytest.raises(StorageError, match="exists"):
        journal_of(tmp_path, field.federation, field.catalog)
    with pytest.raises(StorageError, match="no journal"):
        CoordinatorJournal.open(tmp_path / "none.db")
    with pytest.raises(StorageError, match="not a coordinator's journal"):
        CoordinatorJournal.open(tmp_path / "0.db")


def test_an_invitation_enrols_one_device_once(tmp_path: Path) -> None:
    journal = Field(tmp_path, "fpl").journal
    word = journal.invitations.make(expires=100)
    assert journal.members.enrol("wrong", b"key", now=50) is None
    assert journal.members.enrol(word, b"key", now=100) is None
    number = journal.members.enrol(word, b"key", now=50)
    assert number == 6
    assert journal.members.enrol(word, b"key", now=50) == 6, "the same device may ask again after a crash"
    assert journal.members.enrol(word, b"other", now=50) is None
    journal.members.revoke(6)
    assert journal.members.enrol(word, b"key", now=50) is None
