"""Messages between peers: encrypted and authenticated under a session key, padded to a few sizes.

    message   head · ticket (152) · once (16) · body · tag (16)
    head      magic "TCPM" · version · network (32) · sender's signing key (32) · receiver's id (16) · sequence (u64) ·
              expiry (u64) · about (32) · length of body and tag (u32)
    ticket    the session key, sealed for the receiver (HPKE) and signed by the sender: `wire/peer_sessions.py`
    body      AES-256-GCM; its key is HMAC-SHA256 of head and once under the session key, and used for nothing else
    inside    kind (u8) · key of the acknowledgement (32) · content · 0x80 · zeros
    acknowledgement   whether it was read (u8) · receiver's time (u64) · HMAC-SHA256 under the key of the message (32)

The ticket's signature shows who the sender is. Only sender and receiver know the session key, so the tag shows that
this message is the sender's, with this network, receiver, sequence and expiry. `once` is random: no key is ever used
for two messages, even if a sequence number came again. A reply has in `about` the hash of what stands before the body
of the message that it answers; other messages have zeros. Only who can open a message has the key of its
acknowledgement. The sender draws that key from its own secret and what stands before the body, and keeps nothing. Size,
network, receiver, expiry and sequence are checked before any signature, the signature before the body is opened, the
body before it is decoded.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tacit.updates import PeerModels
from tacit.wire.messages import decode_arrays, pack_parts
from tacit.wire.peer_records import RECORD_BYTES, SKEW, PeerIdentity, PeerRecord, peer_id
from tacit.wire.peer_refusals import PeerMessageError, PeerRefusal
from tacit.wire.peer_sessions import TICKET_BYTES, PeerSessions, is_ticket_current

MAGIC, VERSION = b"TCPM", 2
MODEL, PUSH, PULL, RECORDS, GOODBYE, JOIN, WELCOME = range(1, 8)
KINDS = {
    MODEL: "peer model",
    PUSH: "push",
    PULL: "pull",
    RECORDS: "records",
    GOODBYE: "goodbye",
    JOIN: "join",
    WELCOME: "welcome",
}
LIFETIME = 600  # seconds from sending until a message is too old
MOST_BYTES = 2**28
MOST_RECORDS = 64  # in one message
LEAST_BYTES = 512  # of what is sealed
NOTHING = bytes(32)
_HEAD = struct.Struct("<4sB32s32s16sQQ32sI")
HEAD_BYTES = _HEAD.size
ONCE_BYTES, TAG_BYTES = 16, 16
FRONT_BYTES = HEAD_BYTES + TICKET_BYTES + ONCE_BYTES  # what stands before the body
OVERHEAD = FRONT_BYTES + TAG_BYTES
_NO_NONCE = bytes(12)  # each key seals one message
_LABEL = b"tacit/peer/1/message"
_ACK_LABEL = b"tacit/peer/1/acknowledgement"
_MODEL_HEAD = struct.Struct("<QQ")
_ACK = struct.Struct("<BQ")
ACK_KEY_BYTES = 32
ACK_BYTES = _ACK.size + hashlib.sha256().digest_size


@dataclass(frozen=True)
class PeerEnvelope:
    """A message as it arrives, of the right form; its signature is not checked yet."""

    front: bytes  # head, ticket, once
    ticket: bytes  # the session key, sealed and signed
    body: memoryview  # with its tag
    signing: bytes
    sequence: int
    expiry: int

    @cached_property
    def sender(self) -> bytes:
        """The id of the sender."""
        return peer_id(self.signing)

    @cached_property
    def digest(self) -> bytes:
        """The hash by which a reply names this message."""
        return hashlib.sha256(self.front).digest()

    def refuse_if_expired(self, now: float) -> None:
        """Refuse a message that is too old, or of a future that no clock explains."""
        is_current = now - SKEW <= self.expiry <= now + LIFETIME + SKEW
        if not (is_current and is_ticket_current(self.ticket, now)):
            raise PeerMessageError(PeerRefusal.EXPIRED)


@dataclass(frozen=True)
class OpenedMessage:
    """What is inside a message."""

    kind: int
    ack_key: bytes = field(repr=False)
    content: memoryview

    def acknowledge(self, is_read: bool, now: float) -> bytes:
        """Write that the message arrived and was read, or that its time is wrong; with the time here."""
        stamp = _ACK.pack(is_read, int(now))
        return stamp + _ack_code(self.ack_key, stamp)


@dataclass(frozen=True)
class PeerAck:
    """An acknowledgement: whether the message was read, the receiver's time, and what follows."""

    is_read: bool
    time: int
    rest: bytes


