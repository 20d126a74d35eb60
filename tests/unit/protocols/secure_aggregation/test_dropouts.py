"""The sum is exact for whoever remains, and nothing is unmasked where too few do."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np
import pytest

from helpers.refusals import refused
from helpers.secure_session import PHASES, Party, terms
from tacit.errors import AbortedError, DevicePolicyError
from tacit.protocols.secure_aggregation.graph import NeighbourGraph, plan_masking
from tacit.protocols.secure_aggregation.local_session import can_finish
from tacit.protocols.secure_aggregation.server import ServerPhase
from tacit.reasons import ReasonCode

pytestmark = pytest.mark.slow

NEVER = ServerPhase.DONE


def expected(party: Party, leaves: Mapping[int, ServerPhase]) -> bool:
    """Say whether a session can be finished by those who remain, from the definition."""
    session, all_participants = party.server.session, range(len(party.devices))

    def there(phase: ServerPhase) -> set[int]:
        return {person for person in all_participants if leaves.get(person, NEVER) > phase}

    def near(person: int, people: set[int]) -> int:
        return len(session.graph.neighbours(person) & people)

    least, threshold = session.terms.n_min, session.terms.threshold
    sharing, vectors = there(ServerPhase.SHARES), there(ServerPhase.VECTORS)
    needing = {
        ServerPhase.ADVERTS: there(ServerPhase.ADVERTS),
        ServerPhase.SHARES: sharing,
        ServerPhase.VECTORS: sharing,
        ServerPhase.CONFIRMATIONS: there(ServerPhase.CONFIRMATIONS),
    }
    for phase, people in needing.items():
        if len(there(phase)) < least or any(near(person, there(phase)) < threshold for person in people):
            return False
    last = there(ServerPhase.UNMASKINGS)
    rebuilt = (vectors - last) | (sharing - vectors)
    return all(near(person, last) >= threshold for person in rebuilt)


def check(n_participants: int, degree: int, threshold: int, leaves: Mapping[int, ServerPhase]) -> bool:
    party = Party.of(n_participants, degree=degree, threshold=threshold)
    can_be_done = expected(party, leaves)
    try:
        party.run(leaves=leaves)
    except AbortedError:
        assert not can_be_done, f"{leaves} should have been survived"
        assert party.server.phase == ServerPhase.ABORTED
        assert not party.is_right() or not party.server.survivors
        return False
    assert can_be_done, f"{leaves} should have been called off"
    assert party.server.survivors == {p for p in range(n_participants) if leaves.get(p, NEVER) > ServerPhase.VECTORS}
    assert party.is_right(), leaves
    return True


GRAPHS = {
    "whole of 2": (2, 1, 1),
    "whole of 3": (3, 2, 2),
    "ring of 4": (4, 2, 2),
    "whole of 4": (4, 3, 2),
    "ring of 5": (5, 2, 2),
    "whole of 5": (5, 4, 3),
}


@pytest.mark.parametrize("graph", ["whole of 2", "whole of 3"])
def test_every_way_of_dropping_out_of_a_small_cohort(graph: str) -> None:
    n_participants, degree, threshold = GRAPHS[graph]
    ways = list(product((*PHASES, NEVER), repeat=n_participants))
    done = sum(check(n_participants, degree, threshold, dict(enumerate(way))) for way in ways)
    assert 0 < done < len(ways)


@pytest.mark.parametrize("graph", ["ring of 4", "whole of 4", "ring of 5", "whole of 5"])
def test_every_way_of_dropping_out_of_four_and_five(graph: str) -> None:
    n_participants, degree, threshold = GRAPHS[graph]
    check_every_way_to_drop_out(n_participants, degree, threshold)


@pytest.mark.fuzz
@pytest.mark.parametrize(("n_participants", "degree", "threshold"), [(6, 5, 3), (6, 4, 3), (6, 2, 2)])
def test_every_way_of_dropping_out_of_six(n_participants: int, degree: int, threshold: int) -> None:
    check_every_way_to_drop_out(n_participants, degree, threshold)


def check_every_way_to_drop_out(n_participants: int, degree: int, threshold: int) -> None:
    """Let people drop out in every way, as a tree: ways that begin alike are walked once up to where they part.

    A cohort of those who advertise is a smaller cohort, so that all do here.
    """
    party = Party.of(n_participants, degree=degree, threshold=threshold)
    party.step()
    n_ways = {True: 0, False: 0}
    _branch(party, {}, n_ways)
    assert sum(n_ways.values()) == len(PHASES) ** n_participants
    assert n_ways[True]
    assert n_ways[False]


def _branch(party: Party, leaves: dict[int, ServerPhase], n_ways: dict[bool, int]) -> None:
    """Try every participant that may leave in this phase; below, all ways that begin so."""
    phase, there = party.server.phase, sorted(set(range(len(party.devices))) - leaves.keys())
    for stays in product((True, False), repeat=len(there)):
        now = {**leaves, **{person: phase for person, stay in zip(there, stays, strict=True) if not stay}}
        twig, can_be_done = party.fork(), expected(party, now)
        try:
            twig.step(gone=list(now))
        except AbortedError:
            assert not can_be_done, f"{now} should have been survived"
            assert twig.server.phase == ServerPhase.ABORTED
            n_ways[False] += (ServerPhase.DONE - phase) ** sum(stays)
            continue
        if twig.server.phase < ServerPhase.DONE:
            _branch(twig, now, n_ways)
            continue
        assert can_be_done, f"{now} should have been called off"
        assert twig.server.survivors == {p for p in there + list(now) if now.get(p, NEVER) > ServerPhase.VECTORS}
        assert twig.is_right(), now
        n_ways[True] += 1


@pytest.mark.fuzz
@pytest.mark.parametrize(("share", "failing"), [(0.1, 0), (0.2, 1)])
def test_a_thousand_rounds_in_which_people_drop_out(share: float, failing: int) -> None:
    """Each person drops out with this probability, in any phase."""
    generator, n_participants = np.random.default_rng(17), 20 if share < 0.2 else 30
    chosen = plan_masking(n_participants, 0.1, 0.3)
    failed = 0
    for _ in range(1000):
        gone = np.flatnonzero(generator.random(n_participants) < share)
        leaves = {int(person): PHASES[int(generator.integers(5))] for person in gone}
        failed += not check(n_participants, chosen.degree, chosen.threshold, leaves)
    assert failed <= failing


@pytest.mark.fuzz
@pytest.mark.parametrize(
    ("n_participants", "corrupted", "rounds"), [(20, 0.2, 20_000), (50, 0.2, 20_000), (120, 0.2, 4000)]
)
def test_how_often_rounds_fail(n_participants: int, corrupted: float, rounds: int) -> None:
    """By the rule alone, without messages; printed with `-s`, per thousand."""
    chosen = plan_masking(n_participants, corrupted, 0.2)
    graph = NeighbourGraph(n_participants, chosen.degree, bytes(32))
    for share, most in ((0.1, 1), (0.2, 20)):
        generator, failed = np.random.default_rng(17), 0
        for _ in range(rounds):
            gone = np.flatnonzero(generator.random(n_participants) < share)
            leaves = {int(person): PHASES[int(generator.integers(5))] for person in gone}
            failed += not can_finish(graph, 2, chosen.threshold, leaves)
        print(f"{n_participants} people, {chosen}, {share:.0%} dropping: {1000 * failed / rounds:.2f}")
        assert 1000 * failed / rounds <= most


def test_one_dropout_in_any_phase_costs_six_participants_nothing_else() -> None:
    for person, phase in product(range(6), PHASES):
        assert check(6, 5, 4, {person: phase})
        assert check(6, 4, 3, {person: phase})


@pytest.mark.slow
def test_a_large_cohort_on_a_ring_survives_a_tenth_dropping() -> None:
    n_participants = 160
    chosen = plan_masking(n_participants, 0.05, 0.1)
    assert chosen.degree < n_participants - 1
    generator = np.random.default_rng(3)
    gone = generator.choice(n_participants, n_participants // 10, replace=False)
    leaves = {int(person): PHASES[int(generator.integers(5))] for person in gone}
    assert check(n_participants, chosen.degree, chosen.threshold, leaves)


def test_too_few_people_are_refused_before_a_key_is_made() -> None:
    with refused(DevicePolicyError, ReasonCode.COHORT_TOO_SMALL, cohort=4, needed=5):
        Party.of(4, n_min=5)
    with refused(DevicePolicyError, ReasonCode.COHORT_TOO_SMALL, cohort=3, needed=2):
        Party.of(3, n_min=1)


def test_a_threshold_that_two_halves_could_both_meet_is_refused() -> None:
    with refused(DevicePolicyError, ReasonCode.UNSAFE_THRESHOLD, threshold=2, degree=4):
        Party.of(6, degree=4, threshold=2)
    assert terms(6).threshold == 3
