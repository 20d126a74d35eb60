"""Who shares masks with whom."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import pytest
from scipy.stats import hypergeom

from helpers.refusals import refused
from tacit.errors import SecureSumError
from tacit.protocols.secure_aggregation.graph import STUCK, UNSAFE, WHOLE_UP_TO, NeighbourGraph, plan_masking
from tacit.reasons import ReasonCode


@pytest.mark.parametrize(("n_participants", "degree"), [(2, 1), (6, 5), (6, 4), (6, 2), (151, 40)])
def test_neighbourhood_is_mutual_and_even(n_participants: int, degree: int) -> None:
    graph = NeighbourGraph(n_participants, degree, bytes(32))
    for person in range(n_participants):
        near = graph.neighbours(person)
        assert len(near) == degree
        assert person not in near
        assert all(person in graph.neighbours(other) for other in near)


def test_the_order_follows_from_the_key_alone() -> None:
    one, same, other = (NeighbourGraph(200, 10, key) for key in (bytes(32), bytes(32), b"\1" * 32))
    assert [one.neighbours(i) for i in range(200)] == [same.neighbours(i) for i in range(200)]
    assert [one.neighbours(i) for i in range(200)] != [other.neighbours(i) for i in range(200)]
    shared = sum(len(one.neighbours(i) & other.neighbours(i)) for i in range(200))
    assert shared < 300, "two orders of 200 people should have about 100 of 2000 neighbourhoods in common"


@pytest.mark.parametrize(("corrupted", "dropped"), [(0.1, 0.1), (0.2, 0.1), (1 / 3, 0.1), (0.2, 0.2)])
@pytest.mark.parametrize("n_participants", [151, 1000])
def test_degree_and_threshold_keep_what_they_promise(n_participants: int, corrupted: float, dropped: float) -> None:
    chosen = plan_masking(n_participants, corrupted, dropped)
    assert chosen.degree < n_participants - 1
    n_corrupted, n_dropped = int(corrupted * n_participants), int(dropped * n_participants)
    helped = 2 * chosen.threshold - chosen.degree  # so many cheats could make both halves answer
    unsafe = hypergeom.sf(helped - 1, n_participants - 1, n_corrupted, chosen.degree)
    stuck = hypergeom.sf(chosen.degree - chosen.threshold, n_participants - 1, n_dropped, chosen.degree)
    assert n_participants * unsafe < UNSAFE
    assert n_participants * stuck < STUCK


def test_small_cohorts_are_whole_and_more_than_half_of_the_honest_must_help() -> None:
    for n_participants in range(2, WHOLE_UP_TO, 7):
        chosen = plan_masking(n_participants, 0.2, 0.1)
        assert chosen.degree == n_participants - 1
        assert 2 * chosen.threshold > chosen.degree + int(0.2 * n_participants)


def test_what_no_threshold_serves_is_refused() -> None:
    with refused(SecureSumError, ReasonCode.NO_SAFE_THRESHOLD, cohort=20, corrupted=10, dropped=8):
        plan_masking(20, 0.5, 0.4)
    with refused(SecureSumError, ReasonCode.COHORT_TOO_SMALL, cohort=1, needed=2):
        plan_masking(1, 0.0, 0.0)


@pytest.mark.parametrize("n_participants", [1000, 8000, 10_000, 16_384, 100_000])
def test_the_plan_of_large_cohorts_keeps_its_promise_in_whole_numbers(n_participants: int) -> None:
    """Doubles have no digits left of 1 - 2^-40 / n: the tails are compared with exact fractions."""
    chosen = plan_masking(n_participants, 0.2, 0.1)
    assert chosen.degree <= 200, "it grows with the logarithm of the cohort"
    helped, missing = 2 * chosen.threshold - chosen.degree, chosen.degree - chosen.threshold + 1
    unsafe = chance_of(helped, n_participants - 1, n_participants // 5, chosen.degree)
    stuck = chance_of(missing, n_participants - 1, n_participants // 10, chosen.degree)
    assert n_participants * unsafe <= Fraction(UNSAFE)
    assert n_participants * stuck <= Fraction(STUCK)
    fewer = helped - 2  # of the threshold before
    assert n_participants * chance_of(fewer, n_participants - 1, n_participants // 5, chosen.degree) > Fraction(UNSAFE)


def chance_of(least: int, n_others: int, n_marked: int, drawn: int) -> Fraction:
    """Return the exact probability that at least so many of those drawn are marked."""
    ways = sum(comb(n_marked, k) * comb(n_others - n_marked, drawn - k) for k in range(least, min(n_marked, drawn) + 1))
    return Fraction(ways, comb(n_others, drawn))
