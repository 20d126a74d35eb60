"""Secret sharing. Additive sharing needs every piece to rebuild a secret, Shamir's any `threshold` of them.

Shares of Shamir's kind are points of a polynomial over the whole numbers modulo a prime just above 2^256, whose value
at 0 is the secret. A 32-byte key fits, and a share takes 33 bytes. The coefficients come from the system's entropy, or
from a key that does: the same key, secret and place then give the same share. Python's whole numbers are not constant
in time: secrets here live for one round, on the device that made them.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from functools import lru_cache

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tacit.errors import SecureSumError

PRIME = 2**256 + 297
SHARE_BYTES = 33
_DRAWN_BYTES = 48


def split_additively(secret: int, n_parts: int, modulus: int) -> list[int]:
    """Return `n_parts` numbers that add up to the secret; any fewer are uniformly random.

    >>> parts = split_additively(1000, 3, 2**32)
    >>> len(parts), sum(parts) % 2**32
    (3, 1000)
    """
    if n_parts < 1:
        raise SecureSumError("A secret cannot be split into zero parts.")
    parts = [secrets.randbelow(modulus) for _ in range(n_parts - 1)]
    return [*parts, (secret - sum(parts)) % modulus]


def join_additively(parts: Sequence[int], modulus: int) -> int:
    """Return the secret of which these are all parts.

    >>> join_additively([500, 300, 200], 2**32)
    1000
    """
    return sum(parts) % modulus


def split_secret(secret: int, places: Sequence[int], threshold: int, key: bytes | None = None) -> list[int]:
    """Return the share of each place (distinct, from 1 on); any `threshold` of them rebuild the secret.

    `key` is a secret of 32 bytes, for this one polynomial, from which its coefficients follow.

    >>> shares = dict(zip([1, 2, 3, 4], split_secret(42, [1, 2, 3, 4], threshold=3)))
    >>> join_shares({place: shares[place] for place in (4, 1, 2)})
    42
    """
    if not 0 <= secret < PRIME:
        raise SecureSumError("A secret for Shamir's sharing must be a whole number below 2^256 + 297.")
    if not 1 <= threshold <= len(places):
        raise SecureSumError(f"A threshold of {threshold} cannot be met by {len(places)} shares.")
    if len(set(places)) != len(places) or min(places) < 1:
        raise SecureSumError("Shares need distinct places, counted from 1.")
    coefficients = _draw_numbers(threshold - 1, key)
    shares = []
    for place in places:
        value = 0
        for coefficient in coefficients:  # Horner, highest power first; places are small, so one reduction at the end
            value = (value + coefficient) * place
        shares.append((value + secret) % PRIME)
    return shares


def _draw_numbers(n_numbers: int, key: bytes | None) -> list[int]:
    """Return numbers of the field, each from 384 bits of the system's entropy, or of a key's stream.

    They are uniform but for a chance of 2^-127.
    """
    if key is None:
        chance = secrets.token_bytes(_DRAWN_BYTES * n_numbers)
    else:
        stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
        chance = stream.update(bytes(_DRAWN_BYTES * n_numbers))
    return [
        int.from_bytes(chance[start : start + _DRAWN_BYTES], "little") % PRIME
        for start in range(0, len(chance), _DRAWN_BYTES)
    ]


def is_share(share: bytes) -> bool:
    """Say whether these bytes are a share: a number of the field, little endian."""
    return len(share) == SHARE_BYTES and (not share[-1] or int.from_bytes(share, "little") < PRIME)


def join_shares(shares: Mapping[int, int]) -> int:
    """Return the secret from the shares of exactly `threshold` places (or more)."""
    places = tuple(sorted(shares))
    weights = weights_at_zero(places)
    return sum(weight * shares[place] for weight, place in zip(weights, places, strict=True)) % PRIME


@lru_cache(maxsize=256)
def weights_at_zero(places: tuple[int, ...]) -> tuple[int, ...]:
    """Return Lagrange's weights that take the values at some places to the value at 0, with one modular inversion."""
    tops, bottoms = [], []
    for place in places:
        top = bottom = 1
        for other in places:
            if other != place:
                top = top * other % PRIME
                bottom = bottom * (other - place) % PRIME
        tops.append(top)
        bottoms.append(bottom)
    before = [1]
    for bottom in bottoms:
        before.append(before[-1] * bottom % PRIME)
    inverse = pow(before[-1], -1, PRIME)
    weights = [0] * len(places)
    for at in range(len(places) - 1, -1, -1):
        weights[at] = tops[at] * before[at] % PRIME * inverse % PRIME
        inverse = inverse * bottoms[at] % PRIME
    return tuple(weights)
