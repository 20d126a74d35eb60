"""Killed at any moment, a device never says two different things, and a server goes on or calls off."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path

import pytest
from party import EASY, PHASES, Party
from refusing import refused

from tacit.errors import AbortedError, OutOfTurnError, SecureSumError, StorageError
from tacit.privacy.secure.device import Device, Phase
from tacit.privacy.secure.identity import Identity
from tacit.privacy.secure.journal import File, Journal, Memory, Record
from tacit.privacy.secure.messages import Masked, Survivors, Unmasking
from tacit.privacy.secure.rehearsal import _answer
from tacit.privacy.secure.server import Server, Stand
from tacit.reasons import ReasonCode


class Killed(BaseException):
    """The process is gone."""


class Fragile:
    """A journal on disk whose process dies at one write: before it, within it, or right after it."""

    def __init__(self, inner: File, at: int, where: str) -> None:
        self.inner, self.at, self.where, self.was_torn = inner, at, where, inner.was_torn

    def records(self) -> list[Record]:
        return self.inner.records()

    def _die(self, act: Iterator[None]) -> None:
        self.at -= 1
        if self.at == 0 and self.where == "before":
            raise Killed
        list(act)
        if self.at == 0:
            if self.where == "within":
                os.truncate(self.inner.path, self.inner.path.stat().st_size - 3)
            raise Killed

    def append(self, kind: int, content: bytes) -> None:
        self._die(self.inner.append(kind, content) for _ in range(1))

    def rewrite(self, records: Iterable[Record]) -> None:
        self.inner.rewrite(records)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "device.journal"


def test_records_come_back_in_order(path: Path) -> None:
    journal = File(path)
    journal.append(1, b"one")
    journal.append(2, b"")
    journal.close()
    again = File(path)
    assert again.records() == [(1, b"one"), (2, b"")]
    again.rewrite([(3, b"new")])
    again.append(4, b"more")
    again.close()
    last = File(path)
    assert last.records() == [(3, b"new"), (4, b"more")]
    assert not last.was_torn
    assert path.stat().st_mode & 0o077 == 0, "secrets are for their owner only"


def test_every_cut_of_the_last_record_is_dropped_and_told(path: Path) -> None:
    journal = File(path)
    journal.append(1, b"kept")
    kept = path.stat().st_size
    journal.append(2, b"cut off")
    journal.close()
    whole = path.read_bytes()
    for size in range(kept + 1, len(whole)):
        path.write_bytes(whole[:size])
        cut = File(path)
        assert cut.was_torn
        assert cut.records() == [(1, b"kept")]
        cut.close()
        assert path.stat().st_size == kept


def test_a_damaged_record_in_the_middle_is_an_error(path: Path) -> None:
    journal = File(path)
    journal.append(1, b"first")
    journal.append(2, b"second")
    journal.close()
    data = bytearray(path.read_bytes())
    data[7] ^= 1
    path.write_bytes(data)
    with pytest.raises(StorageError, match="damaged at byte 0"):
        File(path)


def test_two_processes_cannot_speak_for_one_device(path: Path) -> None:
    held = File(path)
    with pytest.raises(StorageError, match="in use by another process"):
        File(path)
    held.close()
    File(path).close()


def test_a_device_goes_on_from_its_journal_in_every_phase(path: Path) -> None:
    party = Party.of(4, threshold=2, journals={0: File(path)})
    identity = party.devices[0].identity
    for phase in PHASES:
        party.server.receive(party.answer(0))
        last = party.devices[0]
        last.journal.close()  # type: ignore[attr-defined]
        party.devices[0] = Device(identity, EASY, File(path))
        assert party.devices[0].phase == phase + 1
        assert party.devices[0].last_answer == last.last_answer
        assert party.devices[0].history == last.history
        for person in (1, 2, 3):
            party.server.receive(party.answer(person))
        party.inbox = party.server.advance()
    assert party.is_right()
    party.devices[0].leave()
    party.devices[0].journal.close()  # type: ignore[attr-defined]
    later = Device(identity, EASY, File(path))
    assert later.phase == Phase.IDLE
    assert len(later.history.sums) == 1
    with refused(OutOfTurnError, ReasonCode.ROUND_REPEATED):
        later.advertise(party.server.invitation)


@pytest.mark.parametrize("where", ["before", "within", "after"])
@pytest.mark.parametrize("at", range(1, 6))
def test_a_killed_device_never_says_two_things(path: Path, at: int, where: str) -> None:
    """At each write: die, come back, and meet a server that asks again, with the other survivors."""
    journal: Journal = Fragile(File(path), at, where)
    party = Party.of(4, threshold=2, journals={0: journal})
    identity, context = party.devices[0].identity, party.server.context
    everybody, fewer = frozenset(range(4)), frozenset({0, 1, 2})
    said: list[bytes] = []  # what left the device in all its lives
    killed = False
    for phase in PHASES:
        try:
            said.append(party.answer(0))
        except Killed:
            killed = True
            os.close(journal.inner._file)  # type: ignore[attr-defined]
            device = party.devices[0] = Device(identity, EASY, File(path))
            if device.phase == phase:
                said.append(party.answer(0))  # nothing had been written: it answers as if for the first time
            elif device.phase == phase + 1:
                said.append(device.last_answer)  # it was written, but not sent: it may leave now, as it is
            asked = [party.inbox[0]]
            if phase >= Stand.CONFIRMATIONS:
                asked += [Survivors(people).encode(context, 4) for people in (everybody, fewer)]
            for message, other in product(asked, PHASES):
                with pytest.raises(SecureSumError):
                    _answer(device, other, message, lambda: party.give(9))
        except OutOfTurnError:
            assert killed, "it sits out what was cut off"
            assert party.devices[0].phase == Phase.IDLE
        if party.devices[0].phase == phase + 1:
            party.server.receive(party.devices[0].last_answer)
        for person in (1, 2, 3):
            if person in party.inbox:
                party.server.receive(party.answer(person))
        party.inbox = party.server.advance()
        party.inbox.setdefault(0, b"")
    assert killed
    vectors = {Masked.decode(m, party.server.total.buffer.nbytes)[1].vector for m in said if m[1] == 6}
    assert len(vectors) <= 1, "two vectors were masked in one round"
    kinds: dict[int, set[bool]] = {}
    for message in said:
        if message[1] == 10:
            for piece in Unmasking.decode(message)[1].pieces:
                kinds.setdefault(piece.person, set()).add(piece.of_self_mask)
    assert all(len(kind) == 1 for kind in kinds.values()), "both shares of a neighbour were given away"
    assert len({m for m in said if m[1] == 8}) <= 1, "two sets of survivors were confirmed"
    assert party.is_right()


CHILD = """
import sys
from pathlib import Path
from tacit.privacy.secure.device import Device
from tacit.privacy.secure.guards import Guards
from tacit.privacy.secure.identity import Identity
from tacit.privacy.secure.journal import File
from tacit.privacy.secure.masks import Vector

