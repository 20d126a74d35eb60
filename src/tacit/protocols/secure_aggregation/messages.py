"""The messages of a secure sum: version, kind, context, then fields of fixed widths. There is one way to write each.

    server -> device                          device -> server
    Invitation  terms and cohort              Advert       two public keys, a commitment, signed
    Roster      the neighbours' adverts       Shares       shares for each neighbour, sealed
    Inbox       shares sealed for this one    Masked       the masked vector
    Survivors   whose vectors arrived         Confirmation a code for each neighbour: I saw these survivors
    Confirmed   the neighbours' codes         Unmasking    of each neighbour one share, never both
    Farewell    the round is over

What a device sends after its advert ends with a code made with a key that it shares with the server.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from operator import itemgetter, lt
from typing import NamedTuple

from tacit.errors import MessageError
from tacit.protocols.secure_aggregation.bytes import (
    MOST_PARTICIPANTS,
    ByteReader,
    ByteWriter,
    from_bits,
    to_bits,
    write_entries,
)
from tacit.protocols.secure_aggregation.context import HASH_BYTES, OLDEST, VERSION, Session, Terms
from tacit.protocols.secure_aggregation.draw import DrawProof
from tacit.protocols.secure_aggregation.identity import KEY_BYTES, SIGNATURE_BYTES, TAG_BYTES
from tacit.protocols.secure_aggregation.shamir import SHARE_BYTES, is_share
from tacit.reasons import ReasonCode

SEALED_BYTES = 2 * SHARE_BYTES + 16  # two shares and the code of AES-GCM
HEAD_BYTES = 2 + HASH_BYTES


class MessageType(IntEnum):
    """The second byte of a message."""

    INVITATION = 1
    ADVERT = 2
    ROSTER = 3
    SHARES = 4
    INBOX = 5
    MASKED = 6
    SURVIVORS = 7
    CONFIRMATION = 8
    CONFIRMED = 9
    UNMASKING = 10
    FAREWELL = 11


_ADVERT = struct.Struct(f"<I{KEY_BYTES}s{KEY_BYTES}s{HASH_BYTES}s{SIGNATURE_BYTES}s")
_SHARE = struct.Struct(f"<I{TAG_BYTES}s{TAG_BYTES}s{SEALED_BYTES}s")
_CODE = struct.Struct(f"<I{TAG_BYTES}s")
_PIECE = struct.Struct(f"<IB{SHARE_BYTES}s")
_COMPLAINT = struct.Struct("<IB")
_PARTICIPANT = itemgetter(0)


COMPLAINTS = {1: ReasonCode.BAD_SHARE, 2: ReasonCode.BAD_CONFIRMATION}
"""What a device may complain of, by the number that travels."""


def open_message(data: bytes, kind: MessageType) -> tuple[bytes, ByteReader]:
    """Check version and kind of a message; return its context and a reader of the rest."""
    reader = ByteReader(data, f"A message of kind {kind.name.lower()}")
    version, seen = reader.number(1), reader.number(1)
    if not OLDEST <= version <= VERSION:
        raise _other_version(version)
    if seen != kind:
        raise reader.wrong(f"its kind is {seen}, not {int(kind)}")
    return reader.raw(HASH_BYTES), reader


def message_type(data: bytes) -> MessageType:
    """Return the kind of a message."""
    if data and not OLDEST <= data[0] <= VERSION:
        raise _other_version(data[0])
    if len(data) < HEAD_BYTES or data[1] not in set(MessageType):
        raise MessageError(f"{len(data):,} bytes are not a message of this protocol.")
    return MessageType(data[1])


def _other_version(version: int) -> MessageError:
    is_newer = version > VERSION
    return MessageError(
        f"A message of a secure sum is of version {version}; this program knows {OLDEST} to {VERSION}.",
        "Upgrade Tacit here, if the sender is right." if is_newer else "Its sender must upgrade Tacit.",
    )


def _start(kind: MessageType, context: bytes) -> ByteWriter:
    return ByteWriter().number(VERSION, 1).number(kind, 1).raw(context)


def _ascending(reader: ByteReader, participants: Sequence[int]) -> None:
    if not all(map(lt, participants, participants[1:])):
        raise reader.wrong("participants are out of order or repeated")
    if participants and participants[-1] >= MOST_PARTICIPANTS:
        raise reader.wrong("it names a participant beyond the largest cohort")


@dataclass(frozen=True)
class SessionInvitation:
    """The terms, the cohort, and where a draw is verified what shows how it was drawn."""

    session: Session
    drawn: DrawProof | None = None

    def encode(self) -> bytes:
        """Return its bytes."""
        writer = _start(MessageType.INVITATION, self.session.context)
        self.session.terms.write(writer)
        writer.block(b"".join(self.session.cohort))
        drawn = b"" if self.drawn is None else self.drawn.secret + b"".join(self.drawn.tickets)
        return writer.block(drawn).done()

    @classmethod
    def decode(cls, data: bytes) -> SessionInvitation:
        """Read it; its context must be the hash of what it says."""
        context, reader = open_message(data, MessageType.INVITATION)
        terms = Terms.read(reader)
        cohort = reader.block(MOST_PARTICIPANTS * KEY_BYTES)
        shown = reader.block((1 + MOST_PARTICIPANTS) * HASH_BYTES)
        reader.end()
        if len(cohort) % KEY_BYTES or len(shown) not in (0, HASH_BYTES + len(cohort)):
            raise reader.wrong("identities or tickets are cut off")
        session = Session(terms, _cut(cohort, KEY_BYTES))
        if session.context != context:
            raise reader.wrong("its context is not the hash of its terms")
        secret, *tickets = _cut(shown, HASH_BYTES) or (b"",)
        return cls(session, DrawProof(secret, tuple(tickets)) if shown else None)


def _cut(data: bytes, size: int) -> tuple[bytes, ...]:
    return tuple(data[start : start + size] for start in range(0, len(data), size))


@dataclass(frozen=True)
class Advert:
    """The public keys of one participant for one round, and the commitment to its self mask."""

    sender: int
    mask_key: bytes
    seal_key: bytes
    commitment: bytes
    signature: bytes = bytes(SIGNATURE_BYTES)

    def signed_part(self, context: bytes) -> bytes:
        """Return what the signature is of."""
        head = _start(MessageType.ADVERT, context).number(self.sender, 4)
        return head.raw(self.mask_key).raw(self.seal_key).raw(self.commitment).done()

    @cached_property
    def entry(self) -> bytes:
        """It as one entry of a roster."""
        return _ADVERT.pack(self.sender, self.mask_key, self.seal_key, self.commitment, self.signature)

    def encode(self, context: bytes) -> bytes:
        """Return its bytes."""
        return self.signed_part(context) + self.signature

    @classmethod
    def decode(cls, data: bytes) -> tuple[bytes, Advert]:
        """Read context and advert."""
        context, reader = open_message(data, MessageType.ADVERT)
        advert = cls(*_ADVERT.unpack(reader.raw(_ADVERT.size)))
        reader.end()
        return context, advert


@dataclass(frozen=True)
class Roster:
    """Who is there, and the adverts of one's neighbours."""

    present: frozenset[int]
    adverts: tuple[Advert, ...]

    def encode(self, context: bytes, n_participants: int) -> bytes:
        """Return its bytes."""
        writer = _start(MessageType.ROSTER, context).block(to_bits(self.present, n_participants))
        return writer.number(len(self.adverts), 4).raw(b"".join(advert.entry for advert in self.adverts)).done()

    @classmethod
    def decode(cls, data: bytes, n_participants: int) -> tuple[bytes, Roster]:
        """Read context and roster."""
        context, reader = open_message(data, MessageType.ROSTER)
        present = from_bits(reader.block(MOST_PARTICIPANTS), n_participants)
        adverts = tuple(Advert(*entry) for entry in reader.entries(_ADVERT, n_participants))
        reader.end()
        _ascending(reader, [advert.sender for advert in adverts])
        return context, cls(present, adverts)


