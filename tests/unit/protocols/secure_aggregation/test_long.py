"""The long recipes: a thousand lying servers, a hundred thousand messages again (`make fuzz`), and a taste of each."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from helpers.noise import uniform_p
from helpers.secure_session import EASY, PHASES, Party, plain_sum, terms, vector
from tacit.errors import DevicePolicyError, ForgedError, OutOfTurnError, SecureSumError
from tacit.protocols.secure_aggregation.context import Session
from tacit.protocols.secure_aggregation.device import DevicePhase, SecureDevice
from tacit.protocols.secure_aggregation.encoding import rows_layout
from tacit.protocols.secure_aggregation.identity import Identity
from tacit.protocols.secure_aggregation.journal import MemoryJournal
from tacit.protocols.secure_aggregation.local_session import _answer
from tacit.protocols.secure_aggregation.masks import Vector, mask
from tacit.protocols.secure_aggregation.messages import (
    Advert,
    Codes,
    MaskedVector,
    Roster,
    SealedShares,
    SessionInvitation,
    ShareInbox,
    Shares,
    Survivors,
    Unmasking,
)
from tacit.protocols.secure_aggregation.pairing import own_mask
from tacit.protocols.secure_aggregation.server import ServerPhase
from tacit.updates import Ring

LAYOUT = rows_layout({"items": (250, 8)}, Ring(bits=32), 8)
LIES = ("terms", "roster", "inbox", "survivors")


class Liar:
    """A server that keeps no rule: it tells each device what it likes, as far as devices listen."""

    def __init__(self, lie: str, seed: int) -> None:
        self.lie, self.chance = lie, np.random.default_rng([seed, LIES.index(lie)])
        self.n_participants = int(self.chance.integers(5, 9))
        self.degree = 4 if self.n_participants > 5 and self.chance.random() < 0.4 else self.n_participants - 1
        self.threshold = self.degree // 2 + 1
        people = sorted((Identity.fresh() for _ in range(self.n_participants)), key=lambda one: one.public)
        self.devices = [SecureDevice(one, EASY) for one in people]
        self.sessions = [self._session([one.public for one in people], 0) for _ in people]
        if lie == "terms":
            other = int(self.chance.integers(1, 7))
            for person in self._some():
                self.sessions[person] = self._session([one.public for one in people], other)
        self.near = [session.graph.neighbours(at) for at, session in enumerate(self.sessions)]
        self.vectors: dict[int, bytes] = {}
        self.seeds: dict[int, bytes] = {}
        self.told: dict[int, frozenset[int]] = {}
        self.given: dict[int, dict[int, bool]] = {}  # of whom -> by whom -> of her own mask

    def _session(self, cohort: list[bytes], other: int) -> Session:
        options = (
            {},
            {"model": b"\7" * 32},
            {"round": 2},
            {"task": "b"},
            {"spare": 1},
            {"n_min": 3},
            {"beacon": b"\1" * 32},
        )[other]
        usual = {"layout": LAYOUT, "degree": self.degree, "threshold": self.threshold, "server_key": b"\1" * 32}
        return Session.of(terms(self.n_participants, **{**usual, **options}), cohort)

    def _some(self) -> list[int]:
        """Some people, not all of them."""
        size = int(self.chance.integers(1, self.n_participants))
        return sorted(self.chance.choice(self.n_participants, size, replace=False).tolist())

    def _told(self, truth: Mapping[int, frozenset[int]], lie: str) -> dict[int, frozenset[int]]:
        """Return what each person is told of who is there: if this is the lie, some are told of fewer than others."""
        told = dict(truth)
        if self.lie == lie and len(truth) > 1:
            order = self.chance.permutation(sorted(truth)).tolist()
            for person in order[: int(self.chance.integers(1, len(truth)))]:
                others = sorted(truth[person] - {person})
                gone = self.chance.choice(others, int(self.chance.integers(1, 3)), replace=False).tolist()
                told[person] = truth[person] - set(gone)
        return told

    def run(self) -> None:
        """Go as far as the devices do."""
        everybody = frozenset(range(self.n_participants))
        adverts = {}
        for at, device in enumerate(self.devices):
            adverts[at] = Advert.decode(device.advertise(SessionInvitation(self.sessions[at]).encode()))[1]
        there = self._told(dict.fromkeys(range(self.n_participants), everybody), "roster")
        shares = {}
        for at, device in enumerate(self.devices):
            shown = tuple(adverts[other] for other in sorted(self.near[at] & there[at]))
            message = Roster(there[at], shown).encode(self.sessions[at].context, self.n_participants)
            if (answer := _heard(lambda device=device, message=message: device.share(message))) is not None:
                shares[at] = {entry.participant: entry for entry in Shares.decode(answer)[1].entries}
        dealt = {
            at: frozenset(other for other in shares if at in shares[other] or other not in self.near[at]) | {at}
            for at in shares
        }
        sharing = self._told(dealt, "inbox")
        for at in shares:
            boxes = [SealedShares(o, *shares[o][at][1:]) for o in sorted(self.near[at] & there[at] & sharing[at])]
            context = self.sessions[at].context
            message = ShareInbox(sharing[at], tuple(boxes)).encode(context, self.n_participants)
            sent = _heard(lambda at=at, message=message: self.devices[at].submit(message, vector(LAYOUT, at)))
            if sent is not None:
                self.vectors[at] = MaskedVector.decode(sent, Vector(LAYOUT.sizes).buffer.nbytes)[1].vector
        self._unmask()

    def _unmask(self) -> None:
        arrived = frozenset(self.vectors)
        codes: dict[int, dict[int, bytes]] = {}
        self.told = self._told(dict.fromkeys(arrived, arrived), "survivors")
        for at in arrived:
            message = Survivors(self.told[at]).encode(self.sessions[at].context, self.n_participants)
            answer = _heard(lambda at=at, message=message: self.devices[at].confirm(message))
            if answer is not None:
                codes[at] = dict(Codes.decode_sent(answer)[2].entries)
        for at in codes:
            fitting = [o for o in sorted(codes) if at in codes[o] and o in codes[at] and self.told[o] == self.told[at]]
            passed = Codes(tuple((other, codes[other][at]) for other in fitting)).encode(self.sessions[at].context)
            answer = _heard(lambda at=at, passed=passed: self.devices[at].unmask(passed))
            if answer is not None:
                said = Unmasking.decode(answer)[1]
                self.seeds[at] = said.seed
                for piece in said.pieces:
                    self.given.setdefault(piece.participant, {})[at] = piece.of_self_mask

    def sees_through(self) -> list[int]:
        """Return whose two masks could both be taken away: nobody's, ever."""
        seen = []
        for person in range(self.n_participants):
            kinds = list(self.given.get(person, {}).values())
            knows_own = person in self.seeds or kinds.count(True) >= self.threshold
            if knows_own and kinds.count(False) >= self.threshold:
                seen.append(person)
        return seen

    def total(self) -> bytes:
        """Return the best sum it can make: all vectors, without the own masks whose seeds were given or rebuilt."""
        total, known = Vector(LAYOUT.sizes), dict(self.seeds)
        for at, sent in self.vectors.items():
            total.add(sent)
            state = self.devices[at]._state
            if list(self.given.get(at, {}).values()).count(True) >= self.threshold and state is not None:
                known[at] = state.seed
        mask(total, [], [own_mask(self.sessions[at].context, at, seed) for at, seed in known.items()])
        return total.tobytes()


