"""Killed at any moment, a device never says two different things; a server that calls off unmasks nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import pytest

from helpers.refusals import refused
from helpers.secure_session import EASY, PHASES, Party
from helpers.small_federation import CHEAP, PASSPHRASE
from helpers.waiting import read_line, wait_for_process
from tacit.errors import AbortedError, OutOfTurnError, SecureSumError
from tacit.field.device.masked_rounds import DeviceFileJournal
from tacit.field.device.store import Store
from tacit.protocols.secure_aggregation.device import DevicePhase, SecureDevice
from tacit.protocols.secure_aggregation.identity import Identity
from tacit.protocols.secure_aggregation.journal import Record
from tacit.protocols.secure_aggregation.local_session import _answer
from tacit.protocols.secure_aggregation.messages import MaskedVector, Survivors, Unmasking
from tacit.protocols.secure_aggregation.server import ServerPhase
from tacit.reasons import ReasonCode


class Killed(BaseException):
    """The process is gone."""


class OnDisk:
    """The journal in a device's own file, each record in a transaction of its own; dies at one write if told to."""

    def __init__(self, path: Path, deadly: int = 0, where: str = "") -> None:
        self._store = Store.open(path, PASSPHRASE) if path.exists() else Store.create(path, PASSPHRASE, CHEAP)
        self._turns, self._deadly, self._where = DeviceFileJournal(self._store), deadly, where

    def records(self) -> list[Record]:
        return self._turns.records()

    def append(self, kind: int, content: bytes) -> None:
        self._deadly -= 1
        self._die("before")
        with self._store.transaction():
            self._turns.append(kind, content)
            self._die("within")
        self._die("after")

    def _die(self, where: str) -> None:
        if self._deadly == 0 and self._where == where:
            raise Killed

    def rewrite(self, records: Iterable[Record]) -> None:
        with self._store.transaction():
            self._turns.rewrite(records)

    def close(self) -> None:
        self._store.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "device.db"


def test_records_come_back_in_order(path: Path) -> None:
    journal = OnDisk(path)
    journal.append(1, b"one")
    journal.append(2, b"")
    journal.close()
    again = OnDisk(path)
    assert again.records() == [(1, b"one"), (2, b"")]
    again.rewrite([(3, b"new")])
    again.append(4, b"more")
    again.close()
    last = OnDisk(path)
    assert last.records() == [(3, b"new"), (4, b"more")]
    last.close()
    assert path.stat().st_mode & 0o077 == 0, "secrets are for their owner only"


def test_a_device_goes_on_from_its_journal_in_every_phase(path: Path) -> None:
    journal = OnDisk(path)
    party = Party.of(4, threshold=2, journals={0: journal})
    identity = party.devices[0].identity
    for phase in PHASES:
        party.server.receive(party.answer(0))
        last = party.devices[0]
        journal.close()
        journal = OnDisk(path)
        party.devices[0] = SecureDevice(identity, EASY, journal)
        assert party.devices[0].phase == phase + 1
        assert party.devices[0].last_answer == last.last_answer
        assert party.devices[0].history == last.history
        for person in (1, 2, 3):
            party.server.receive(party.answer(person))
        party.inbox = party.server.advance()
    assert party.is_right()
    party.devices[0].leave()
    journal.close()
    journal = OnDisk(path)
    later = SecureDevice(identity, EASY, journal)
    assert later.phase == DevicePhase.IDLE
    assert len(later.history.sums) == 1
    with refused(OutOfTurnError, ReasonCode.ROUND_REPEATED):
        later.advertise(party.server.invitation)
    journal.close()


@pytest.mark.parametrize("where", ["before", "within", "after"])
@pytest.mark.parametrize("at", range(1, 6))
def test_a_killed_device_never_sends_two_answers(path: Path, at: int, where: str) -> None:
    """At each write: die, come back, and meet a server that asks again, with the other survivors."""
    journal = OnDisk(path, at, where)
    party = Party.of(4, threshold=2, journals={0: journal})
    identity, context = party.devices[0].identity, party.server.context
    all_participants, fewer = frozenset(range(4)), frozenset({0, 1, 2})
    said: list[bytes] = []  # what left the device in all its lives
    killed = False
    for phase in PHASES:
        try:
            said.append(party.answer(0))
        except Killed:
            killed = True
            journal.close()
            journal = OnDisk(path)
            device = party.devices[0] = SecureDevice(identity, EASY, journal)
            if where == "after":
                assert device.phase == phase + 1
                said.append(device.last_answer)  # it was written, but not sent: it may leave now, as it is
            else:
                assert device.phase == phase
                said.append(party.answer(0))  # nothing had been written: it answers as if for the first time
            asked = [party.inbox[0]]
            if phase >= ServerPhase.CONFIRMATIONS:
                asked += [Survivors(people).encode(context, 4) for people in (all_participants, fewer)]
            for message, other in product(asked, PHASES):
                with pytest.raises(SecureSumError):
                    _answer(device, other, message, lambda: party.give(9))
        party.server.receive(party.devices[0].last_answer)
        for person in (1, 2, 3):
            party.server.receive(party.answer(person))
        party.inbox = party.server.advance()
    journal.close()
    assert killed
    vectors = {MaskedVector.decode(m, party.server.total.buffer.nbytes)[1].vector for m in said if m[1] == 6}
    assert len(vectors) == 1, "two vectors were masked in one round"
    kinds: dict[int, set[bool]] = {}
    for message in said:
        if message[1] == 10:
            for piece in Unmasking.decode(message)[1].pieces:
                kinds.setdefault(piece.participant, set()).add(piece.of_self_mask)
    assert all(len(kind) == 1 for kind in kinds.values()), "both shares of a neighbour were given away"
    assert len({m for m in said if m[1] == 8}) == 1, "two sets of survivors were confirmed"
    assert party.is_right()


