"""Peer sampling without a server, after Brahms (Bortnikov et al., 2009): random peers, also if some flood the network.

A peer keeps a view of others and some slots. In each period it pushes its own record to some of its view and pulls the
views of others. The next view is drawn from what was pushed, what was pulled, and the slots. Each slot keeps, of all
ids that it was ever shown, the one with the smallest keyed hash. That is a uniform choice among all ids, however often
some of them are repeated. A sender counts once in a period, and when too many push at once none of them enters the
view.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

SLOTS_PER_HASH = 8  # 64 bytes of BLAKE2b are eight draws
VIEW, BLOCKS = 16, 3
PUSHED, PULLED = 0.125, 0.125  # shares of a view; the rest comes from the slots
CONTACTS = 8  # peers that a peer pushes to in a period, and as many that it pulls from
AGAIN = 1  # peers that did not answer and are tried again in a period
TOLERANCE = 2.0  # times the expected number of pushes, before they are taken for a flood
MOST_KNOWN = 100_000  # ids that are remembered as hashed
MOST_NAMED = 40  # peers that a reply to a pull may name
NO_PEER = -1


@dataclass
class PeerSampler:
    """What a peer knows of others. Ids are numbers of peers."""

    me: int
    secret: bytes  # the key of the slots' hashes; who knows it can choose ids that win
    size: int = VIEW
    blocks: int = BLOCKS
    view: list[int] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)  # the winner of each slot, or NO_PEER
    pushes: list[int] = field(default_factory=list)  # senders of this period, each once
    pulls: list[int] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)  # peers that did not answer, until they push again
    introduced: list[int] = field(default_factory=list)  # the first peers, from an invitation
    _values: list[int] = field(default_factory=list, repr=False)
    _known: set[int] = field(default_factory=set, repr=False)

    def __post_init__(self) -> None:
        winners, n_slots = self.slots, self.blocks * SLOTS_PER_HASH
        self.slots, self._values = [NO_PEER] * n_slots, [2**64] * n_slots
        for peer in winners:
            if peer != NO_PEER:
                self.show([peer])

    def _hashes(self, peer: int) -> list[int]:
        """Return a draw of this peer for each slot."""
        found: list[int] = []
        for block in range(self.blocks):
            text = peer.to_bytes(8, "big") + bytes([block])
            digest = hashlib.blake2b(text, key=self.secret, digest_size=64).digest()
            found += [int.from_bytes(digest[at : at + 8], "big") for at in range(0, 64, 8)]
        return found

    def show(self, peers: Iterable[int]) -> None:
        """Show ids to the slots; repeats change nothing."""
        for peer in peers:
            if peer in self._known or peer == self.me or peer in self.gone:
                continue
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known.add(peer)
            for slot, value in enumerate(self._hashes(peer)):
                if value < self._values[slot]:
                    self.slots[slot], self._values[slot] = peer, value

    def introduce(self, peers: Iterable[int]) -> None:
        """Learn of the first peers, from an invitation."""
        self.introduced = [peer for peer in dict.fromkeys(peers) if peer != self.me][:MOST_NAMED]
        self._take_up(self.introduced)

    def _take_up(self, peers: list[int]) -> None:
        new = [peer for peer in peers if peer not in self.view]
        self.view = (self.view + new)[: self.size]
        self.show(new)

    def note_push(self, peer: int) -> None:
        """Note that a peer pushed its record: it counts once in a period, and it is there."""
        if peer not in self.pushes and peer != self.me and len(self.pushes) <= self.most_pushes:
            self.pushes.append(peer)

    def note_pull(self, peers: Sequence[int]) -> None:
        """Note the view that a peer returned; more than a view is cut."""
        named = [peer for peer in dict.fromkeys(peers) if peer != self.me and peer not in self.gone][:MOST_NAMED]
        self.pulls += named
        self.show(named)

    @property
    def most_pushes(self) -> int:
        """The number of pushes in a period above which they are taken for a flood."""
        return int(TOLERANCE * CONTACTS)

    def targets(self, draws: random.Random) -> tuple[list[int], list[int]]:
        """Return whom to push to and whom to pull from in this period."""
        pool = list(dict.fromkeys([*self.winners(), *self.view]))
        chosen = draws.sample(pool, min(2 * CONTACTS, len(pool)))
        n_again = max(AGAIN, CONTACTS - len(pool))  # who has few left tries many again
        again = draws.sample(sorted(self.gone), min(n_again, len(self.gone)))
        if len(pool) <= CONTACTS:  # so few that all are asked
            return chosen + again, chosen
        pushes, pulls = chosen[:CONTACTS], chosen[-CONTACTS:]
        # who was introduced to adversaries and one honest peer would lose that one among the names of the others
        first = draws.sample(self.introduced, min(1, len(self.introduced)))
        pulls += [peer for peer in first if peer not in pulls and peer not in self.gone]
        return pushes + again, pulls

    def end_period(self, draws: random.Random) -> None:
        """Draw the next view, and forget the pushes and pulls of this period."""
        is_flood = len(self.pushes) > self.most_pushes
        n_push, n_pull = round(PUSHED * self.size), round(PULLED * self.size)
        if is_flood:
            self.pushes = []
        self.gone -= set(self.pushes)
        self.show(self.pushes)
        pushed = draws.sample(self.pushes, min(n_push, len(self.pushes)))
        pulled = draws.sample(self.pulls, min(n_pull, len(self.pulls)))
        winners = self.winners()
        chosen = dict.fromkeys(pushed + pulled)
        others = draws.sample(winners, len(winners)) + draws.sample(self.view, len(self.view))
        for peer in others:
            if len(chosen) >= self.size:
                break
            chosen.setdefault(peer)
        self.view = [peer for peer in chosen if peer not in self.gone]
        self.pushes, self.pulls = [], []

    def winners(self) -> list[int]:
        """Return the peers in the slots, each once."""
        return [peer for peer in dict.fromkeys(self.slots) if peer != NO_PEER]

    def offer(self, n: int, draws: random.Random) -> list[int]:
        """Return up to `n` others in random order: of the slots, then of the view."""
        winners = self.winners()
        others = [peer for peer in self.view if peer not in winners]
        return (draws.sample(winners, len(winners)) + draws.sample(others, len(others)))[:n]

    def note_answer(self, peer: int) -> None:
        """Note that a peer answers; one that was given up is taken up again."""
        if peer in self.gone:
            self.gone.discard(peer)
            self._take_up([peer])

    def drop(self, peer: int) -> None:
        """Forget a peer that does not answer or left; its slots begin anew."""
        self.gone.add(peer)
        self.view = [other for other in self.view if other != peer]
        self.pulls = [other for other in self.pulls if other != peer]
        self.pushes = [other for other in self.pushes if other != peer]
        self._known.clear()
        for slot, winner in enumerate(self.slots):
            if winner == peer:
                self.slots[slot], self._values[slot] = NO_PEER, 2**64

    def as_json(self) -> dict[str, object]:
        """Return what must survive a restart."""
        return {"secret": self.secret.hex(), "view": self.view, "slots": self.slots, "gone": sorted(self.gone),
                "introduced": self.introduced}  # fmt: skip
