"""Sums of encrypted updates are the ring's sums; keys that are too small for them refuse."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from tacit.errors import RangeError, SecureSumError
from tacit.protocols.secure_aggregation.masks import Vector
from tacit.studies.homomorphic import BFV_DEGREE, BFV_MODULUS, Bfv, PaillierSecret

N_PEOPLE = 5
BOUND = (2**31 - 1) // N_PEOPLE
KEY_BITS = 1024  # the smallest that is made; 2,048 and more are measured by `tacit reproduce secure-costs`


@pytest.fixture(scope="module")
def secret() -> PaillierSecret:
    return PaillierSecret.fresh(KEY_BITS)


def updates(size: int) -> list[np.ndarray]:
    """Return what some people send: ordinary numbers, and the largest and smallest that there may be."""
    made = [np.random.default_rng(person).integers(-BOUND, BOUND + 1, size) for person in range(N_PEOPLE)]
    for one in made:
        one[0], one[-1] = BOUND, -BOUND
    return made


def ring_sum(people: list[np.ndarray]) -> np.ndarray:
    """Return the sum as the secure sum's vector makes it, modulo 2^32."""
    total = Vector((0, len(people[0]), 0))
    for one in people:
        total.add(one.astype("<u4", casting="unsafe").tobytes())
    return total.parts[1].view("<i4").astype(np.int64)


def test_paillier_adds_under_encryption_and_never_repeats_itself(secret: PaillierSecret) -> None:
    key = secret.public
    one, other = key.encrypt(20), key.encrypt(22)
    assert secret.decrypt(key.add(one, other)) == 42
    assert key.encrypt(20) != one
    assert secret.decrypt(key.encrypt(key.n - 1)) == key.n - 1
    assert repr(secret) == "PaillierSecret()"
    for number in (-1, key.n):
        with pytest.raises(RangeError):
            key.encrypt(number)


@pytest.mark.slow
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "each on its own"])
def test_paillier_sums_are_the_rings(secret: PaillierSecret, packed: bool) -> None:
    key, size = secret.public, 40 if packed else 6
    people = updates(size)
    sent = [key.encrypt_vector(one, BOUND, packed=packed) for one in people]
    assert len(sent[0]) == (-(-size // key.slots) if packed else size)
    assert all(one.bit_length() <= 8 * key.ciphertext_bytes for one in sent[0])
    found = secret.decrypt_sum(key.add_vectors(sent), size, N_PEOPLE, BOUND, packed=packed)
    assert np.array_equal(found, ring_sum(people))
    assert np.array_equal(found, sum(people))


def test_sums_that_would_leave_their_place_are_refused(secret: PaillierSecret) -> None:
    with pytest.raises(RangeError, match="larger than the bound"):
        secret.public.encrypt_vector(np.array([BOUND + 1]), BOUND)
    with pytest.raises(RangeError, match="leaves 32 bits"):
        secret.decrypt_sum([], 0, N_PEOPLE + 1, BOUND + 1)


def test_bfv_sums_are_the_rings() -> None:
    pytest.importorskip("tenseal")
    keys, people = Bfv(), updates(BFV_DEGREE + 100)
    sent = [keys.encrypt_vector(one, BOUND) for one in people]
    assert len(sent[0]) == 2
    found = keys.decrypt_sum(keys.add_vectors(sent), N_PEOPLE, BOUND)
    assert np.array_equal(found, ring_sum(people))
    assert keys.encrypt_vector(people[0], BOUND) != sent[0]
    with pytest.raises(RangeError, match="larger than the bound"):
        keys.encrypt_vector(np.array([BOUND + 1]), BOUND)
    with pytest.raises(RangeError, match="leaves BFV's numbers"):
        keys.decrypt_sum([], 2, BFV_MODULUS)


def test_without_the_library_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tenseal", None)
    with pytest.raises(SecureSumError, match=r"\.\[he\]"):
        Bfv()
