"""Sums over rounds are linear equations in participants: devices are in one cohort only, so that none can be solved."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.refusals import refused
from helpers.secure_session import terms
from tacit.errors import DevicePolicyError
from tacit.protocols.secure_aggregation.context import Session
from tacit.protocols.secure_aggregation.device_policy import DevicePolicy, ParticipationHistory, check_participants
from tacit.reasons import ReasonCode

PEOPLE = [number.to_bytes(32, "big") for number in range(60)]
REST = tuple(range(7, 17))
FOUR = ((*REST, 0, 1, 2, 3), (*REST, 0, 4, 5, 6), (*REST, 1, 2, 3, 4, 5, 6), REST)
"""Any two differ by four or more, and first + second - third - fourth is twice what participant 0 sent."""


class Federation:
    """Devices that check each cohort and remember it, as in the field."""

    def __init__(self, policy: DevicePolicy) -> None:
        self.policy, self.histories = policy, {person: ParticipationHistory() for person in range(len(PEOPLE))}
        self.opened: list[frozenset[int]] = []

    def offer(self, cohort: tuple[int, ...], number: int, liars: frozenset[int] = frozenset()) -> set[ReasonCode]:
        """Try a sum; return why honest devices refuse it, nothing if it is opened."""
        session = Session.of(terms(len(cohort), round=number), [PEOPLE[person] for person in cohort])
        codes = set()
        for person in set(cohort) - liars:
            try:
                check_participants(self.policy, self.histories[person], session, range(len(cohort)))
            except DevicePolicyError as error:
                codes.add(error.code)
        if not codes:
            self.opened.append(frozenset(cohort))
            for person in cohort:
                self.histories[person] = self.histories[person].with_sum(session, range(len(cohort)))
        return codes

    def fewest_left(self, honest: frozenset[int]) -> int:
        """Return how few honest people the difference of any two combinations of sums can be narrowed down to."""
        rows = np.array([[person in cohort for person in sorted(honest)] for cohort in set(self.opened)], float)
        # people with equal columns cannot be told apart by any combination: the smallest such group is what is left
        _, sizes = np.unique(rows[:, rows.any(axis=0)], axis=1, return_counts=True)
        return int(sizes.min())


def test_four_cohorts_that_differ_enough_in_pairs_can_be_solved_and_are_refused() -> None:
    matrix = np.zeros((4, 17))
    for row, cohort in enumerate(FOUR):
        matrix[row, list(cohort)] = 1
    assert np.array_equal(matrix.T @ [1, 1, -1, -1], np.eye(17)[0] * 2)
    wide, usual = Federation(DevicePolicy(most_cohorts=None)), Federation(DevicePolicy())
    assert [wide.offer(cohort, 10 * at) for at, cohort in enumerate(FOUR)] == [set()] * 4, "pairs are not enough"
    answers = [usual.offer(cohort, 10 * at) for at, cohort in enumerate(FOUR)]
    assert answers == [set(), *[{ReasonCode.DEVICE_OTHER_COHORT}] * 3]
    assert usual.offer(FOUR[0], 90) == set(), "the same participants again have no difference"


@pytest.mark.parametrize("seed", range(5))
def test_no_combination_of_sums_that_honest_devices_open_is_of_fewer_than_a_whole_batch(seed: int) -> None:
    """A coordinator offers what it likes, with colluding devices that remember nothing."""
    rng, usual = np.random.default_rng(seed), Federation(DevicePolicy())
    liars = frozenset(range(50, 60))
    for number in range(300):
        size = int(rng.integers(10, 20))
        drawn = rng.choice(60, size, replace=False).tolist()
        if usual.opened and rng.random() < 0.5:  # one that was opened, with a few exchanged
            past = sorted(usual.opened[int(rng.integers(len(usual.opened)))])
            kept = rng.permutation(past)[: int(rng.integers(1, len(past) + 1))].tolist()
            drawn = list({*kept, *drawn[: int(rng.integers(0, 4))]})
        if len(drawn) >= usual.policy.n_min:
            usual.offer(tuple(sorted(drawn)), number, liars)
    assert len(usual.opened) >= 2
    honest = frozenset(range(50))
    for one in set(usual.opened):
        for other in set(usual.opened) - {one}:
            assert not one & other & honest, "no honest device is in two cohorts"
    assert usual.fewest_left(honest) >= min(len(one & honest) for one in usual.opened)


def test_more_cohorts_are_the_users_own_choice_and_counted() -> None:
    two = Federation(DevicePolicy(most_cohorts=2))
    assert two.offer(tuple(range(12)), 1) == set()
    assert two.offer(tuple(range(6, 18)), 9) == set()
    assert two.offer((*range(3), *range(9, 21)), 20) == {ReasonCode.DEVICE_OTHER_COHORT}
    assert two.offer(tuple(range(12)), 30) == set()
    noisy = DevicePolicy().under_noise()
    assert (noisy.most_cohorts, noisy.d_min) == (None, 0), "under a guarantee the budget is the cap"


def test_of_a_cohort_that_comes_again_one_copy_is_kept() -> None:
    usual, cohort = Federation(DevicePolicy()), tuple(range(12))
    for number in range(50):
        assert usual.offer(cohort, number) == set()
    history = ParticipationHistory.decode(usual.histories[0].encode())
    assert len(history.rounds) == 50
    assert sum(bool(past.participants) for past in history.sums) == 1
    session = Session.of(terms(11, round=99), PEOPLE[:11])
    with refused(DevicePolicyError, ReasonCode.DEVICE_OTHER_COHORT, earlier=49):
        check_participants(DevicePolicy(), history, session, range(11))
