"""Servers that lie in secure sums, alone or with participants who tell them everything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from helpers.secure_session import EASY, terms, vector
from tacit.errors import DevicePolicyError, ForgedError, OutOfTurnError
from tacit.protocols.secure_aggregation.context import Session
from tacit.protocols.secure_aggregation.device import SecureDevice
from tacit.protocols.secure_aggregation.device_session import DeviceSession
from tacit.protocols.secure_aggregation.encoding import rows_layout
from tacit.protocols.secure_aggregation.identity import Identity
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
from tacit.protocols.secure_aggregation.pairing import code_between, own_mask, pair_mask, survivors_hash
from tacit.updates import Ring

LAYOUT = rows_layout({"items": (250, 8)}, Ring(bits=32), 12)
LIES = ("terms", "roster", "inbox", "survivors")


class LyingServer:
    """A server that keeps no rule: it tells each device what it likes, as far as devices listen."""

    def __init__(self, lie: str, seed: int) -> None:
        self.lie, self.chance = lie, np.random.default_rng([seed, LIES.index(lie)])
        self.colluders: frozenset[int] = frozenset()
        self._plan()
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
        self.given: dict[int, dict[int, bool]] = {}  # of whom -> by whom -> of their own mask

    def _plan(self) -> None:
        """Draw a cohort and its graph."""
        self.n_participants = int(self.chance.integers(5, 9))
        self.degree = 4 if self.n_participants > 5 and self.chance.random() < 0.4 else self.n_participants - 1
        self.threshold = self.degree // 2 + 1

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
            order = self.chance.permutation(sorted(truth.keys() - self.colluders)).tolist()
            for person in order[: int(self.chance.integers(1, len(truth)))]:
                others = sorted(truth[person] - {person})
                gone = self.chance.choice(others, int(self.chance.integers(1, 3)), replace=False).tolist()
                told[person] = truth[person] - set(gone)
        return told

    def run(self) -> None:
        """Go as far as the devices do."""
        all_participants = frozenset(range(self.n_participants))
        adverts = {}
        for at, device in enumerate(self.devices):
            adverts[at] = Advert.decode(device.advertise(SessionInvitation(self.sessions[at]).encode()))[1]
        there = self._told(dict.fromkeys(range(self.n_participants), all_participants), "roster")
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
            fitting = {
                other: codes[other][at]
                for other in codes
                if at in codes[other] and other in codes[at] and self.told[other] == self.told[at]
            } | self._colluders_codes(at, self.told[at] & codes[at].keys())
            passed = Codes(tuple(sorted(fitting.items()))).encode(self.sessions[at].context)
            answer = _heard(lambda at=at, passed=passed: self.devices[at].unmask(passed))
            if answer is not None:
                said = Unmasking.decode(answer)[1]
                self.seeds[at] = said.seed
                for piece in said.pieces:
                    self.given.setdefault(piece.participant, {})[at] = piece.of_self_mask

    def _colluders_codes(self, to: int, among: Iterable[int]) -> dict[int, bytes]:
        """Return the codes by which colluders confirm to a participant whatever list it was shown."""
        return {}

    def sees_through(self) -> list[int]:
        """Return the participants both of whose masks could be removed: there must be none."""
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


class Collusion(LyingServer):
    """A server that lies together with some participants: it has all their secrets, and they confirm anything."""

    def __init__(self, lie: str, seed: int, unsafe: bool = False) -> None:
        self._unsafe = unsafe
        super().__init__(lie, seed)

    def _plan(self) -> None:
        """Draw a cohort, its colluders and its graph; the threshold is what so many colluders take, or too low."""
        self.n_participants = int(self.chance.integers(6, 12))
        size = int(self.chance.integers(1, 1 + self.n_participants // 3))
        self.colluders = frozenset(self.chance.choice(self.n_participants, size, replace=False).tolist())
        self.degree = 6 if self.n_participants > 8 and self.chance.random() < 0.4 else self.n_participants - 1
        least = (self.degree + size) // 2 + 1
        self.threshold = self.degree // 2 + 1 if self._unsafe else min(self.degree, least)
        while not self._unsafe and 2 * self.threshold <= self.degree + len(self.colluders):
            self.colluders = frozenset(sorted(self.colluders)[1:])

    def _told(self, truth: Mapping[int, frozenset[int]], lie: str) -> dict[int, frozenset[int]]:
        """Tell some of the honest that one other is gone, every other time: both parts may then be asked for shares."""
        honest = sorted(truth.keys() - self.colluders)
        if self.lie != lie or len(honest) < 3 or self.chance.random() < 0.5:
            return super()._told(truth, lie)
        victim, *others = self.chance.permutation(honest).tolist()
        half = others[: int(self.chance.integers(1, len(others) + 1))]
        return dict(truth) | {one: truth[one] - {victim} for one in half}

    def _state(self, participant: int) -> DeviceSession:
        state = self.devices[participant]._state
        assert state is not None
        return state

    def _colluders_codes(self, to: int, among: Iterable[int]) -> dict[int, bytes]:
        session = self.sessions[to]
        listed = survivors_hash(session.context, self.told[to], session.n_participants)
        keys = {other: self._state(other).pair_keys for other in self.colluders & set(among)}
        return {other: code_between(keys[other][to].codes, other, to, listed) for other in keys if to in keys[other]}

    def _knows(self, participant: int, of_self_mask: bool) -> bool:
        """Say whether a secret of an honest participant can be rebuilt, or was given."""
        given = [kind for kind in self.given.get(participant, {}).values() if kind == of_self_mask]
        held = [other for other in self.colluders if participant in self._state(other).kept]
        return (of_self_mask and participant in self.seeds) or len(given) + len(held) >= self.threshold

    def opened(self) -> list[frozenset[int]]:
        """Return the smallest sets of honest participants whose sums can be read: masks left cancel, or are known."""
        honest = sorted(self.vectors.keys() - self.colluders)
        keys = {participant for participant in range(self.n_participants) if self._knows(participant, False)}
        groups, stuck = {participant: {participant} for participant in honest}, set[int]()
        for participant in honest:
            for other in self._state(participant).sharing - self.colluders:
                if {participant, other} & keys:
                    continue
                if other in groups and self._cancels(participant, other):
                    together = groups[participant] | groups[other]
                    groups |= dict.fromkeys(together, together)
                else:
                    stuck.add(participant)
        sets = {frozenset(group) for group in groups.values()}
        return [group for group in sets if not group & stuck and all(self._knows(one, True) for one in group)]

    def _cancels(self, one: int, other: int) -> bool:
        same = self.sessions[one].context == self.sessions[other].context
        return same and one in self._state(other).sharing

    def is_agreed(self, members: frozenset[int]) -> bool:
        """Say whether a sum is what its members agreed to, but for colluders, and for what these cut off in the graph.

        A colluder knows its masks: neighbours in a thin graph may hang together through colluders only.
        """
        for told in {self.told[one] for one in members if one in self.told}:
            rest = told - self.colluders
            part, edge = {min(members)}, {min(members)}
            while edge:
                edge = set().union(*(self.near[one] for one in edge)) & rest - part
                part |= edge
            if part == members:
                return True
        return False

    def sum_of(self, members: frozenset[int]) -> bytes:
        """Return the sum of some participants, with the masks that do not cancel among them taken away."""
        total, plus, minus = Vector(LAYOUT.sizes), list[bytes](), list[bytes]()
        for one in members:
            state, context = self._state(one), self.sessions[one].context
            total.add(self.vectors[one])
            minus.append(own_mask(context, one, state.seed))
            for other in state.sharing - members:
                key = pair_mask(state.mask_pair, one, state.adverts[other].mask_key, other, context)
                (minus if other > one else plus).append(key)
        mask(total, plus, minus)
        return total.tobytes()
