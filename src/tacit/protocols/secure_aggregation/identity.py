"""Identities and keys: a long-term Ed25519 identity per device, X25519 keys per round, and keys derived from them."""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field
from functools import cached_property

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tacit.errors import ForgedError
from tacit.reasons import ReasonCode

KEY_BYTES = 32
SIGNATURE_BYTES = 64
TAG_BYTES = 16


@dataclass(frozen=True)
class Identity:
    """A device's own signing key, and the name by which other devices know it: the public half of its first key."""

    secret: bytes = field(repr=False)
    name: bytes = b""  # empty: this key is the first

    @classmethod
    def fresh(cls) -> Identity:
        """Make one from the system's entropy."""
        return cls(secrets.token_bytes(KEY_BYTES))

    @cached_property
    def _key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.secret)

    @cached_property
    def key(self) -> bytes:
        """The public half of this key, 32 bytes."""
        return self._key.public_key().public_bytes_raw()

    @property
    def public(self) -> bytes:
        """The name, 32 bytes: it stays when the key is changed."""
        return self.name or self.key

    def renew(self) -> Identity:
        """Return the same name with a new key."""
        return Identity(secrets.token_bytes(KEY_BYTES), self.public)

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message, 64 bytes."""
        return self._key.sign(message)


def verify(public: bytes, message: bytes, signature: bytes, sender: int) -> None:
    """Refuse a message that the holder of `public`, at position `sender` of the cohort, has not signed."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        raise ForgedError.because(ReasonCode.BAD_SIGNATURE, sender=sender) from None


@dataclass(frozen=True)
class KeyPair:
    """One X25519 key pair of one round."""

    secret: bytes = field(repr=False)

    @classmethod
    def fresh(cls) -> KeyPair:
        """Make one from the system's entropy."""
        return cls(secrets.token_bytes(KEY_BYTES))

    @cached_property
    def _key(self) -> X25519PrivateKey:
        return X25519PrivateKey.from_private_bytes(self.secret)

    @cached_property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        return self._key.public_key().public_bytes_raw()

    def agree(self, other: bytes | X25519PublicKey, context: bytes, info: bytes, size: int, sender: int) -> bytes:
        """Return `size` bytes that only the holders of the two secrets know, for this context and purpose only.

        `other` is the public key of the participant at position `sender`, or its point where that is used more than
        once; points of low order are refused.
        """
        point = point_of(other, sender) if isinstance(other, bytes) else other
        try:
            shared = self._key.exchange(point)
        except ValueError:
            raise _useless(sender) from None
        return HKDF(SHA256(), size, context, info).derive(shared)


def point_of(public: bytes, sender: int) -> X25519PublicKey:
    """Return the public key of the participant at position `sender` in the form that keys are agreed with."""
    try:
        return X25519PublicKey.from_public_bytes(public)
    except ValueError:
        raise _useless(sender) from None


def _useless(sender: int) -> ForgedError:
    return ForgedError.because(ReasonCode.BAD_KEY, sender=sender)


def tag(key: bytes, message: bytes) -> bytes:
    """Return a short code that authenticates a message to holders of the same key."""
    return hmac.digest(key, message, "sha256")[:TAG_BYTES]


def check_tag(key: bytes, message: bytes, seen: bytes, sender: int) -> None:
    """Refuse a message whose code was not made with this key."""
    if not hmac.compare_digest(tag(key, message), seen):
        raise ForgedError.because(ReasonCode.BAD_TAG, sender=sender)