@dataclass(frozen=True)
class PeerSeal:
    """What a peer seals and opens messages with: its keys, the network's digest, and the secret of the network."""

    identity: PeerIdentity
    network: bytes
    secret: bytes = field(repr=False)

    @cached_property
    def sessions(self) -> PeerSessions:
        """The session keys of this peer."""
        return PeerSessions(self.identity, self.network, self.secret)

    def seal(
        self, to: PeerRecord, sequence: int, now: float, kind: int, *content: bytes | memoryview, about: bytes = NOTHING
    ) -> bytes:
        """Return a message for the peer of a record; its content may come in parts, so that it is copied once."""
        length = padded_length(1 + ACK_KEY_BYTES + count_bytes(content)) + TAG_BYTES
        if length + FRONT_BYTES > MOST_BYTES:
            raise PeerMessageError(PeerRefusal.TOO_LARGE)
        sender, expiry, session = self.identity.public, int(now) + LIFETIME, self.sessions.with_receiver(to, now)
        head = _HEAD.pack(MAGIC, VERSION, self.network, sender, to.id, sequence, expiry, about, length)
        front = head + session.ticket + os.urandom(ONCE_BYTES)
        inside = pad_content(bytes([kind]), self._ack_key(front), *content)
        return front + _cipher(session.key, front).encrypt(_NO_NONCE, inside, None)

    def read(self, content: bytes, most: int = MOST_BYTES, about: bytes = NOTHING) -> PeerEnvelope:
        """Read a message as far as it can be without any key: of another network, form or receiver, it is refused."""
        if len(content) > most:
            raise PeerMessageError(PeerRefusal.TOO_LARGE)
        if len(content) < OVERHEAD or content[:4] != MAGIC or content[4] != VERSION:
            raise PeerMessageError(PeerRefusal.MALFORMED)
        _, _, network, signing, receiver, sequence, expiry, answers, length = _HEAD.unpack_from(content)
        if length != len(content) - FRONT_BYTES:
            raise PeerMessageError(PeerRefusal.MALFORMED)
        if network != self.network:
            raise PeerMessageError(PeerRefusal.OTHER_NETWORK)
        if receiver != self.identity.id or signing == self.identity.public:
            raise PeerMessageError(PeerRefusal.OTHER_RECEIVER)
        if answers != about:
            raise PeerMessageError(PeerRefusal.REPEATED)
        front, ticket = content[:FRONT_BYTES], content[HEAD_BYTES : HEAD_BYTES + TICKET_BYTES]
        return PeerEnvelope(front, ticket, memoryview(content)[FRONT_BYTES:], signing, sequence, expiry)

    def refuse_if_forged(self, envelope: PeerEnvelope) -> None:
        """Refuse a message whose ticket was not signed by its sender."""
        self.sessions.check(envelope.signing, envelope.ticket)

    def open(self, envelope: PeerEnvelope) -> OpenedMessage:
        """Open a message whose ticket was checked."""
        key = self.sessions.open(envelope.signing, envelope.ticket)
        try:
            inside = _cipher(key, envelope.front).decrypt(_NO_NONCE, envelope.body, None)
        except InvalidTag:
            raise PeerMessageError(PeerRefusal.UNSEALED) from None
        end = inside.rfind(b"\x80")
        if end < 1 + ACK_KEY_BYTES or not inside.endswith(bytes(len(inside) - end - 1)):
            raise PeerMessageError(PeerRefusal.MALFORMED)
        if inside[0] not in KINDS:
            raise PeerMessageError(PeerRefusal.UNKNOWN_KIND)
        content = memoryview(inside)[1 + ACK_KEY_BYTES : end]
        return OpenedMessage(inside[0], inside[1 : 1 + ACK_KEY_BYTES], content)

    def open_reply(self, content: bytes, request: bytes, now: float, kind: int) -> tuple[PeerEnvelope, bytes]:
        """Return the content of the reply to a message of this peer."""
        about = hashlib.sha256(request[:FRONT_BYTES]).digest()
        envelope = self.read(content, MOST_BYTES, about)
        envelope.refuse_if_expired(now)
        self.refuse_if_forged(envelope)
        opened = self.open(envelope)
        if opened.kind != kind:
            raise PeerMessageError(PeerRefusal.UNKNOWN_KIND)
        return envelope, bytes(opened.content)

    def read_ack(self, content: bytes, message: bytes) -> PeerAck | None:
        """Read the acknowledgement of a message of this peer; none if its receiver did not write it."""
        if len(content) < ACK_BYTES:
            return None
        stamp, rest = content[: _ACK.size], content[ACK_BYTES:]
        if stamp[0] > 1 or not hmac.compare_digest(
            _ack_code(self._ack_key(message[:FRONT_BYTES]), stamp), content[_ACK.size : ACK_BYTES]
        ):
            return None
        is_read, time = _ACK.unpack(stamp)
        return PeerAck(bool(is_read), time, rest)

    def _ack_key(self, front: bytes) -> bytes:
        """Return a key that only this peer can draw; a keyed hash that no other peer computes may be a fast one."""
        keyed = hashlib.blake2b(front, digest_size=ACK_KEY_BYTES, key=self._own_secret, person=b"tacit/peer/ack")
        return keyed.digest()

    @cached_property
    def _own_secret(self) -> bytes:
        return self.identity.signing.private_bytes_raw()


