"""The participant lottery in a simulation: every client's chain, and each round's beacon, keyed so that runs repeat.

In the field chains come from the system's entropy on each device, and the server's secrets from its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tacit.protocols.secure_aggregation.draw import (
    Board,
    Chain,
    Directory,
    DrawProof,
    Link,
    beacon_of,
    commitment,
    is_drawn,
    least_drawn,
    nonce_of,
)
from tacit.protocols.secure_aggregation.identity import Identity
from tacit.random import Key


class ParticipantLottery:
    """The draws of one simulation, with a `share` of `n_participants` in each of so many rounds on average."""

    def __init__(self, key: Key, n_participants: int, rounds: int, share: float) -> None:
        self.key, self.n_participants, self.rounds, self.share = key, n_participants, rounds, share
        self._chains = [Chain(self._secret("chain", participant), rounds) for participant in range(n_participants)]
        self._last: tuple[int, list[bytes], bytes] | None = None

    def _secret(self, *names: str | int) -> bytes:
        return hashlib.sha256(int(self.key.child(*names).word).to_bytes(8, "little")).digest()

    def _round(self, number: int) -> tuple[list[bytes], bytes]:
        """Return all tickets of a round, and its beacon."""
        if self._last is None or self._last[0] != number:
            tickets, secret = [chain.ticket(number) for chain in self._chains], self._secret("server", number)
            self._last = (number, tickets, beacon_of(secret, commitment(secret), map(nonce_of, tickets)))
        return self._last[1:]

    @property
    def least(self) -> int:
        """How many participants a cohort must have for devices to accept it."""
        return least_drawn(self.share, self.n_participants)

    def beacon(self, number: int) -> bytes:
        """Return the beacon of a round, to which every client adds a nonce."""
        return self._round(number)[1]

    def draw_participants(self, number: int) -> NDArray[np.int64]:
        """Return the positions of those who take part in a round, ascending."""
        tickets, beacon = self._round(number)
        return np.flatnonzero([is_drawn(ticket, beacon, self.share) for ticket in tickets])

    def prove_draw(self, participants: Sequence[int], number: int) -> DrawProof:
        """Return what shows that these participants were drawn, in their order."""
        tickets, _ = self._round(number)
        return DrawProof(self._secret("server", number), tuple(tickets[participant] for participant in participants))

    @cached_property
    def identities(self) -> list[Identity]:
        """The signing keys of all participants, for rounds in which messages are really made."""
        return [Identity.fresh() for _ in range(self.n_participants)]

    def directory(self, task: str, number: int) -> Directory:
        """Return what each device knows before a round: who has enrolled, their last links, and the board."""
        names, (tickets, _) = [one.public for one in self.identities], self._round(number)
        board = Board(commitment(self._secret("server", number)), dict(zip(names, map(nonce_of, tickets), strict=True)))
        before = [Link(chain.ticket(number - 1) if number else chain.anchor, number - 1) for chain in self._chains]
        return Directory(task, dict(zip(names, before, strict=True)), {number: board}, self.share)
