"""The plan of a few noisy sums: what each of them is for, and which share of the privacy budget it spends.

The first sum counts items. How many of them stand out of its noise decides how the rest of the budget is spent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tacit.types import Array

FIRST_SHARE = 0.15  # of the budget, for the first counts
PLANS = {False: (0.1, 0.3, 0.45), True: (0.1, 0.1, 0.15, 0.2, 0.3)}  # shares of sums of directions: few people, many
AGAIN, AFTER_AGAIN = 0.4, (0.1, 0.1, 0.25)  # counts once more, where few items stand out
MOST_SUMS = 2 + max(map(len, PLANS.values()))
COUNTS, AGAIN_STEP, HEAD, DONE = 0, 1, 2, -1


@dataclass(frozen=True)
class SumPlan:
    """What the next sum is: which step, how wide, and the share of the budget of every step."""

    step: int
    width: int
    shares: tuple[float, ...]  # by step; the first two are counts

    @classmethod
    def read(cls, numbers: Array) -> SumPlan:
        """Read it from the shared model, which a malicious server may have made: a width is never negative."""
        return cls(int(numbers[0]), max(0, int(numbers[1])), tuple(float(share) for share in numbers[2:]))

    def write(self) -> Array:
        """Write it for the shared model."""
        shares = (*self.shares, *[0.0] * (MOST_SUMS - len(self.shares)))
        return np.array([self.step, self.width, *shares])

    @property
    def share(self) -> float:
        """The share of the budget of the next sum; 0: there is none."""
        return 0.0 if self.step == DONE else self.shares[self.step]

    @property
    def counts(self) -> bool:
        """Whether the next sum counts items."""
        return self.step in (COUNTS, AGAIN_STEP)

    def advance(self) -> SumPlan:
        """Return the plan of the sum after this one: steps without a share are left out."""
        step = self.step + 1
        while step < len(self.shares) and not self.shares[step]:
            step += 1
        return replace(self, step=step if step < len(self.shares) else DONE)

    def choose_shares(self, n_outstanding: float, n_items: int, strength: float) -> SumPlan:
        """Return the plan after the first counts, by how many items stand out and how strong the signal is.

        `strength` is the number of clients over the noise of a sum that spends the whole budget.
        """
        rest = 1.0 - FIRST_SHARE
        if n_outstanding < max(min(150.0, 0.5 * n_items), 0.03 * n_items):  # popularity is all there is to learn
            shares: tuple[float, ...] = (FIRST_SHARE, rest)
        elif n_outstanding < 0.2 * n_items:
            shares = (FIRST_SHARE, AGAIN, *_fill(AFTER_AGAIN, rest - AGAIN))
        else:
            shares = (FIRST_SHARE, 0.0, *_fill(PLANS[strength >= 8_000], rest))
        return replace(self, shares=shares)


def _fill(shares: tuple[float, ...], rest: float) -> tuple[float, ...]:
    """Return shares in the same proportions that add up to what is left of the budget, never to more."""
    scale = rest / sum(shares)
    return tuple(float(np.floor(share * scale * 2**20) / 2**20) for share in shares)
