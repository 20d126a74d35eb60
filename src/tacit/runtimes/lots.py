"""Whom tickets draw, in a simulation: everybody's chain, and the beacon of each round, keyed so that runs repeat.

In the field chains and nonces come from the system's entropy on each device, and the server's secrets from its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.secure.draw import Chain, Directory, Drawn, beacon_of, commitment, is_drawn, nonce_of
from tacit.privacy.secure.identity import Identity
from tacit.random import Key


class Lots:
    """The draws of one simulation, with a `share` of `n_people` in each of so many rounds on average."""

    def __init__(self, key: Key, n_people: int, rounds: int, share: float) -> None:
        self.key, self.n_people, self.rounds, self.share = key, n_people, rounds, share
        self._last: tuple[int, bytes, Drawn] | None = None
        self._chains = [Chain(self._secret("chain", person), rounds) for person in range(n_people)]

    def _secret(self, *names: str | int) -> bytes:
        return hashlib.sha256(int(self.key.child(*names).word).to_bytes(8, "little")).digest()

    def _round(self, number: int) -> tuple[bytes, Drawn]:
        """Return the beacon of a round, where everybody adds a nonce, and what shows it with everybody's ticket."""
        if self._last is not None and self._last[0] == number:
            return self._last[1:]
        tickets = tuple(chain.ticket(number) for chain in self._chains)
        secret, nonces = self._secret("server", number), tuple(nonce_of(ticket) for ticket in tickets)
        beacon = beacon_of(secret, commitment(secret), nonces)
        self._last = (number, beacon, Drawn(secret, nonces, tickets))
        return self._last[1:]

    def beacon(self, number: int) -> bytes:
        """Return the beacon of a round."""
        return self._round(number)[0]

    def drawn(self, number: int) -> NDArray[np.int64]:
        """Return the positions of those who take part in a round, ascending."""
        beacon, everybody = self._round(number)
        return np.flatnonzero([is_drawn(ticket, beacon, self.share) for ticket in everybody.tickets])

    def shown(self, people: Sequence[int], number: int) -> Drawn:
        """Return what shows that these people were drawn, in their order."""
        everybody = self._round(number)[1]
        return replace(everybody, tickets=tuple(everybody.tickets[person] for person in people))

    @cached_property
    def identities(self) -> list[Identity]:
        """Everybody's signing key, for rounds in which messages are really made."""
        return [Identity.fresh() for _ in range(self.n_people)]

    @cached_property
    def directory(self) -> Directory:
        """Who has enrolled and what the server promised, as each device knows it."""
        anchors = {one.public: chain.anchor for one, chain in zip(self.identities, self._chains, strict=True)}
        promises = {number: commitment(self._secret("server", number)) for number in range(self.rounds)}
        return Directory(anchors, promises, self.share)
