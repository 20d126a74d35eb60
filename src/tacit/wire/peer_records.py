"""Who a peer is: a key pair for each network, and the signed record by which others know it.

    record   signing key (32) · sealing key (32) · issued (u64) · expires (u64) · signature (64)

The id of a peer is the hash of its signing key, so a record can be for no other peer. The signature is over the
network as well: a record is worth nothing elsewhere.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from functools import cached_property

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from tacit.errors import WireError

ID_BYTES, KEY_BYTES, SIGNATURE_BYTES = 16, 32, 64
RECORD_BYTES = 2 * KEY_BYTES + 16 + SIGNATURE_BYTES
LIFETIME = 7 * 86400  # seconds that a record is good for
SKEW = 300  # seconds by which clocks may differ
_LABEL = b"tacit/peer/1/record"
_TIMES = struct.Struct("<QQ")


def peer_id(signing: bytes) -> bytes:
    """Return the id of the peer with a public signing key."""
    return hashlib.sha256(b"tacit/peer/1/id" + signing).digest()[:ID_BYTES]


def peer_number(id: bytes) -> int:
    """Return the number by which the protocol knows a peer: the first 63 bits of its id."""
    return int.from_bytes(id[:8], "big") >> 1


@dataclass(frozen=True)
class PeerRecord:
    """The public keys of a peer, signed by itself for one network, for a while."""

    signing: bytes
    sealing: bytes
    issued: int  # unix seconds
    expires: int
    signature: bytes

    @cached_property
    def id(self) -> bytes:
        """The id of the peer."""
        return peer_id(self.signing)

    @cached_property
    def packed(self) -> bytes:
        """The record as it is sent."""
        return self.signing + self.sealing + _TIMES.pack(self.issued, self.expires) + self.signature

    @classmethod
    def unpack(cls, content: bytes) -> PeerRecord:
        """Read it; nothing is checked but its length."""
        if len(content) != RECORD_BYTES:
            raise WireError("This is not the record of a peer.", "Nothing was changed.")
        issued, expires = _TIMES.unpack_from(content, 2 * KEY_BYTES)
        signing, sealing = content[:KEY_BYTES], content[KEY_BYTES : 2 * KEY_BYTES]
        return cls(signing, sealing, issued, expires, content[-SIGNATURE_BYTES:])

    def is_valid(self, network: bytes, now: float) -> bool:
        """Say whether it is of this network, signed by the peer itself, neither old nor of the future, and of use.

        Nothing can be sealed for a key of low order (zeros, for one): a peer that stored such a record could not send
        to it.
        """
        return self.is_current(now) and self._is_signed(network)

    def is_current(self, now: float) -> bool:
        """Say whether it is neither old nor of the future, and not for longer than records are."""
        return self.issued - SKEW <= now <= self.expires and self.expires - self.issued <= LIFETIME

    def _is_signed(self, network: bytes) -> bool:
        return verify_signature(self.signing, self.signature, _statement(network, self)) and self._can_be_sealed_for()

    def _can_be_sealed_for(self) -> bool:
        try:
            X25519PrivateKey.generate().exchange(self.sealing_key)
        except ValueError:
            return False
        return True

    @property
    def sealing_key(self) -> X25519PublicKey:
        """The key that seals messages for this peer."""
        return X25519PublicKey.from_public_bytes(self.sealing)


@dataclass(frozen=True)
class PeerIdentity:
    """The secret keys of a peer in one network."""

    signing: Ed25519PrivateKey
    sealing: X25519PrivateKey

    @classmethod
    def fresh(cls) -> PeerIdentity:
        """Draw new keys from the system's entropy."""
        return cls(Ed25519PrivateKey.generate(), X25519PrivateKey.generate())

    @classmethod
    def load(cls, secret: bytes) -> PeerIdentity:
        """Read the keys back."""
        return cls(
            Ed25519PrivateKey.from_private_bytes(secret[:KEY_BYTES]),
            X25519PrivateKey.from_private_bytes(secret[KEY_BYTES:]),
        )

    @property
    def secret(self) -> bytes:
        """The secret keys, to be kept in the device's file."""
        return self.signing.private_bytes_raw() + self.sealing.private_bytes_raw()

    @cached_property
    def public(self) -> bytes:
        """The public signing key."""
        return self.signing.public_key().public_bytes_raw()

    @cached_property
    def id(self) -> bytes:
        """The id by which others know this peer."""
        return peer_id(self.public)

    def record(self, network: bytes, now: int) -> PeerRecord:
        """Return a record of this peer, good from now on."""
        sealing = self.sealing.public_key().public_bytes_raw()
        bare = PeerRecord(self.public, sealing, now, now + LIFETIME, b"")
        return PeerRecord(self.public, sealing, now, now + LIFETIME, self.signing.sign(_statement(network, bare)))


def _statement(network: bytes, record: PeerRecord) -> bytes:
    return _LABEL + network + record.signing + record.sealing + _TIMES.pack(record.issued, record.expires)


def verify_signature(signing: bytes, signature: bytes, statement: bytes) -> bool:
    """Say whether a signature is that of a public key."""
    try:
        Ed25519PublicKey.from_public_bytes(signing).verify(signature, statement)
    except (InvalidSignature, ValueError):
        return False
    return True
