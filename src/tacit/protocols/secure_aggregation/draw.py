"""The participant lottery: a random draw of participants that each device can verify.

At enrolment a device commits to the end of a hash chain. In each round it shows the link before the one it showed, or
published, last: its ticket. No other party knew it, and the device could not choose it. Together with the round's
beacon the ticket decides whether the device takes part. Before a round, every device that is present puts the hash of
its ticket on a board. A round earlier, the server put the hash of a secret there. The beacon is made of that secret and
of all the nonces on the board. The server had to commit before it saw them, and a ticket has only one nonce.

This holds if directory and board do not come from the server. Even then a server can cancel a round once it knows the
beacon, which costs it the round. It can also claim that a drawn device has dropped out, for up to half of those
expected, since the tickets of absent devices are not known.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tacit.errors import DevicePolicyError, ForgedError
from tacit.protocols.secure_aggregation.context import HASH_BYTES
from tacit.reasons import ReasonCode

MISSING = 0.5  # share of those drawn on average that may be missing


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
            raise DevicePolicyError.because(ReasonCode.NO_TICKET, round=number)
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


@dataclass(frozen=True)
class Link:
    """The last known link of a participant's chain: a ticket that it showed, or the anchor, of round -1."""

    value: bytes
    round: int = -1


def check_ticket(ticket: bytes, number: int, known: Link, sender: int) -> None:
    """Refuse a ticket of round `number` that does not lead to a link known from before."""
    link = ticket
    for _ in range(number - known.round):
        link = _next(link)
    if number <= known.round or link != known.value:
        raise ForgedError.because(ReasonCode.BAD_TICKET, sender=sender)


def is_drawn(ticket: bytes, beacon: bytes, share: float) -> bool:
    """Say whether the holder of a ticket takes part, where a `share` of all participants should.

    >>> is_drawn(bytes(32), bytes(32), 1.0), is_drawn(bytes(32), bytes(32), 0.0)
    (True, False)
    """
    drawn = int.from_bytes(hashlib.sha256(b"tacit draw" + beacon + ticket).digest()[:8], "little")
    return drawn < int(share * 2**64)


def commitment(secret: bytes) -> bytes:
    """Return what the server publishes a round before it shows its secret."""
    return hashlib.sha256(b"tacit beacon" + secret).digest()


def beacon_of(secret: bytes, committed: bytes, nonces: Iterable[bytes]) -> bytes:
    """Return the beacon of a round from the devices' nonces and the secret that the server promised."""
    if commitment(secret) != committed:
        raise ForgedError.because(ReasonCode.BAD_BEACON)
    return hashlib.sha256(b"tacit mixed" + secret + b"".join(sorted(nonces))).digest()


def nonce_of(ticket: bytes) -> bytes:
    """Return what the holder of a ticket adds to the beacon, before the ticket itself may be seen."""
    return hashlib.sha256(b"tacit nonce" + ticket).digest()


def least_drawn(share: float, n_there: int) -> int:
    """Return how many participants a cohort must have, where so many were there: the others may have dropped out."""
    return math.ceil((1.0 - MISSING) * share * n_there)


@dataclass(frozen=True)
class DrawProof:
    """What shows how a cohort was drawn: the server's part of the beacon, and the cohort's tickets."""

    secret: bytes
    tickets: tuple[bytes, ...]  # in the order of the cohort


@dataclass(frozen=True)
class Board:
    """What was public before the server revealed its secret for a round."""

    promise: bytes  # the server's commitment, of a round earlier
    nonces: Mapping[bytes, bytes]  # of all connected devices, by identity


@dataclass(frozen=True)
class Directory:
    """What a device knows of a task from elsewhere than its server."""

    task: str
    links: Mapping[bytes, Link]  # of all enrolled devices, by identity
    boards: Mapping[int, Board]  # by round
    share: float = 1.0  # of the participants who are there, in each round


def check_draw(
    directory: Directory, task: str, number: int, beacon: bytes, cohort: Sequence[bytes], drawn: DrawProof | None
) -> None:
    """Refuse a beacon that is not the board's, participants that were not drawn, and cohorts that lack many."""
    if drawn is None or len(drawn.tickets) != len(cohort):
        raise DevicePolicyError.because(ReasonCode.MISSING_TICKETS)
    board = directory.boards.get(number)
    if board is None or task != directory.task:
        raise DevicePolicyError.because(ReasonCode.UNKNOWN_BOARD, round=number)
    if beacon_of(drawn.secret, board.promise, board.nonces.values()) != beacon:
        raise ForgedError.because(ReasonCode.BAD_BEACON)
    for participant, (identity, ticket) in enumerate(zip(cohort, drawn.tickets, strict=True)):
        if identity not in directory.links or identity not in board.nonces:
            raise DevicePolicyError.because(ReasonCode.NOT_ENROLLED, participant=participant)
        check_ticket(ticket, number, directory.links[identity], participant)
        if nonce_of(ticket) != board.nonces[identity]:
            raise DevicePolicyError.because(ReasonCode.BAD_TICKET, sender=participant)
        if not is_drawn(ticket, beacon, directory.share):
            raise DevicePolicyError.because(ReasonCode.NOT_DRAWN, round=number, participant=participant)
    least = least_drawn(directory.share, len(board.nonces))
    if len(cohort) < least:
        raise DevicePolicyError.because(ReasonCode.COHORT_TOO_SMALL, cohort=len(cohort), needed=least)
