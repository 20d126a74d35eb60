"""What is derived in a round, each from one secret and for one purpose: keys of pairs, masks, hashes, codes."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tacit.protocols.secure_aggregation.bytes import ByteWriter, to_bits
from tacit.protocols.secure_aggregation.identity import KEY_BYTES, TAG_BYTES, KeyPair, tag

_WHOSE = struct.Struct("<IIB")


@dataclass(frozen=True)
class PairKeys:
    """What two neighbours share besides their mask: keys that seal boxes, one per direction, and one for codes."""

    mine: bytes = field(repr=False)
    theirs: bytes = field(repr=False)
    codes: bytes = field(repr=False)

    @classmethod
    def of(cls, own: KeyPair, position: int, other: bytes, participant: int, context: bytes) -> PairKeys:
        """Agree on them with the participant whose public sealing key is `other`."""
        info = b"seal" + _both(position, participant)
        cut = own.agree(other, context, info, 3 * KEY_BYTES, participant)
        up, down, codes = cut[:KEY_BYTES], cut[KEY_BYTES : 2 * KEY_BYTES], cut[2 * KEY_BYTES :]
        return cls(up, down, codes) if position < participant else cls(down, up, codes)


def _both(one: int, other: int) -> bytes:
    return min(one, other).to_bytes(4, "little") + max(one, other).to_bytes(4, "little")


def pair_mask(own: KeyPair, position: int, other: bytes | X25519PublicKey, participant: int, context: bytes) -> bytes:
    """Return the key of the stream by which two neighbours hide their vectors: one adds it, the other takes it away."""
    return own.agree(other, context, b"mask" + _both(position, participant), KEY_BYTES, participant)


def own_mask(context: bytes, participant: int, seed: bytes) -> bytes:
    """Return the key of the self mask, which hides a participant's vector even when all pair masks are known."""
    return HKDF(SHA256(), KEY_BYTES, context, b"own" + participant.to_bytes(4, "little")).derive(seed)


def sharing_key(context: bytes, participant: int, secret: bytes, of_self_mask: bool) -> bytes:
    """Return the key of the polynomial that shares one of a participant's two secrets, from a secret never shared.

    Whatever copy of a device shares again, each neighbour's box holds the same: its key and nonce seal it once.
    """
    return HKDF(SHA256(), KEY_BYTES, context, b"polynomial" + _WHOSE.pack(participant, 0, of_self_mask)).derive(secret)


def link(own: KeyPair, other: bytes, participant: int, context: bytes) -> bytes:
    """Return the key with which a device authenticates its messages to the server."""
    return own.agree(other, context, b"link" + participant.to_bytes(4, "little"), KEY_BYTES, participant)


def commitment_to(context: bytes, participant: int, seed: bytes) -> bytes:
    """Return the commitment to the seed of a participant's self mask."""
    return hashlib.sha256(ByteWriter().raw(b"seed").raw(context).number(participant, 4).raw(seed).done()).digest()


def share_hash(context: bytes, dealer: int, holder: int, of_self_mask: bool, share: bytes) -> bytes:
    """Return the hash by which a share is checked: shares are uniformly random, so hashes reveal nothing of them."""
    whose = _WHOSE.pack(dealer, holder, of_self_mask)
    return hashlib.sha256(b"share" + context + whose + share).digest()[:TAG_BYTES]


def survivors_hash(context: bytes, participants: frozenset[int], n_participants: int) -> bytes:
    """Return the hash of who is in a sum."""
    return hashlib.sha256(b"survivors" + context + to_bits(participants, n_participants)).digest()


def code_between(key: bytes, sender: int, receiver: int, content: bytes) -> bytes:
    """Return the code with which a neighbour confirms to another which list it received."""
    return tag(key, sender.to_bytes(4, "little") + receiver.to_bytes(4, "little") + content)
