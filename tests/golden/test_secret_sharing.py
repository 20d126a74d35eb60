"""Three salaries and their average, as in Ferrara's thesis (example 3.3, table 3.1)."""

from __future__ import annotations

from tacit.protocols.secure_aggregation.shamir import join_additively, split_additively

MODULUS = 2**32
SALARIES = {"Alice": 1000, "Bob": 2000, "Caroline": 3000}
PRINTED = {
    "Alice": (500, 300, 200),
    "Bob": (-800, 1000, 1800),
    "Caroline": (0, 3500, -500),
}  # Caroline's first is left out


def signed(number: int) -> int:
    return number - MODULUS if number >= MODULUS // 2 else number


def test_the_printed_shares_are_shares_of_the_salaries() -> None:
    for name, shares in PRINTED.items():
        assert join_additively(shares, MODULUS) == SALARIES[name]


def test_each_party_adds_what_it_received_and_the_sums_are_shares_of_the_sum() -> None:
    local = [sum(column) for column in zip(*PRINTED.values(), strict=True)]
    assert local == [-300, 4800, 1500]
    assert join_additively(local, MODULUS) == 6000
    assert join_additively(local, MODULUS) / 3 == 2000


def test_shares_of_our_own_lead_to_the_same_average() -> None:
    dealt = [split_additively(salary, 3, MODULUS) for salary in SALARIES.values()]
    local = [sum(column) % MODULUS for column in zip(*dealt, strict=True)]
    assert signed(join_additively(local, MODULUS)) / 3 == 2000
    assert dealt != [split_additively(salary, 3, MODULUS) for salary in SALARIES.values()]