def _heard(ask) -> bytes | None:  # type: ignore[no-untyped-def]
    try:
        answer: bytes = ask()
    except (ForgedError, DevicePolicyError, OutOfTurnError):
        return None
    return answer


def lied(lie: str, times: int) -> dict[str, int]:
    """Let many servers lie; return how often they got nothing, noise, or the sum they would have got anyway."""
    found = {"nothing": 0, "noise": 0, "whole sum": 0}
    lowest = 1.0
    for seed in range(times):
        liar = Liar(lie, seed)
        liar.run()
        assert not liar.sees_through(), f"seed {seed}: both masks of a person could be removed"
        if not liar.vectors or not liar.seeds:
            found["nothing"] += 1
            continue
        if liar.total() == plain_sum(LAYOUT, sorted(liar.vectors)):  # enough people had been told the same
            assert lie != "terms"
            assert len(liar.vectors) > liar.threshold
            found["whole sum"] += 1
        else:
            lowest = min(lowest, uniform_p(np.frombuffer(liar.total(), np.uint32)))
            found["noise"] += 1
    assert lowest > 1e-6, "what is left does not look like noise"
    return found


@pytest.mark.parametrize("lie", LIES)
def test_a_malicious_server_gets_noise_or_nothing(lie: str) -> None:
    assert sum(lied(lie, 12).values()) == 12