class SealedShares(NamedTuple):
    """Two shares for one neighbour, encrypted for it, and a hash of each to check it later.

    It and `SecretShare` are plain tuples: a server handles one for every pair of neighbours.
    """

    participant: int  # for whom, or from whom
    self_hash: bytes
    key_hash: bytes
    box: bytes


@dataclass(frozen=True)
class Shares:
    """All shares of one participant for its neighbours."""

    sender: int
    entries: tuple[SealedShares, ...]

    def encode(self, context: bytes) -> bytes:
        """Return its bytes, without the closing code."""
        return _write_sealed(_start(MessageType.SHARES, context).number(self.sender, 4), self.entries)

    @classmethod
    def decode(cls, data: bytes) -> tuple[bytes, Shares, bytes]:
        """Read context, shares and the closing code."""
        context, reader = open_message(data, MessageType.SHARES)
        sender = reader.number(4, MOST_PARTICIPANTS)
        entries = _read_sealed(reader)
        code = reader.raw(TAG_BYTES)
        reader.end()
        return context, cls(sender, entries), code


@dataclass(frozen=True)
class ShareInbox:
    """Who has sent shares, and the shares that the neighbours have sealed for one participant."""

    sharing: frozenset[int]
    entries: tuple[SealedShares, ...]

    def encode(self, context: bytes, n_participants: int) -> bytes:
        """Return its bytes."""
        return _write_sealed(
            _start(MessageType.INBOX, context).block(to_bits(self.sharing, n_participants)), self.entries
        )

    @classmethod
    def decode(cls, data: bytes, n_participants: int) -> tuple[bytes, ShareInbox]:
        """Read context and inbox."""
        context, reader = open_message(data, MessageType.INBOX)
        sharing = from_bits(reader.block(MOST_PARTICIPANTS), n_participants)
        entries = _read_sealed(reader)
        reader.end()
        return context, cls(sharing, entries)


