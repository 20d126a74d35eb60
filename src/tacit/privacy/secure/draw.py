"""Who takes part is drawn so that everybody can check it and nobody can choose it.

At enrolment a device commits to the end of a hash chain. In round r it shows the link r steps before that end, its
ticket; nobody else knew it, and it had no choice. Together with the round's beacon the ticket decides whether the
device takes part. The beacon mixes a secret that the server committed to a round earlier with nonces of devices, so
neither side can steer it alone.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tacit.errors import ForgedError, GuardError

HASH_BYTES = 32


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
        """Return the ticket of round `number`, from 1 on; 0 is the anchor that is published at enrolment."""
        if not 0 <= number <= self.length:
            raise GuardError(f"A chain of {self.length} tickets has none for round {number}.", "Enrol anew.")
        link = self.secret
        for _ in range(self.length - number):
            link = _next(link)
        return link

    @property
    def anchor(self) -> bytes:
        """What is published at enrolment."""
        return self.ticket(0)


def check_ticket(ticket: bytes, number: int, known: bytes, known_number: int, sender: int) -> None:
    """Refuse a ticket of round `number` that does not lead to a link known from an earlier round (0: the anchor)."""
    link = ticket
    for _ in range(number - known_number):
        link = _next(link)
    if number <= known_number or link != known:
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


@dataclass(frozen=True)
class Directory:
    """What a device knows of others from elsewhere than the server: who has enrolled, and how many are drawn."""

    anchors: Mapping[bytes, bytes]  # identity -> anchor of her chain of tickets
    share: float = 1.0  # of all people, in each round


def check_draw(
    directory: Directory, number: int, beacon: bytes, cohort: Sequence[bytes], tickets: Sequence[bytes]
) -> None:
    """Refuse a cohort in which somebody has not enrolled or was not drawn for round `number`."""
    if len(tickets) != len(cohort):
        raise GuardError("The invitation shows no tickets: who was drawn cannot be checked.")
    for person, (identity, ticket) in enumerate(zip(cohort, tickets, strict=True)):
        if identity not in directory.anchors:
            raise GuardError(f"Person {person} of the cohort is nobody who has enrolled.")
        check_ticket(ticket, number, directory.anchors[identity], 0, person)
        if not is_drawn(ticket, beacon, directory.share):
            raise GuardError(f"Person {person} of the cohort was not drawn for round {number}.")
