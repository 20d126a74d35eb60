"""Session keys between two peers: a sender draws one for a receiver, seals it by HPKE, signs it, and uses it for a day.

    ticket    expiry (u64) · sealed key (80) · signature (64)
    key       32 random bytes, sealed in HPKE base mode: X25519, HKDF-SHA256, AES-256-GCM

The signature is the sender's (Ed25519), over network, sender, receiver, expiry and sealed key; the same words and the
secret of the network are the info of HPKE. A ticket stands in each message of its sender to its receiver. So there is
no handshake and nothing on disk: after a restart the sender draws another key, and the receiver opens tickets again.
A receiver remembers tickets that it has checked, and a message with one of them costs no operation on curves.
"""

from __future__ import annotations

import os
import struct
import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from tacit.wire.peer_records import SIGNATURE_BYTES, SKEW, PeerIdentity, PeerRecord, verify_signature
from tacit.wire.peer_refusals import PeerMessageError, PeerRefusal

KEY_BYTES, SEALED_BYTES = 32, 32 + 32 + 16  # a key; one sealed: the one-time key of HPKE, the key, a tag
_EXPIRY = struct.Struct("<Q")
TICKET_BYTES = _EXPIRY.size + SEALED_BYTES + SIGNATURE_BYTES
USED = 86400  # seconds that a sender uses a key
LIFETIME = USED + 600  # seconds until its ticket is refused: the last message under it may be on its way
MOST_KEPT = 1024  # tickets that a peer remembers, of each sort
_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
_LABEL = b"tacit/peer/1/session"


@dataclass(frozen=True)
class PeerSession:
    """A session key and the ticket by which its receiver gets it."""

    ticket: bytes
    key: bytes = field(repr=False)
    until: float  # when its sender draws another one


class PeerSessions:
    """The session keys of a peer: those that it drew for others, and those of tickets that it has checked."""

    def __init__(self, identity: PeerIdentity, network: bytes, secret: bytes) -> None:
        self._identity, self._network, self._secret = identity, network, secret
        self._drawn: OrderedDict[bytes, PeerSession] = OrderedDict()
        self._checked: OrderedDict[bytes, bytes] = OrderedDict()
        self._guard = threading.Lock()
        self._in_use = (0.0, 0.0)  # between these times, all keys that were drawn are

    def with_receiver(self, to: PeerRecord, now: float) -> PeerSession:
        """Return the session with a receiver; a new one if there is none, or if its day is over."""
        name = to.id + to.sealing
        with self._guard:
            if not self._in_use[0] <= now < self._in_use[1]:
                self._forget_unused(now)
            found = self._drawn.get(name)
            if found is None:
                found = self._drawn[name] = self._draw(to, now)
                _drop_oldest(self._drawn)
                self._forget_unused(now)
            return found

    def _forget_unused(self, now: float) -> None:
        """Forget the keys that are out of use: a key that is forgotten cannot open what it sealed."""
        for other in [known for known, session in self._drawn.items() if not _is_used(session, now)]:
            del self._drawn[other]
        ends = [session.until for session in self._drawn.values()]
        self._in_use = (max(ends) - USED, min(ends)) if ends else (0.0, 0.0)

    def _draw(self, to: PeerRecord, now: float) -> PeerSession:
        key, expiry = os.urandom(KEY_BYTES), _EXPIRY.pack(int(now) + LIFETIME)
        about = self._about(self._identity.public, to.id, expiry)
        sealed = _SUITE.encrypt(key, to.sealing_key, info=_LABEL + self._secret + about)
        return PeerSession(expiry + sealed + self._identity.signing.sign(_LABEL + about + sealed), key, now + USED)

    def check(self, signing: bytes, ticket: bytes) -> None:
        """Refuse a ticket that was not signed by the owner of a key for this peer and network."""
        if self._recall(signing + ticket) is None:
            about = self._about(signing, self._identity.id, ticket[: _EXPIRY.size])
            statement = _LABEL + about + ticket[_EXPIRY.size : -SIGNATURE_BYTES]
            if not verify_signature(signing, ticket[-SIGNATURE_BYTES:], statement):
                raise PeerMessageError(PeerRefusal.FORGED)

    def open(self, signing: bytes, ticket: bytes) -> bytes:
        """Return the key of a ticket that was checked, and remember it."""
        found = self._recall(signing + ticket)
        if found is not None:
            return found
        info = _LABEL + self._secret + self._about(signing, self._identity.id, ticket[: _EXPIRY.size])
        try:
            key = _SUITE.decrypt(ticket[_EXPIRY.size : -SIGNATURE_BYTES], self._identity.sealing, info=info)
        except (InvalidTag, ValueError):
            raise PeerMessageError(PeerRefusal.UNSEALED) from None
        if len(key) != KEY_BYTES:
            raise PeerMessageError(PeerRefusal.MALFORMED)
        with self._guard:
            self._checked[signing + ticket] = key
            _drop_oldest(self._checked)
        return key

    def _recall(self, name: bytes) -> bytes | None:
        with self._guard:
            if name in self._checked:
                self._checked.move_to_end(name)
            return self._checked.get(name)

    def _about(self, signing: bytes, receiver: bytes, expiry: bytes) -> bytes:
        return self._network + signing + receiver + expiry


def is_ticket_current(ticket: bytes, now: float) -> bool:
    """Say whether a ticket is neither too old nor of a future that no clock explains."""
    (expiry,) = _EXPIRY.unpack_from(ticket)
    return bool(now - SKEW <= expiry <= now + LIFETIME + SKEW)


def _is_used(session: PeerSession, now: float) -> bool:
    return session.until - USED <= now < session.until


def _drop_oldest(kept: OrderedDict[bytes, PeerSession] | OrderedDict[bytes, bytes]) -> None:
    while len(kept) > MOST_KEPT:
        kept.popitem(last=False)
