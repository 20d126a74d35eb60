"""Secrets in pieces."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import SecureSumError
from tacit.protocols.secure_aggregation import shamir


def is_prime(n: int) -> bool:
    """Miller and Rabin's test."""
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37):
        x = pow(base, odd, n)
        if x in (1, n - 1):
            continue
        for _ in range(twos - 1):
            x = x * x % n
            if x == n - 1:
                break
        else:
            return False
    return True


def test_the_field_holds_every_32_byte_key() -> None:
    assert is_prime(shamir.PRIME)
    assert shamir.PRIME > 2**256
    assert shamir.PRIME < 2 ** (8 * shamir.SHARE_BYTES)


@settings(max_examples=60)
@given(st.integers(0, 2**256 - 1), st.integers(1, 7), st.integers(0, 4))
def test_any_threshold_of_shares_rebuilds_and_more_do_too(secret: int, threshold: int, more: int) -> None:
    places = list(range(3, 3 + threshold + more))
    shares = dict(zip(places, shamir.split_secret(secret, places, threshold), strict=True))
    for some in combinations(places, threshold):
        assert shamir.join_shares({place: shares[place] for place in some}) == secret
    assert shamir.join_shares(shares) == secret


def test_fewer_shares_fit_every_secret() -> None:
    places, threshold = [1, 2, 3, 4, 5], 3
    shares = dict(zip(places, shamir.split_secret(99, places, threshold), strict=True))
    two = {place: shares[place] for place in (2, 5)}
    for secret in (0, 1, 99, 2**255):  # a third share exists that makes the same two lead to any secret
        weights = shamir.weights_at_zero((2, 4, 5))
        rest = secret - weights[0] * two[2] - weights[2] * two[5]
        third = rest * pow(weights[1], -1, shamir.PRIME) % shamir.PRIME
        assert shamir.join_shares({**two, 4: third}) == secret


def test_shares_are_drawn_anew() -> None:
    assert shamir.split_secret(5, [1, 2, 3], 2) != shamir.split_secret(5, [1, 2, 3], 2)


def test_shares_add_up_to_shares_of_the_sum() -> None:
    one, two = shamir.split_secret(1000, [1, 2, 3], 2), shamir.split_secret(234, [1, 2, 3], 2)
    added = {place: (a + b) % shamir.PRIME for place, a, b in zip([1, 2, 3], one, two, strict=True)}
    assert shamir.join_shares({place: added[place] for place in (1, 3)}) == 1234


@pytest.mark.parametrize(
    ("secret", "places", "threshold"),
    [(-1, [1, 2], 1), (shamir.PRIME, [1, 2], 1), (1, [1, 2], 3), (1, [1, 2], 0), (1, [1, 1], 2), (1, [0, 1], 2)],
)
def test_what_cannot_be_shared_is_refused(secret: int, places: list[int], threshold: int) -> None:
    with pytest.raises(SecureSumError):
        shamir.split_secret(secret, places, threshold)


def test_no_parts_are_refused() -> None:
    with pytest.raises(SecureSumError):
        shamir.split_additively(1, 0, 2**32)


def test_a_share_is_a_number_of_the_field_in_33_bytes() -> None:
    for number, fits in ((0, True), (shamir.PRIME - 1, True), (shamir.PRIME, False), (2**264 - 1, False)):
        assert shamir.is_share(number.to_bytes(shamir.SHARE_BYTES, "little")) is fits
    assert not shamir.is_share(bytes(32))
    assert not shamir.is_share(bytes(34))


def test_shares_of_many_fill_the_field_evenly() -> None:
    """One reduction at the end, and coefficients from 384 bits each: the top bits of shares fall everywhere."""
    shares = [share for _ in range(40) for share in shamir.split_secret(7, range(1, 101), 60)]
    tops = [sum(share >> 252 == top for share in shares) for top in range(16)]
    assert all(0 <= share < shamir.PRIME for share in shares)
    assert sum((seen - 250) ** 2 / 250 for seen in tops) < 60  # chi-square, 15 degrees of freedom: 1 in 10^6