def _write_sealed(writer: ByteWriter, entries: Sequence[SealedShares]) -> bytes:
    return write_entries(writer, _SHARE, entries).done()


def _read_sealed(reader: ByteReader) -> tuple[SealedShares, ...]:
    entries = tuple(map(SealedShares._make, reader.entries(_SHARE, MOST_PARTICIPANTS)))
    _ascending(reader, list(map(_PARTICIPANT, entries)))
    return entries


@dataclass(frozen=True)
class MaskedVector:
    """One participant's vector under its masks."""

    sender: int
    vector: bytes

    def encode(self, context: bytes) -> bytes:
        """Return its bytes, without the closing code."""
        return _start(MessageType.MASKED, context).number(self.sender, 4).raw(self.vector).done()

    @classmethod
    def decode(cls, data: bytes, size: int) -> tuple[bytes, MaskedVector, bytes]:
        """Read context, a vector of `size` bytes and the closing code."""
        context, reader = open_message(data, MessageType.MASKED)
        masked = cls(reader.number(4, MOST_PARTICIPANTS), reader.raw(size))
        code = reader.raw(TAG_BYTES)
        reader.end()
        return context, masked, code


@dataclass(frozen=True)
class Survivors:
    """Whose vectors are in the sum."""

    participants: frozenset[int]

    def encode(self, context: bytes, n_participants: int) -> bytes:
        """Return its bytes."""
        return _start(MessageType.SURVIVORS, context).block(to_bits(self.participants, n_participants)).done()

    @classmethod
    def decode(cls, data: bytes, n_participants: int) -> tuple[bytes, Survivors]:
        """Read context and survivors."""
        context, reader = open_message(data, MessageType.SURVIVORS)
        participants = from_bits(reader.block(MOST_PARTICIPANTS), n_participants)
        reader.end()
        return context, cls(participants)


