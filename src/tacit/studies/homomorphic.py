"""Sums of encrypted updates, to measure secure sums against: Paillier as in FedMF, and packed BFV. Not for protection.

One party must hold the secret key, and can read every single update. In FedMF (Chai et al., 2020) all users
hold it: one of them who colludes with the server exposes all others. Nothing here ties keys to a round, names
adversaries or survives a key holder who leaves, and Python's whole numbers take a time that depends on them. The secure
sum (`tacit.protocols.secure_aggregation`) asks for none of this.

    Paillier    one number per ciphertext, or many side by side (packed); any number of additions
    BFV         4,096 numbers per ciphertext on a lattice, by `tenseal` (the extra `he`)

Both add whole numbers of a ring of 32 bits: each of `n_participants` adds at most `bound` in size, and the sums are
exact.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric import rsa
from numpy.typing import NDArray

from tacit.errors import RangeError, SecureSumError

SLOT_BITS = 32  # of one number side by side with others
BFV_DEGREE = 4096  # numbers per ciphertext; with 109 bits of modulus this is the usual 128-bit security
BFV_MODULUS = 8590090241  # a prime just above 2^33, 1 modulo 2 * BFV_DEGREE: signed sums of 32 bits have room

Whole = NDArray[np.int64]


@dataclass(frozen=True)
class PaillierKey:
    """The public half: encrypts and adds."""

    n: int

    @cached_property
    def _square(self) -> int:
        return self.n * self.n

    @property
    def ciphertext_bytes(self) -> int:
        """How long one ciphertext is."""
        return (self._square.bit_length() + 7) // 8

    @property
    def slots(self) -> int:
        """How many numbers fit side by side into one ciphertext."""
        return (self.n.bit_length() - 1) // SLOT_BITS

    def encrypt(self, number: int) -> int:
        """Return a fresh ciphertext of a number from 0 to n - 1."""
        if not 0 <= number < self.n:
            raise RangeError("Paillier encrypts whole numbers from 0 to below its modulus.")
        chance = 1 + secrets.randbelow(self.n - 1)
        return (1 + number * self.n) * pow(chance, self.n, self._square) % self._square

    def add(self, one: int, other: int) -> int:
        """Return a ciphertext of the sum."""
        return one * other % self._square

    def encrypt_vector(self, numbers: Whole, bound: int, *, packed: bool = True) -> list[int]:
        """Encrypt whole numbers of at most `bound` in size: side by side, or each on its own as in FedMF."""
        if len(numbers) and int(np.abs(numbers).max()) > bound:
            raise RangeError(f"A number of {int(np.abs(numbers).max())} is larger than the bound of {bound}.")
        shifted = (numbers + bound).tolist()  # from 0 on
        if not packed:
            return [self.encrypt(number) for number in shifted]
        return [self.encrypt(_beside(shifted[at : at + self.slots])) for at in range(0, len(shifted), self.slots)]

    def add_vectors(self, vectors: Sequence[Sequence[int]]) -> list[int]:
        """Return ciphertexts of the sums."""
        total = list(vectors[0])
        for vector in vectors[1:]:
            total = [self.add(one, other) for one, other in zip(total, vector, strict=True)]
        return total


@dataclass(frozen=True)
class PaillierSecret:
    """The secret half: two primes. Whoever has it reads everything."""

    p: int = field(repr=False)
    q: int = field(repr=False)

    @classmethod
    def fresh(cls, bits: int = 2048) -> PaillierSecret:
        """Make one; the primes are those of an RSA key of so many bits."""
        primes = rsa.generate_private_key(65537, bits).private_numbers()
        return cls(primes.p, primes.q)

    @cached_property
    def public(self) -> PaillierKey:
        """The public half."""
        return PaillierKey(self.p * self.q)

    @cached_property
    def _halves(self) -> tuple[tuple[int, int, int], ...]:
        """Per prime: itself, its square, and the factor that takes a power back to the number."""
        found = []
        for prime in (self.p, self.q):
            power = pow(self.public.n + 1, prime - 1, prime * prime)
            found.append((prime, prime * prime, pow((power - 1) // prime, -1, prime)))
        return tuple(found)

    def decrypt(self, ciphertext: int) -> int:
        """Return the number, by the two primes apart."""
        (p, p_square, p_factor), (q, q_square, q_factor) = self._halves
        of_p = (pow(ciphertext, p - 1, p_square) - 1) // p * p_factor % p
        of_q = (pow(ciphertext, q - 1, q_square) - 1) // q * q_factor % q
        return of_p + (of_q - of_p) * pow(p, -1, q) % q * p

    def decrypt_sum(
        self, ciphertexts: Sequence[int], size: int, n_participants: int, bound: int, *, packed: bool = True
    ) -> Whole:
        """Return the `size` sums of what `n_people` encrypted with this bound."""
        if n_participants * 2 * bound >= 2**SLOT_BITS:
            raise RangeError(f"The sum of {n_participants} users of at most {bound} each leaves {SLOT_BITS} bits.")
        numbers = [self.decrypt(one) for one in ciphertexts]
        if packed:
            numbers = [part for number in numbers for part in _apart(number, self.public.slots)][:size]
        return np.array(numbers, np.int64) - n_participants * bound


def _beside(numbers: Sequence[int]) -> int:
    """Return numbers below 2^32 as one, the first lowest.

    >>> _beside([1, 2]) == 1 + 2 * 2**32
    True
    """
    return int.from_bytes(np.array(numbers, f"<u{SLOT_BITS // 8}").tobytes(), "little")


def _apart(number: int, slots: int) -> list[int]:
    data = number.to_bytes(slots * SLOT_BITS // 8 + 1, "little")
    parts: list[int] = np.frombuffer(data, f"<u{SLOT_BITS // 8}", slots).tolist()
    return parts


class Bfv:
    """A secret key of BFV, 4,096 numbers to a ciphertext. `tenseal` makes and adds them."""

    def __init__(self) -> None:
        """Make the keys; without the extra `he` this says what to install."""
        try:
            import tenseal
        except ImportError:
            raise SecureSumError(
                "BFV needs the library tenseal, which is not installed.",
                "Where Tacit's source lies, run: pip install -e '.[he]'.",
            ) from None
        self._library: Any = tenseal
        self._keys = tenseal.context(tenseal.SCHEME_TYPE.BFV, poly_modulus_degree=BFV_DEGREE, plain_modulus=BFV_MODULUS)

    def encrypt_vector(self, numbers: Whole, bound: int) -> list[bytes]:
        """Encrypt whole numbers of at most `bound` in size, as they travel."""
        if len(numbers) and int(np.abs(numbers).max()) > bound:
            raise RangeError(f"A number of {int(np.abs(numbers).max())} is larger than the bound of {bound}.")
        pieces = (numbers[at : at + BFV_DEGREE].tolist() for at in range(0, len(numbers), BFV_DEGREE))
        return [self._library.bfv_vector(self._keys, piece).serialize() for piece in pieces]

    def add_vectors(self, vectors: Sequence[Sequence[bytes]]) -> list[bytes]:
        """Return ciphertexts of the sums; the secret key is not used."""
        total = [self._read(one) for one in vectors[0]]
        for vector in vectors[1:]:
            for at, one in enumerate(vector):
                total[at] += self._read(one)
        return [one.serialize() for one in total]

    def decrypt_sum(self, ciphertexts: Sequence[bytes], n_participants: int, bound: int) -> Whole:
        """Return the sums of what `n_people` encrypted with this bound."""
        if n_participants * bound >= BFV_MODULUS // 2:
            raise RangeError(f"The sum of {n_participants} users of at most {bound} each leaves BFV's numbers.")
        parts = [np.array(self._read(one).decrypt(), np.int64) for one in ciphertexts]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def _read(self, ciphertext: bytes) -> Any:
        return self._library.bfv_vector_from(self._keys, ciphertext)
