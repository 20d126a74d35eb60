"""Who shares masks with whom."""

from __future__ import annotations

import pytest
from scipy.stats import hypergeom

from helpers.refusals import refused
from tacit.errors import SecureSumError
from tacit.protocols.secure_aggregation.graph import STUCK, UNSAFE, WHOLE_UP_TO, NeighbourGraph, plan_masking
from tacit.reasons import ReasonCode


@pytest.mark.parametrize(("n_people", "degree"), [(2, 1), (6, 5), (6, 4), (6, 2), (151, 40)])
def test_neighbourhood_is_mutual_and_even(n_people: int, degree: int) -> None:
    graph = NeighbourGraph(n_people, degree, bytes(32))
    for person in range(n_people):
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
@pytest.mark.parametrize("n_people", [151, 1000])
def test_degree_and_threshold_keep_what_they_promise(n_people: int, corrupted: float, dropped: float) -> None:
    chosen = plan_masking(n_people, corrupted, dropped)
    assert chosen.degree < n_people - 1
    n_corrupted, n_dropped = int(corrupted * n_people), int(dropped * n_people)
    helped = 2 * chosen.threshold - chosen.degree  # so many cheats could make both halves answer
    unsafe = hypergeom.sf(helped - 1, n_people - 1, n_corrupted, chosen.degree)
    stuck = hypergeom.sf(chosen.degree - chosen.threshold, n_people - 1, n_dropped, chosen.degree)
    assert n_people * unsafe < UNSAFE
    assert n_people * stuck < STUCK


def test_small_cohorts_are_whole_and_more_than_half_of_the_honest_must_help() -> None:
    for n_people in range(2, WHOLE_UP_TO, 7):
        chosen = plan_masking(n_people, 0.2, 0.1)
        assert chosen.degree == n_people - 1
        assert 2 * chosen.threshold > chosen.degree + int(0.2 * n_people)


def test_what_no_threshold_serves_is_refused() -> None:
    with refused(SecureSumError, ReasonCode.NO_SAFE_THRESHOLD, cohort=20, corrupted=10, dropped=8):
        plan_masking(20, 0.5, 0.4)
    with refused(SecureSumError, ReasonCode.COHORT_TOO_SMALL, cohort=1, needed=2):
        plan_masking(1, 0.0, 0.0)
