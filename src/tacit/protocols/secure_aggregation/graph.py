"""The graph of pair masks: complete in small cohorts, with `degree` neighbours each in large ones.

Large cohorts stand on a ring in a random order (sorted by a hash keyed with the round's beacon), and each
participant's neighbours are the nearest `degree / 2` on either side. Degree and threshold follow from how many
participants may work together with the server and how many may drop out, by hypergeometric tails; nothing is set by
rule of thumb.

    threshold   so many shares rebuild a secret
    2 threshold > degree + those of the neighbours who cheat: a server that shows two halves different lists cannot
    collect enough shares of both kinds
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from tacit.errors import SecureSumError
from tacit.reasons import ReasonCode

WHOLE_UP_TO = 150  # participants: below it the full graph costs little and proves more
UNSAFE = 2.0**-40  # largest probability that a neighbourhood holds too many corrupted participants
STUCK = 2.0**-20  # largest probability that the secrets of a participant cannot be rebuilt


@dataclass(frozen=True)
class MaskingPlan:
    """How many neighbours each participant has, and how many of them rebuild its secrets."""

    degree: int
    threshold: int


def plan_masking(n_participants: int, corrupted: float, dropped: float) -> MaskingPlan:
    """Return degree and threshold for a cohort of which these shares may cheat or drop out.

    >>> plan_masking(20, corrupted=1 / 3, dropped=0.1)
    MaskingPlan(degree=19, threshold=13)
    """
    if n_participants < 2:
        raise SecureSumError.because(ReasonCode.COHORT_TOO_SMALL, cohort=n_participants, needed=2)
    return _plan(n_participants, math.floor(corrupted * n_participants), math.floor(dropped * n_participants))


@lru_cache(maxsize=256)
def _plan(n_participants: int, n_corrupted: int, n_dropped: int) -> MaskingPlan:
    if n_participants > WHOLE_UP_TO:
        for degree in range(8, n_participants - 1, 2):
            found = _threshold(n_participants, degree, n_corrupted, n_dropped)
            if found is not None:
                return MaskingPlan(degree, found)
    threshold = (n_participants - 1 + _cheating(n_participants, n_participants - 1, n_corrupted)) // 2 + 1
    if threshold > n_participants - 1 - n_dropped:
        raise SecureSumError.because(
            ReasonCode.NO_SAFE_THRESHOLD, cohort=n_participants, corrupted=n_corrupted, dropped=n_dropped
        )
    return MaskingPlan(n_participants - 1, threshold)


def _threshold(n_participants: int, degree: int, n_corrupted: int, n_dropped: int) -> int | None:
    """Return the smallest threshold that is safe at this degree, if secrets can be rebuilt with it."""
    gap = (n_corrupted + n_dropped) / n_participants
    if (n_participants * gap ** (degree / 2)) ** 2 > UNSAFE:  # two gaps as wide as half a neighbourhood cut the ring
        return None
    cheating = _cheating(n_participants, degree, n_corrupted)
    missing = _upper_tail(STUCK / n_participants, n_participants - 1, n_dropped, degree)
    threshold = (degree + cheating) // 2 + 1
    return threshold if threshold <= degree - missing else None


@lru_cache(maxsize=256)
def _cheating(n_participants: int, degree: int, n_corrupted: int) -> int:
    """Return how many neighbours of a participant may be corrupted, but for a probability of UNSAFE."""
    if degree >= n_participants - 1:
        return n_corrupted
    return _upper_tail(UNSAFE / n_participants, n_participants - 1, n_corrupted, degree)


def _upper_tail(chance: float, n_others: int, n_marked: int, drawn: int) -> int:
    """Return the smallest number that the marked ones among those drawn exceed with at most this chance.

    Tails are added in logarithms, from the rarest up: of 1 minus a probability, 2^-40 / n leaves no digits.
    """
    from scipy.special import gammaln  # here, because only cohorts above WHOLE_UP_TO need it

    def log_choose(n: NDArray[np.float64] | int, k: NDArray[np.float64]) -> NDArray[np.float64]:
        found: NDArray[np.float64] = gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)
        return found

    low, high = max(0, drawn - (n_others - n_marked)), min(n_marked, drawn)
    marked = np.arange(low, high + 1, dtype=np.float64)
    log_all = log_choose(n_others, np.array([float(drawn)]))
    log_mass = log_choose(n_marked, marked) + log_choose(n_others - n_marked, drawn - marked) - log_all
    exceeds = np.append(np.logaddexp.accumulate(log_mass[::-1])[::-1][1:], -np.inf)  # P(X > marked), descending
    return low + int(np.count_nonzero(exceeds > math.log(chance)))


def is_safe(n_participants: int, chosen: MaskingPlan, corrupted: float) -> bool:
    """Say whether two halves of a neighbourhood cannot both be enough, if this share of participants cheats."""
    cheating = _cheating(n_participants, chosen.degree, math.floor(corrupted * n_participants))
    return 2 * chosen.threshold > chosen.degree + cheating


@dataclass(frozen=True)
class NeighbourGraph:
    """The neighbours of all participants in a cohort of `n_participants`, in an order keyed by 32 bytes."""

    n_participants: int
    degree: int
    key: bytes

    @cached_property
    def _ring(self) -> tuple[list[int], list[int]]:
        """Who stands at each place, and the place of each participant."""
        order = sorted(
            range(self.n_participants), key=lambda i: hashlib.sha256(self.key + i.to_bytes(4, "little")).digest()
        )
        place = [0] * self.n_participants
        for at, participant in enumerate(order):
            place[participant] = at
        return order, place

    def neighbours(self, participant: int) -> frozenset[int]:
        """Return the neighbours of the participant at a position of the cohort; neighbourhood is mutual."""
        if self.degree >= self.n_participants - 1:
            return frozenset(range(self.n_participants)) - {participant}
        order, place = self._ring
        here, half = place[participant], self.degree // 2
        steps = (*range(-half, 0), *range(1, half + 1))
        return frozenset(order[(here + step) % self.n_participants] for step in steps)
