"""The graph of pair masks: complete in small cohorts, with `degree` neighbours each in large ones.

Large cohorts stand on a ring in a random order (sorted by a hash keyed with the round's beacon), and each
person's neighbours are the nearest `degree / 2` on either side. Degree and threshold follow from how many people may
work together with the server and how many may drop out, by hypergeometric tails; nothing is set by rule of thumb.

    threshold   so many shares rebuild a secret
    2 threshold > degree + those of the neighbours who cheat: a server that tells two halves different stories cannot
    collect enough shares of both kinds
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

from tacit.errors import SecureSumError
from tacit.reasons import ReasonCode

WHOLE_UP_TO = 150  # people: below it the full graph costs little and proves more
UNSAFE = 2.0**-40  # largest probability that anybody's neighbourhood holds too many who cheat
STUCK = 2.0**-20  # largest probability that anybody's secrets cannot be rebuilt


@dataclass(frozen=True)
class MaskingPlan:
    """How many neighbours each participant has, and how many of them rebuild its secrets."""

    degree: int
    threshold: int


def plan_masking(n_people: int, corrupted: float, dropped: float) -> MaskingPlan:
    """Return degree and threshold for a cohort of which these shares may cheat or drop out.

    >>> plan_masking(20, corrupted=1 / 3, dropped=0.1)
    Plan(degree=19, threshold=13)
    """
    if n_people < 2:
        raise SecureSumError.because(ReasonCode.COHORT_TOO_SMALL, cohort=n_people, needed=2)
    return _plan(n_people, math.floor(corrupted * n_people), math.floor(dropped * n_people))


@lru_cache(maxsize=256)
def _plan(n_people: int, n_corrupted: int, n_dropped: int) -> MaskingPlan:
    if n_people > WHOLE_UP_TO:
        for degree in range(8, n_people - 1, 2):
            found = _threshold(n_people, degree, n_corrupted, n_dropped)
            if found is not None:
                return MaskingPlan(degree, found)
    threshold = (n_people - 1 + _cheating(n_people, n_people - 1, n_corrupted)) // 2 + 1
    if threshold > n_people - 1 - n_dropped:
        raise SecureSumError.because(
            ReasonCode.NO_SAFE_THRESHOLD, cohort=n_people, corrupted=n_corrupted, dropped=n_dropped
        )
    return MaskingPlan(n_people - 1, threshold)


def _threshold(n_people: int, degree: int, n_corrupted: int, n_dropped: int) -> int | None:
    """Return the smallest threshold that is safe at this degree, if secrets can be rebuilt with it."""
    gap = (n_corrupted + n_dropped) / n_people
    if (n_people * gap ** (degree / 2)) ** 2 > UNSAFE:  # two gaps as wide as half a neighbourhood cut the ring
        return None
    cheating = _cheating(n_people, degree, n_corrupted)
    missing = _upper_tail(STUCK / n_people, n_people - 1, n_dropped, degree)
    threshold = (degree + cheating) // 2 + 1
    return threshold if threshold <= degree - missing else None


@lru_cache(maxsize=256)
def _cheating(n_people: int, degree: int, n_corrupted: int) -> int:
    """Return how many of anybody's neighbours may cheat, but for a chance of UNSAFE."""
    if degree >= n_people - 1:
        return n_corrupted
    return _upper_tail(UNSAFE / n_people, n_people - 1, n_corrupted, degree)


def _upper_tail(chance: float, n_others: int, n_marked: int, drawn: int) -> int:
    """Return the smallest number that the marked ones among those drawn exceed with at most this chance."""
    from scipy.stats import hypergeom  # here, because it takes half a second and only cohorts above WHOLE_UP_TO need it

    return int(hypergeom.isf(chance, n_others, n_marked, drawn))


def is_safe(n_people: int, chosen: MaskingPlan, corrupted: float) -> bool:
    """Say whether two halves of a neighbourhood cannot both be enough, if this share of people cheats."""
    cheating = _cheating(n_people, chosen.degree, math.floor(corrupted * n_people))
    return 2 * chosen.threshold > chosen.degree + cheating


@dataclass(frozen=True)
class NeighbourGraph:
    """The neighbours of all participants in a cohort of `n_people`, in an order keyed by 32 bytes."""

    n_people: int
    degree: int
    key: bytes

    @cached_property
    def _ring(self) -> tuple[list[int], list[int]]:
        """Who stands at each place, and the place of each person."""
        order = sorted(range(self.n_people), key=lambda i: hashlib.sha256(self.key + i.to_bytes(4, "little")).digest())
        place = [0] * self.n_people
        for at, person in enumerate(order):
            place[person] = at
        return order, place

    def neighbours(self, person: int) -> frozenset[int]:
        """Return the neighbours of the person at a position of the cohort; neighbourhood is mutual."""
        if self.degree >= self.n_people - 1:
            return frozenset(range(self.n_people)) - {person}
        order, place = self._ring
        here, half = place[person], self.degree // 2
        steps = (*range(-half, 0), *range(1, half + 1))
        return frozenset(order[(here + step) % self.n_people] for step in steps)
