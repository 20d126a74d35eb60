"""The directory of a federation: a list of identities that only grows, signed by a witness who signs no other list.

The coordinator keeps the list. A witness, who is not the operator, has a copy of it, adds what is new and signs the
root of what it holds: a checkpoint. It signs one list only, so that no two devices can be shown different ones. Before
a device joins a secure sum, it checks

    that the whole cohort is in the directory, and was so some time ago            (an older checkpoint, and members)
    that the directory only grows                                                  (growth since the last one it saw)
    that the witness has looked at it lately                                       (the time of the newest checkpoint)

So invented identities must have been in the list, where the witness sees them, for as long as devices demand. Each
counts against the number that the witness accepts in a day. The directory is no proof that an identity belongs to a
human being.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import Field

from tacit.errors import DevicePolicyError, ForgedError
from tacit.protocols.merkle import HASH_BYTES, has_members, is_growth
from tacit.protocols.secure_aggregation.bytes import MOST_PARTICIPANTS, ByteReader, ByteWriter
from tacit.protocols.secure_aggregation.identity import KEY_BYTES, SIGNATURE_BYTES, Identity
from tacit.reasons import ReasonCode
from tacit.types import Config

LOG_BYTES = 16  # the id of a federation
CHECKPOINT_BYTES = LOG_BYTES + 8 + HASH_BYTES + 8 + SIGNATURE_BYTES
MOST_HASHES = 2**20
MOST_GROWTHS = 4096  # sizes from which growth is shown to one device
AHEAD = 3600  # seconds by which a witness's clock may be ahead of a device's
HOUR, DAY = 3600, 86_400


class DirectoryPolicy(Config):
    """What a device demands of a directory, where a witness is named."""

    settled_hours: float = Field(
        24.0, ge=0, le=8760, description="hours for which an identity must be in the directory before a sum with it"
    )
    fresh_days: float = Field(
        7.0, gt=0, le=3650, description="days after which the witness's last signature is too old"
    )


@dataclass(frozen=True)
class DirectoryCheckpoint:
    """A witness's statement: at this time the directory of a federation had so many identities, with this root."""

    log: bytes  # the federation's id
    size: int
    root: bytes
    time: int  # unix seconds, by the witness's clock
    signature: bytes = bytes(SIGNATURE_BYTES)

    @cached_property
    def statement(self) -> bytes:
        """What the witness signs."""
        writer = ByteWriter().raw(b"tacit directory").number(1, 1).raw(self.log)
        return writer.number(self.size, 8).raw(self.root).number(self.time, 8).done()

    @classmethod
    def sign(cls, witness: Identity, log: bytes, size: int, root: bytes, time: int) -> DirectoryCheckpoint:
        """Make one."""
        bare = cls(log, size, root, time)
        return cls(log, size, root, time, witness.sign(bare.statement))

    def is_signed_by(self, witness: bytes) -> bool:
        """Say whether the holder of a public key has signed it."""
        try:
            Ed25519PublicKey.from_public_bytes(witness).verify(self.signature, self.statement)
        except (InvalidSignature, ValueError):
            return False
        return True

    def write(self, writer: ByteWriter) -> None:
        """Add it to a message."""
        writer.raw(self.log).number(self.size, 8).raw(self.root).number(self.time, 8).raw(self.signature)

    def encode(self) -> bytes:
        """Return its bytes, by itself."""
        writer = ByteWriter()
        self.write(writer)
        return writer.done()

    @classmethod
    def decode(cls, data: bytes) -> DirectoryCheckpoint:
        """Read one that stands by itself."""
        reader = ByteReader(data, "A checkpoint", CHECKPOINT_BYTES)
        found = cls.read(reader)
        reader.end()
        return found

    @classmethod
    def read(cls, reader: ByteReader) -> DirectoryCheckpoint:
        """Take it out of a message."""
        log, size, root = reader.raw(LOG_BYTES), reader.number(8, 2**48), reader.raw(HASH_BYTES)
        return cls(log, size, root, reader.number(8, 2**48), reader.raw(SIGNATURE_BYTES))


@dataclass(frozen=True)
class DirectoryProof:
    """What shows one device that a cohort is in the directory."""

    newest: DirectoryCheckpoint
    settled: DirectoryCheckpoint  # an older one, or the same: the cohort was in the directory by then
    growth: tuple[bytes, ...]  # from the settled one to the newest
    seen: tuple[tuple[int, tuple[bytes, ...]], ...]  # sizes that the device may know, and growth from there
    places: tuple[int, ...]  # of the cohort's identities, in its order
    members: tuple[bytes, ...]  # that they are among the settled ones

    def encode(self) -> bytes:
        """Return its bytes."""
        writer = ByteWriter()
        self.newest.write(writer)
        self.settled.write(writer)
        writer.block(b"".join(self.growth)).number(len(self.seen), 4)
        for size, hashes in self.seen:
            writer.number(size, 8).block(b"".join(hashes))
        writer.block(b"".join(place.to_bytes(8, "little") for place in self.places))
        return writer.block(b"".join(self.members)).done()

    @classmethod
    def decode(cls, data: bytes) -> DirectoryProof:
        """Read it."""
        reader = ByteReader(data, "The proof of a directory")
        newest, settled, growth = DirectoryCheckpoint.read(reader), DirectoryCheckpoint.read(reader), _hashes(reader)
        seen = tuple((reader.number(8), _hashes(reader)) for _ in range(reader.number(4, MOST_GROWTHS)))
        places = reader.block(8 * MOST_PARTICIPANTS)
        members = _hashes(reader)
        reader.end()
        if len(places) % 8:
            raise reader.wrong("a list of places is cut off")
        cut = tuple(int.from_bytes(places[start : start + 8], "little") for start in range(0, len(places), 8))
        return cls(newest, settled, growth, seen, cut, members)