def _cipher(key: bytes, front: bytes) -> AESGCM:
    """Return the cipher of one message."""
    head_and_once = front[:HEAD_BYTES] + front[-ONCE_BYTES:]
    return AESGCM(hmac.digest(key, _LABEL + head_and_once, "sha256"))


def _ack_code(key: bytes, stamp: bytes) -> bytes:
    return hmac.digest(key, _ACK_LABEL + stamp, "sha256")


def count_bytes(content: Iterable[bytes | memoryview]) -> int:
    """Return how long parts are together; the length of an array's memory is not that of its first axis."""
    return sum([part.nbytes if isinstance(part, memoryview) else len(part) for part in content])


def pad_content(*content: bytes | memoryview) -> bytes:
    """Join parts and pad to one of a few sizes: powers of two up to 4 kB, then eight sizes between two powers."""
    length = count_bytes(content)
    return b"".join([*content, b"\x80", bytes(padded_length(length) - length - 1)])


def padded_length(content: int) -> int:
    """Return the length of a padded content of so many bytes."""
    needed = content + 1
    step = LEAST_BYTES if needed <= LEAST_BYTES else 1 << (needed - 1).bit_length()
    if needed > 4096:
        step >>= 4
    return -(-needed // step) * step


def most_bytes(content: int) -> int:
    """Return how long a message is whose content has so many bytes."""
    return padded_length(content + 1 + ACK_KEY_BYTES) + OVERHEAD


def write_model(peer_model: PeerModels) -> list[bytes | memoryview]:
    """Write one peer model, in parts; who sent it is the message's affair."""
    assert len(peer_model) == 1, "a peer sends one model"
    head = _MODEL_HEAD.pack(int(peer_model.samples[0]), int(peer_model.ages[0]))
    return [head, *pack_parts(peer_model.tables)]


def read_model(content: bytes | memoryview, sender: int) -> PeerModels:
    """Read one peer model; whether arrays and numbers are plausible is for the protocol to say (`gossip.is_model`)."""
    if len(content) < _MODEL_HEAD.size:
        raise PeerMessageError(PeerRefusal.MALFORMED)
    samples, age = _MODEL_HEAD.unpack_from(content)
    if max(samples, age) >= 2**53:
        raise PeerMessageError(PeerRefusal.MALFORMED)
    about = np.array([[sender], [samples], [age]], np.int64)
    return PeerModels(about[0], decode_arrays(content[_MODEL_HEAD.size :]), about[1], about[2])


def write_records(records: Sequence[PeerRecord]) -> bytes:
    """Write records of peers, at most as many as one message may have."""
    return b"".join(record.packed for record in records[:MOST_RECORDS])


def read_records(
    content: bytes | memoryview, network: bytes, now: float, checked: Collection[bytes] = ()
) -> list[PeerRecord]:
    """Read the valid records of a message; forged and expired ones are left out.

    Of those that were `checked` before, byte by byte, only the time is looked at.
    """
    if len(content) % RECORD_BYTES or len(content) > MOST_RECORDS * RECORD_BYTES:
        raise PeerMessageError(PeerRefusal.MALFORMED)
    parts = [bytes(content[at : at + RECORD_BYTES]) for at in range(0, len(content), RECORD_BYTES)]
    found = [(part in checked, PeerRecord.unpack(part)) for part in dict.fromkeys(parts)]
    valid = [record for known, record in found if (record.is_current(now) if known else record.is_valid(network, now))]
    return list({record.id: record for record in valid}.values())