@dataclass(frozen=True)
class Codes:
    """Codes for neighbours (Confirmation), or from them (Confirmed)."""

    entries: tuple[tuple[int, bytes], ...]

    def encode(self, context: bytes, sender: int | None = None) -> bytes:
        """Return its bytes: a confirmation with its sender and without the closing code, else what is passed on."""
        kind = MessageType.CONFIRMED if sender is None else MessageType.CONFIRMATION
        writer = _start(kind, context)
        return write_entries(writer if sender is None else writer.number(sender, 4), _CODE, self.entries).done()

    @classmethod
    def decode_sent(cls, data: bytes) -> tuple[bytes, int, Codes, bytes]:
        """Read context, sender, codes and the closing code of a confirmation."""
        context, reader = open_message(data, MessageType.CONFIRMATION)
        sender, codes = reader.number(4, MOST_PARTICIPANTS), cls._read(reader)
        code = reader.raw(TAG_BYTES)
        reader.end()
        return context, sender, codes, code

    @classmethod
    def decode(cls, data: bytes) -> tuple[bytes, Codes]:
        """Read context and codes that were passed on."""
        context, reader = open_message(data, MessageType.CONFIRMED)
        codes = cls._read(reader)
        reader.end()
        return context, codes

    @classmethod
    def _read(cls, reader: ByteReader) -> Codes:
        entries = tuple(reader.entries(_CODE, MOST_PARTICIPANTS))
        _ascending(reader, list(map(_PARTICIPANT, entries)))
        return cls(entries)


class SecretShare(NamedTuple):
    """One share of a participant's secret: of its self mask if its vector arrived, else of its mask key."""

    participant: int
    of_self_mask: bool
    share: bytes


@dataclass(frozen=True)
class Unmasking:
    """The shares that one participant reveals at the end, and the seed of its own self mask.

    `complaints` names neighbours whose share (1) or confirmation code (2) was wrong; without any, nothing is written.
    """

    sender: int
    seed: bytes
    pieces: tuple[SecretShare, ...]
    complaints: tuple[tuple[int, int], ...] = ()

    def encode(self, context: bytes) -> bytes:
        """Return its bytes, without the closing code."""
        writer = _start(MessageType.UNMASKING, context).number(self.sender, 4).raw(self.seed)
        write_entries(writer, _PIECE, self.pieces)
        return (write_entries(writer, _COMPLAINT, self.complaints) if self.complaints else writer).done()

    @classmethod
    def decode(cls, data: bytes) -> tuple[bytes, Unmasking, bytes]:
        """Read context, shares, complaints and the closing code."""
        context, reader = open_message(data, MessageType.UNMASKING)
        sender, seed = reader.number(4, MOST_PARTICIPANTS), reader.raw(KEY_BYTES)
        entries = reader.entries(_PIECE, MOST_PARTICIPANTS)
        if any(kind > 1 or not is_share(share) for _, kind, share in entries):
            raise reader.wrong("a share is no number of the field, or of neither kind")
        pieces = tuple(SecretShare(participant, kind == 1, share) for participant, kind, share in entries)
        complaints = tuple(reader.entries(_COMPLAINT, MOST_PARTICIPANTS)) if reader.n_left > TAG_BYTES else None
        if complaints is not None and not (complaints and all(kind in COMPLAINTS for _, kind in complaints)):
            raise reader.wrong("complaints are of no kind, or an empty list")
        code = reader.raw(TAG_BYTES)
        reader.end()
        _ascending(reader, list(map(_PARTICIPANT, pieces)))
        _ascending(reader, list(map(_PARTICIPANT, complaints or ())))
        return context, cls(sender, seed, pieces, complaints or ()), code


def end_of_round(context: bytes) -> bytes:
    """Return the message that a round is over."""
    return _start(MessageType.FAREWELL, context).done()