@pytest.mark.fuzz
@pytest.mark.parametrize("lie", LIES)
def test_a_thousand_malicious_servers(lie: str) -> None:
    found = lied(lie, 1000)
    print(lie, found)
    assert sum(found.values()) == 1000


def test_the_malicious_server_would_get_the_sum_if_it_were_honest() -> None:
    """The harness works: told the same, devices unmask."""
    liar = Liar("terms", 0)
    liar.sessions = [liar.sessions[0]] * liar.n_participants
    liar.near = [liar.sessions[0].graph.neighbours(at) for at in range(liar.n_participants)]
    liar.run()
    assert liar.total() == plain_sum(LAYOUT, range(liar.n_participants))


# --- the same messages again -----------------------------------------------------------------------------------------


def stored(party: Party) -> list[bytes]:
    """Run a session to its end and return every message of it."""
    kept = []
    for _ in PHASES:
        kept += list(party.inbox.values())
        answers = [party.answer(person) for person in sorted(party.inbox)]
        for answer in answers:
            party.server.receive(answer)
        kept += answers
        party.inbox = party.server.advance()
    return kept


def replayed(times: int) -> int:
    """Throw stored messages at a server and a device in every phase, before and after restarts; none may count."""
    chance = np.random.default_rng(11)
    first = Party.of(4)
    people = [device.identity for device in first.devices]
    pool = stored(first)
    for other in ({"round": 1, "task": "another"}, {"round": 1, "model": b"\1" * 32}, {"round": 0}):
        pool += stored(Party.of(4, identities=people, **other))
    journals = {at: MemoryJournal() for at in range(4)}
    party = Party.of(4, identities=people, journals=journals, round=5)
    accepted = 0
    for phase in PHASES:
        answers = {person: party.answer(person) for person in sorted(party.inbox)}
        for part in range(2):  # as things are, and after a restart of all devices
            if part:
                party.devices = [SecureDevice(one, EASY, journals[at]) for at, one in enumerate(people)]
            state = party.server.answered, [(one.phase, one.history) for one in party.devices]
            for at in chance.integers(len(pool), size=times // (2 * len(PHASES))).tolist():
                accepted += _counts(party, pool[at], phase, int(chance.integers(5)))
            assert state == (party.server.answered, [(one.phase, one.history) for one in party.devices])
        pool += [*party.inbox.values(), *answers.values()]  # of this very session: late and twice from now on
        for answer in answers.values():
            party.server.receive(answer)
        party.inbox = party.server.advance()
    assert party.is_right()
    return accepted


def _counts(party: Party, message: bytes, phase: ServerPhase, to: int) -> bool:
    """Say whether a server (4) or a device took a message that it should not."""
    try:
        if to == 4:
            party.server.receive(message)
        else:
            _answer(party.devices[to], PHASES[message[-1] % 5], message, lambda: party.give(to))
    except SecureSumError:
        return False
    return True


def test_nothing_that_was_stored_counts_again() -> None:
    assert replayed(2000) == 0


@pytest.mark.fuzz
def test_a_hundred_thousand_stored_messages() -> None:
    assert replayed(100_000) == 0


def test_everybody_may_leave_at_once_and_nothing_is_unmasked() -> None:
    """A third of a cohort falls silent in one phase: the sum is right, or nothing of it can be read."""
    for phase in PHASES:
        party = Party.of(9, threshold=5)
        try:
            party.run(leaves=dict.fromkeys((0, 4, 8), phase))
        except SecureSumError:
            assert party.server.phase == ServerPhase.ABORTED
            assert not party.is_right()
        else:
            assert party.is_right()
        for device in party.devices:
            device.leave()
            assert device.phase == DevicePhase.IDLE
