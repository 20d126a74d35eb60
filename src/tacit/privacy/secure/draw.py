"""Who takes part is drawn so that everybody can check it and nobody can choose it.

At enrolment a device commits to the end of a hash chain. In each round it shows the link before the one it showed, or
published, last: its ticket. Nobody else knew it, and the device had no choice. Together with the round's beacon the
ticket decides whether the device takes part. The beacon mixes a secret that the server committed to a round earlier
with a nonce of each device that is there, the hash of its ticket: the server must commit before it sees the nonces, and
whoever has a ticket can make no other nonce.

What remains: a server that sees all nonces may leave some of them out and try which beacon suits it, unless everybody
can read, from elsewhere, which nonces there were. Nonces of those in the cohort cannot be left out.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tacit.errors import ForgedError, GuardError
from tacit.privacy.secure.context import HASH_BYTES


def _next(link: bytes) -> bytes:
    return hashlib.sha256(b"tacit ticket" + link).digest()


@dataclass(frozen=True)
class Chain:
    """A device's tickets for `length` rounds, all from one secret."""

    secret: bytes = field(repr=False)
    length: int

    @classmethod
    def fresh(cls, length: int) -> Chain:
        """Make one from the system's entropy."""
        return cls(secrets.token_bytes(HASH_BYTES), length)

    def ticket(self, number: int) -> bytes:
        """Return the ticket of round `number`, from 0 on."""
        if not 0 <= number < self.length:
            raise GuardError(f"A chain of {self.length} tickets has none for round {number}.", "Enrol anew.")
        return self._link(self.length - 1 - number)

    @property
    def anchor(self) -> bytes:
        """What is published at enrolment: the link after the first round's ticket."""
        return self._link(self.length)

    @cached_property
    def _pebbles(self) -> list[bytes]:
        """Every so manieth link, so that tickets need not be made from the secret each time."""
        found, link = [self.secret], self.secret
        for steps in range(1, self.length + 1):
            link = _next(link)
            if steps % self._stride == 0:
                found.append(link)
        return found

    @property
    def _stride(self) -> int:
        return max(1, math.isqrt(self.length))

    def _link(self, steps: int) -> bytes:
        pebble, rest = divmod(steps, self._stride)
        link = self._pebbles[pebble]
        for _ in range(rest):
            link = _next(link)
        return link


def check_ticket(ticket: bytes, number: int, anchor: bytes, sender: int) -> None:
    """Refuse a ticket of round `number` that does not lead to the anchor of its chain."""
    link = ticket
    for _ in range(number + 1):
        link = _next(link)
    if link != anchor:
        raise ForgedError(f"The ticket of person {sender} is not of her chain.", "Leave her out.", [sender])


def is_drawn(ticket: bytes, beacon: bytes, share: float) -> bool:
    """Say whether the holder of a ticket takes part, where a `share` of all people should.

    >>> is_drawn(bytes(32), bytes(32), 1.0), is_drawn(bytes(32), bytes(32), 0.0)
    (True, False)
    """
    drawn = int.from_bytes(hashlib.sha256(b"tacit draw" + beacon + ticket).digest()[:8], "little")
    return drawn < int(share * 2**64)


def commitment(secret: bytes) -> bytes:
    """Return what the server publishes a round before it shows its secret."""
    return hashlib.sha256(b"tacit beacon" + secret).digest()


def beacon_of(secret: bytes, committed: bytes, nonces: Sequence[bytes]) -> bytes:
    """Return the beacon of a round from the devices' nonces and the secret that the server promised."""
    if commitment(secret) != committed:
        raise ForgedError("The server's part of the beacon is not the one that it committed to.", "Do not take part.")
    return hashlib.sha256(b"tacit mixed" + secret + b"".join(sorted(nonces))).digest()


def nonce_of(ticket: bytes) -> bytes:
    """Return what the holder of a ticket adds to the beacon, before the ticket itself may be seen."""
    return hashlib.sha256(b"tacit nonce" + ticket).digest()


@dataclass(frozen=True)
class Drawn:
    """What shows how a cohort was drawn: the server's part of the beacon, all nonces, and the cohort's tickets."""

    secret: bytes
    nonces: tuple[bytes, ...]
    tickets: tuple[bytes, ...]  # in the order of the cohort


@dataclass(frozen=True)
class Directory:
    """What a device knows from elsewhere than the invitation: who enrolled, how many are drawn, what was promised."""

    anchors: Mapping[bytes, bytes]  # identity -> anchor of her chain of tickets
    promises: Mapping[int, bytes]  # round -> what the server committed to, a round earlier
    share: float = 1.0  # of all people, in each round


def check_draw(directory: Directory, number: int, beacon: bytes, cohort: Sequence[bytes], drawn: Drawn | None) -> None:
    """Refuse a beacon that is not the promised one, and a cohort in which anybody has not enrolled or was not drawn."""
    if drawn is None or len(drawn.tickets) != len(cohort):
        raise GuardError("The invitation shows no tickets: who was drawn cannot be checked.")
    if number not in directory.promises:
        raise GuardError(f"What the server promised for round {number} is not known here.")
    if beacon_of(drawn.secret, directory.promises[number], drawn.nonces) != beacon:
        raise ForgedError("The beacon is not made of the nonces that are shown.", "Do not take part.")
    nonces = set(drawn.nonces)
    for person, (identity, ticket) in enumerate(zip(cohort, drawn.tickets, strict=True)):
        if identity not in directory.anchors:
            raise GuardError(f"Person {person} of the cohort is nobody who has enrolled.")
        check_ticket(ticket, number, directory.anchors[identity], person)
        if nonce_of(ticket) not in nonces:
            raise GuardError(f"The nonce of person {person} was left out of the beacon.")
        if not is_drawn(ticket, beacon, directory.share):
            raise GuardError(f"Person {person} of the cohort was not drawn for round {number}.")