@dataclass(frozen=True)
class DirectoryGrowth:
    """What a coordinator gives a witness: the entries after those that it holds, and the root that they lead to."""

    size: int
    root: bytes
    entries: tuple[bytes, ...]

    def encode(self) -> bytes:
        """Return its bytes."""
        return ByteWriter().number(self.size, 8).raw(self.root).block(b"".join(self.entries)).done()

    @classmethod
    def decode(cls, data: bytes) -> DirectoryGrowth:
        """Read it."""
        reader = ByteReader(data, "The growth of a directory")
        size, root, body = reader.number(8, 2**48), reader.raw(HASH_BYTES), reader.block()
        reader.end()
        if len(body) % KEY_BYTES:
            raise reader.wrong("a list of identities is cut off")
        return cls(size, root, tuple(body[start : start + KEY_BYTES] for start in range(0, len(body), KEY_BYTES)))


def _hashes(reader: ByteReader) -> tuple[bytes, ...]:
    data = reader.block(MOST_HASHES * HASH_BYTES)
    if len(data) % HASH_BYTES:
        raise reader.wrong("a list of hashes is cut off")
    return tuple(data[start : start + HASH_BYTES] for start in range(0, len(data), HASH_BYTES))


@dataclass(frozen=True)
class DirectoryView:
    """What a device checks with: the federation, the witness's key, its own demands and the last checkpoint it saw."""

    log: bytes
    witness: bytes
    policy: DirectoryPolicy
    known: DirectoryCheckpoint | None = None

    def check(self, data: bytes, cohort: Sequence[bytes], now: float) -> DirectoryCheckpoint:
        """Refuse a cohort that is not in the directory, or a directory that cannot be trusted; return the newest."""
        if not data:
            raise DevicePolicyError.because(ReasonCode.DIRECTORY_MISSING)
        proof = DirectoryProof.decode(data)
        newest, settled = proof.newest, proof.settled
        for checkpoint in {newest, settled}:
            if checkpoint.log != self.log or not checkpoint.is_signed_by(self.witness):
                raise ForgedError.because(ReasonCode.DIRECTORY_FORGED)
        if not is_growth(settled.size, settled.root, newest.size, newest.root, proof.growth):
            raise ForgedError.because(ReasonCode.DIRECTORY_FORKED)
        self._check_growth(proof)
        self._check_times(newest, settled, now)
        if len(proof.places) != len(cohort) or len(set(proof.places)) != len(cohort):
            raise DevicePolicyError.because(ReasonCode.NOT_IN_DIRECTORY)
        entries = dict(zip(proof.places, cohort, strict=True))
        if not has_members(entries, settled.size, settled.root, proof.members):
            raise DevicePolicyError.because(ReasonCode.NOT_IN_DIRECTORY)
        return newest

    def _check_growth(self, proof: DirectoryProof) -> None:
        """Refuse a directory that does not continue the one that this device saw last."""
        known, newest = self.known, proof.newest
        if known is None:
            return
        shown = dict(proof.seen)
        if newest.size > known.size and known.size not in shown:
            raise DevicePolicyError.because(ReasonCode.DIRECTORY_GAP)
        hashes = shown.get(known.size, ()) if newest.size > known.size else ()
        if not is_growth(known.size, known.root, newest.size, newest.root, hashes):
            raise ForgedError.because(ReasonCode.DIRECTORY_FORKED)

    def _check_times(self, newest: DirectoryCheckpoint, settled: DirectoryCheckpoint, now: float) -> None:
        """Refuse a witness that has not signed for long, and identities that are too new."""
        if not now - self.policy.fresh_days * DAY <= newest.time <= now + AHEAD:
            raise DevicePolicyError.because(ReasonCode.DIRECTORY_STALE, days=self.policy.fresh_days)
        if newest.time - settled.time < self.policy.settled_hours * HOUR:
            raise DevicePolicyError.because(ReasonCode.DIRECTORY_YOUNG, hours=self.policy.settled_hours)


def write_key(key: bytes) -> str:
    """Write a witness's public key for humans and files.

    >>> read_key(write_key(bytes(32))) == bytes(32)
    True
    """
    return key.hex()


def read_key(text: str) -> bytes:
    """Read a witness's public key; anything else is a ValueError."""
    key = bytes.fromhex("".join(text.split()))
    if len(key) != KEY_BYTES:
        raise ValueError("a witness's key has 64 hexadecimal digits")
    return key