CHILD = """
import sys
from pathlib import Path
from tacit.field.device.masked_rounds import DeviceFileJournal, MaskedRounds
from tacit.field.device.store import Store
from tacit.protocols.secure_aggregation.device import SecureDevice
from tacit.protocols.secure_aggregation.device_policy import DevicePolicy
from tacit.protocols.secure_aggregation.masks import Vector

store = Store.open(Path(sys.argv[1]), sys.argv[2])
policy = DevicePolicy(n_min=2, k_min=1, cool_down=0, d_min=0, corrupted=0)
device = SecureDevice(MaskedRounds(store).identity, policy, DeviceFileJournal(store))
print(int(device.phase), device.last_answer.hex(), flush=True)
for line in sys.stdin:
    verb, message, *data = line.split()
    given = [Vector(device.session.terms.layout.sizes, bytes.fromhex(one)) for one in data]
    with store.transaction():
        answer = getattr(device, verb)(bytes.fromhex(message), *given)
    print(answer.hex(), flush=True)
"""


@pytest.mark.slow
def test_a_device_killed_by_the_system_comes_back_as_the_same(path: Path) -> None:
    def start() -> tuple[subprocess.Popen[str], list[str]]:
        process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(path), PASSPHRASE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return process, read_line(process, "the device says who it is").split(" ")

    identity, store = Identity.fresh(), Store.create(path, PASSPHRASE, CHEAP)
    with store.transaction():
        store.put("identity", identity.secret)
    store.close()
    child, hello = start()
    others = [Identity.fresh() for _ in range(3)]
    party = Party.of(4, threshold=2, identities=[identity, *others])
    me = party.server.session.position(identity.public)
    verbs = dict(zip(PHASES, ("advertise", "share", "submit", "confirm", "unmask"), strict=True))
    for phase in PHASES:
        assert child.stdin is not None
        given = f" {party.give(me).tobytes().hex()}" if phase == ServerPhase.VECTORS else ""
        child.stdin.write(f"{verbs[phase]} {party.inbox[me].hex()}{given}\n")
        child.stdin.flush()
        answer = read_line(child, f"the device's answer in {phase.name}").strip()
        if phase in (ServerPhase.SHARES, ServerPhase.CONFIRMATIONS):
            child.send_signal(signal.SIGKILL)
            wait_for_process(child, "the device ends after SIGKILL")
            child, hello = start()
            assert int(hello[0]) == phase + 1
            assert hello[1].strip() == answer, "it came back with another answer"
        party.server.receive(bytes.fromhex(answer))
        for person in range(4):
            if person != me:
                party.server.receive(party.answer(person))
        party.inbox = party.server.advance()
    child.kill()
    wait_for_process(child, "the device ends after SIGKILL")
    assert party.is_right()


@pytest.mark.parametrize("phase", PHASES)
def test_a_server_that_calls_off_unmasks_nothing(phase: ServerPhase) -> None:
    party = Party.of(4, threshold=2).run(phase)
    message = party.answer(0)
    party.server.abort()
    assert party.server.phase == ServerPhase.ABORTED
    with pytest.raises(OutOfTurnError):
        party.server.advance()
    with pytest.raises(OutOfTurnError):
        party.server.receive(message)
    if party.server.survivors:
        assert not party.is_right(), "the sum is still masked"
    for device in party.devices:
        device.leave()
        assert device.phase == DevicePhase.IDLE


def test_a_server_never_unmasks_fewer_than_the_minimum() -> None:
    party = Party.of(5, threshold=3, n_min=4).run(ServerPhase.VECTORS)
    with refused(AbortedError, ReasonCode.TOO_MANY_DROPOUTS, left=3, needed=4, phase="vectors"):
        party.step(gone=[3, 4])
    assert party.server.phase == ServerPhase.ABORTED
