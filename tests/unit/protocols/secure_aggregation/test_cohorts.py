"""Sums over rounds are linear equations in participants: some stay with each cohort, so that none can be solved."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from helpers.refusals import refused
from helpers.secure_session import terms
from tacit.errors import DevicePolicyError
from tacit.protocols.secure_aggregation.context import Session
from tacit.protocols.secure_aggregation.device_policy import (
    DevicePolicy,
    ParticipationHistory,
    check_participants,
    has_ended,
    name_of,
    staying,
)
from tacit.protocols.secure_aggregation.graph import plan_masking
from tacit.reasons import ReasonCode

PEOPLE = [number.to_bytes(32, "big") for number in range(60)]
WHOLE_COHORT = Session.of(terms(60), PEOPLE)
REST = tuple(range(7, 17))
FOUR = ((*REST, 0, 1, 2, 3), (*REST, 0, 4, 5, 6), (*REST, 1, 2, 3, 4, 5, 6), REST)
"""Any two differ by four or more, and first + second - third - fourth is twice what participant 0 sent."""


class Federation:
    """Devices that check each cohort and remember it, as in the field."""

    def __init__(self, policy: DevicePolicy) -> None:
        self.policy, self.histories = policy, {person: ParticipationHistory() for person in range(len(PEOPLE))}
        self.opened: list[frozenset[int]] = []

    def offer(
        self,
        cohort: tuple[int, ...],
        number: int,
        adversaries: frozenset[int] = frozenset(),
        unaware: frozenset[int] = frozenset(),
        n_silent: int | None = None,
    ) -> set[ReasonCode]:
        """Try a sum; return why honest devices refuse it, nothing if it is opened; `unaware` do not know its members.

        The threshold is the lowest that is safe, or allows for so many who fall silent.
        """
        n = len(cohort)
        threshold = plan_masking(n, self.policy.corrupted, 0.0).threshold if n_silent is None else n - 1 - n_silent
        assert len(unaware) <= n - threshold, "with more, the sum cannot be opened"
        session = Session.of(terms(n, round=number, threshold=threshold), [PEOPLE[person] for person in sorted(cohort)])
        staying_here = staying(self.policy, session, range(n))
        codes = set()
        for person in set(cohort) - adversaries:
            try:
                check_participants(self.policy, self.histories[person], session, range(len(cohort)))
            except DevicePolicyError as error:
                codes.add(error.code)
        if not codes:
            self.opened.append(frozenset(cohort))
            for position, person in enumerate(sorted(cohort)):
                history = self.histories[person].with_vector(session)
                if person not in unaware:
                    history = history.with_sum(session, range(n), position in staying_here)
                self.histories[person] = history
        return codes

    def is_bound(self, person: int) -> bool:
        """Say whether a participant is in sums of one cohort only from now on."""
        known = [past for past in self.histories[person].sums if past.participants]
        return bool(known) and known[-1].stays

    def is_left_alone(self, honest: frozenset[int], n_people: int) -> bool:
        """Say whether some combination of all sums is of so few honest participants or fewer, whoever they are."""
        rows = np.array([[person in cohort for person in sorted(honest)] for cohort in set(self.opened)], float)
        rows = rows[:, rows.any(axis=0)]
        whole, n = np.linalg.matrix_rank(rows), rows.shape[1]
        return any(
            np.linalg.matrix_rank(np.delete(rows, some, axis=1)) < whole for some in combinations(range(n), n_people)
        )


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


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_no_combination_of_sums_that_honest_devices_open_is_of_two_of_them(seed: int) -> None:
    """A coordinator offers what it likes, leaves devices out of the last phases, and has some that collude with it.

    Policies with the least safety: two cohorts that differ by one are the cheapest attack, `d_min` does not forbid it.
    """
    rng, adversaries, honest = np.random.default_rng(seed), frozenset(range(57, 60)), frozenset(range(57))
    usual = Federation(DevicePolicy(d_min=0, most_cohorts=6))
    for number in range(300):
        free = [one for one in honest if not usual.is_bound(one)]
        drawn = rng.permutation(free)[: int(rng.integers(12, 20))].tolist()
        if usual.opened and rng.random() < 0.6:  # an earlier cohort without a few, or without those who have to stay
            past = rng.permutation(sorted(usual.opened[-1] - adversaries))[int(rng.integers(1, 4)) :].tolist()
            kept = past if rng.random() < 0.2 else [one for one in past if not usual.is_bound(one)]
            drawn = list({*kept, *drawn[: max(0, 13 - len(kept))]})
        if len(drawn) >= 12:
            n_silent = int(rng.integers(1, 3))
            by_name = sorted(drawn, key=lambda one: name_of(WHOLE_COHORT, one))  # the first of them would have to stay
            left_out = (by_name if rng.random() < 0.7 else rng.permutation(drawn).tolist())[: n_silent + 1]
            usual.offer(tuple(sorted({*drawn, *adversaries})), number, adversaries, frozenset(left_out), n_silent)
    assert len(set(usual.opened)) >= 4
    shared = [one & other & honest for one, other in combinations(set(usual.opened), 2)]
    assert any(shared), "some went on to other cohorts"
    assert not usual.is_left_alone(honest, 1)
    assert not usual.is_left_alone(honest, 2), "k_min is 3"


def test_who_need_not_stay_goes_on_without_a_device_that_left() -> None:
    usual, batch = Federation(DevicePolicy()), tuple(range(20))
    assert usual.offer(batch, 1, n_silent=2) == set()
    free = tuple(one for one in batch if not usual.is_bound(one))
    assert len(free) == 20 - (3 + 4 + 3), "three honest ones, four that may lie, three that may not know of it"
    assert ReasonCode.DEVICE_OTHER_COHORT in usual.offer(tuple(range(19)), 9, n_silent=2)
    assert usual.offer((*free, *range(20, 30)), 10, n_silent=2) == set()
    assert usual.offer((*free, *range(20, 30)), 20, n_silent=2) == set()
    assert not usual.is_left_alone(frozenset(range(60)), 2)


def test_a_threshold_that_few_can_meet_makes_more_devices_stay() -> None:
    """A sum that few can open may be unknown to many."""
    for n_silent, n_free in ((2, 10), (4, 8), (None, 5)):
        usual = Federation(DevicePolicy())
        usual.offer(tuple(range(20)), 1, n_silent=n_silent)
        assert sum(not usual.histories[one].sums[-1].stays for one in range(20)) == n_free


def test_who_had_to_stay_once_stays_whatever_is_offered_later() -> None:
    usual, batch = Federation(DevicePolicy()), tuple(range(20))
    usual.offer(batch, 1)
    before = [usual.histories[one].sums[-1].stays for one in batch]
    assert usual.offer(batch, 9, n_silent=2) == set()
    assert [usual.histories[one].sums[-1].stays for one in batch] == before
    stored = [ParticipationHistory.decode(usual.histories[one].encode()) for one in batch]
    assert [history.sums[-1].stays for history in stored] == before
    assert stored == [usual.histories[one] for one in batch]


def test_a_device_knows_that_its_part_is_done_by_who_was_revoked() -> None:
    """Of a batch with a revoked device those who stay are done, and the others go on; another batch does not matter."""
    usual, batch = Federation(DevicePolicy()), tuple(range(20))
    usual.offer(batch, 1, n_silent=2)
    histories = [replace(usual.histories[one], task=WHOLE_COHORT.terms.task) for one in batch]
    for revoked, done in (([PEOPLE[3]], [past.sums[-1].stays for past in histories]), ([PEOPLE[30]], [False] * 20)):
        assert [has_ended(usual.policy, history, revoked) for history in histories] == done
    once = DevicePolicy(most_cohorts=1)
    assert all(has_ended(once, history, [PEOPLE[3]]) for history in histories), "no other cohort is allowed"
    assert not any(has_ended(once.under_noise(), history, [PEOPLE[3]]) for history in histories)
    assert not has_ended(usual.policy, ParticipationHistory(), [PEOPLE[3]])


def test_how_many_cohorts_there_are_is_limited() -> None:
    two = Federation(DevicePolicy(most_cohorts=2))
    assert two.offer(tuple(range(20)), 1, n_silent=2) == set()
    free = [one for one in range(20) if not two.histories[one].sums[-1].stays]
    assert two.offer((*free, *range(20, 30)), 9, n_silent=2) == set()
    again = [one for one in free if not two.histories[one].sums[-1].stays]
    assert again
    assert two.offer((*again, *range(30, 40)), 20, n_silent=2) == {ReasonCode.DEVICE_OTHER_COHORT}
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