folder = Path(sys.argv[1])
guards = Guards(n_min=2, k_min=1, cool_down=0, d_min=0, corrupted=0)
device = Device(Identity.load(folder / "identity"), guards, File(folder / "journal"))
print(device.identity.public.hex(), int(device.phase), device.last_answer.hex(), flush=True)
for line in sys.stdin:
    verb, message, *data = line.split()
    request = bytes.fromhex(message)
    if verb == "submit":
        layout = device.session.terms.layout
        print(device.submit(request, Vector(layout.sizes, bytes.fromhex(data[0]))).hex(), flush=True)
    else:
        print(getattr(device, verb)(request).hex(), flush=True)
"""


@pytest.mark.slow
def test_a_device_killed_by_the_system_comes_back_as_the_same(tmp_path: Path) -> None:
    def start() -> tuple[subprocess.Popen[str], list[str]]:
        process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        return process, process.stdout.readline().split(" ")

    child, hello = start()
    identity = Identity.load(tmp_path / "identity")
    assert hello[0] == identity.public.hex()
    others = [Identity.fresh() for _ in range(3)]
    party = Party.of(4, threshold=2, identities=[identity, *others])
    me = party.server.session.position(identity.public)
    verbs = dict(zip(PHASES, ("advertise", "share", "submit", "confirm", "unmask"), strict=True))
    for phase in PHASES:
        assert child.stdin is not None
        assert child.stdout is not None
        given = f" {party.give(me).tobytes().hex()}" if phase == Stand.VECTORS else ""
        child.stdin.write(f"{verbs[phase]} {party.inbox[me].hex()}{given}\n")
        child.stdin.flush()
        answer = child.stdout.readline().strip()
        if phase in (Stand.SHARES, Stand.CONFIRMATIONS):
            child.send_signal(signal.SIGKILL)
            child.wait()
            child.stdin.close()
            child.stdout.close()
            child, hello = start()
            assert int(hello[1]) == phase + 1
            assert hello[2].strip() == answer, "it came back with another answer"
        party.server.receive(bytes.fromhex(answer))
        for person in range(4):
            if person != me:
                party.server.receive(party.answer(person))
        party.inbox = party.server.advance()
    child.kill()
    child.wait()
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.close()
    child.stdout.close()
    assert party.is_right()


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("answered", [1, 3])
def test_a_killed_server_goes_on_where_it_was(tmp_path: Path, phase: Stand, answered: int) -> None:
    path = tmp_path / "server.journal"
    party = Party.of(4, threshold=2, server_journal=File(path)).run(phase)
    for person in range(answered):
        party.server.receive(party.answer(person))
    party.server._journal.close()  # type: ignore[attr-defined]
    party.server = Server.resume(File(path))
    assert party.server.stand == phase
    assert party.server.answered == frozenset(range(answered))
    for person in range(answered, 4):
        party.server.receive(party.answer(person))
    party.inbox = party.server.advance()
    party.run()
    assert party.is_right()


@pytest.mark.parametrize("where", ["before", "within", "after"])
def test_a_server_killed_at_any_write_goes_on(tmp_path: Path, where: str) -> None:
    """Three people, five phases: fifteen messages and five ends of phases are written, and it dies at each of them."""
    for at in range(1, 21):
        path = tmp_path / f"{at}.journal"
        party = Party.of(3, threshold=2, server_journal=File(path))
        party.server._journal = Fragile(party.server._journal, at, where)  # type: ignore[arg-type]
        killed = 0
        for phase in PHASES:
            for person in range(3):
                message = party.answer(person)
                try:
                    party.server.receive(message)
                except Killed:
                    killed += 1
                    party.server = _resumed(party.server)
                    if person not in party.server.answered:  # nothing was kept: she was not answered, and repeats
                        party.server.receive(party.devices[person].last_answer)
            try:
                party.inbox = party.server.advance()
            except Killed:
                killed += 1
                party.server = _resumed(party.server)
                assert party.server.stand in (phase, phase + 1)
                if party.server.stand == phase:
                    party.inbox = party.server.advance()
                else:  # closed, and not told: the carrier asks for the same messages again
                    party.inbox = _told_again(party.server)
        assert killed == 1
        assert party.is_right()
        party.server._journal.close()  # type: ignore[attr-defined]


def _resumed(server: Server) -> Server:
    fragile = server._journal
    assert isinstance(fragile, Fragile)
    os.close(fragile.inner._file)
    return Server.resume(File(fragile.inner.path))


def _told_again(server: Server) -> dict[int, bytes]:
    """Return what the last closed phase had to tell, from the records alone."""
    before = Memory()
    before.rewrite(server._journal.records()[:-1])
    return Server.resume(before).advance()


@pytest.mark.parametrize("phase", PHASES)
def test_a_server_may_call_off_after_a_crash_and_then_unmasks_nothing(tmp_path: Path, phase: Stand) -> None:
    path = tmp_path / "server.journal"
    party = Party.of(4, threshold=2, server_journal=File(path)).run(phase)
    party.server._journal.close()  # type: ignore[attr-defined]
    journal = File(path)
    server = Server.resume(journal)
    server.abort()
    with pytest.raises(OutOfTurnError):
        server.advance()
    journal.close()
    again = Server.resume(File(path))
    assert again.stand == Stand.ABORTED
    with pytest.raises(OutOfTurnError):
        again.receive(party.answer(0))
    for device in party.devices:
        device.leave()
        assert device.phase == Phase.IDLE


def test_a_server_never_unmasks_fewer_than_the_minimum() -> None:
    party = Party.of(5, threshold=3, n_min=4).run(Stand.VECTORS)
    with refused(AbortedError, ReasonCode.TOO_MANY_DROPOUTS, left=3, needed=4, phase="vectors"):
        party.step(gone=[3, 4])
    assert party.server.stand == Stand.ABORTED


def test_an_empty_journal_holds_no_session() -> None:
    with pytest.raises(StorageError, match="no session"):
        Server.resume(Memory())
