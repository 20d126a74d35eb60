"""`Evaluation`: what one evaluation found, user by user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tacit.errors import EvaluationError, nearest
from tacit.evaluation.lists import CategoryBias
from tacit.evaluation.metrics import Values


@dataclass(frozen=True)
class Evaluation:
    """One value per user for each accuracy metric, and what the lists do to the catalogue."""

    protocol: str
    k: tuple[int, ...]
    users: NDArray[np.int64]  # [P] ids of those with something held out
    rows: NDArray[np.int64]  # [P] their positions among all users
    values: dict[str, Values]  # name -> [P]
    overall: dict[str, float]  # means of the above, and the metrics of the lists
    top: NDArray[np.int32] | None = None  # [all users, max k], best first, -1 where there was no candidate left
    recommended: dict[int, NDArray[np.int64]] = field(default_factory=dict)  # k -> lists that hold each item
    bias: dict[int, CategoryBias] = field(default_factory=dict)  # k -> bias per category, where there are categories
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.users)

    def with_lists_of(self, other: Evaluation) -> Evaluation:
        """Return this evaluation with the lists of another, and what they do to the catalogue."""
        whole = {name: value for name, value in other.overall.items() if name not in other.values}
        return replace(
            self,
            overall=self.overall | whole,
            top=other.top,
            recommended=other.recommended,
            bias=other.bias,
            notes=tuple(dict.fromkeys((*self.notes, *other.notes))),
        )

    def of(self, name: str) -> Values:
        """Return one metric of all users."""
        if name not in self.values:
            raise EvaluationError(f"There is no value per user for '{name}'.", nearest(name, self.values))
        return self.values[name]

    def mean(self, name: str) -> float:
        """Return the mean of one metric over users."""
        return float(self.of(name).mean())

    def ci(self, name: str, level: float = 0.95) -> tuple[float, float]:
        """Return the confidence interval of the mean (Student's t over users)."""
        return mean_interval(self.of(name), level)

    def percentiles(self, name: str, q: Sequence[float] = (5, 25, 50, 75, 95)) -> dict[float, float]:
        """Return percentiles of one metric over users."""
        return dict(zip(q, np.percentile(self.of(name), q).tolist(), strict=True))

    def cdf(self, name: str) -> tuple[Values, Values]:
        """Return (x, share): the share of users whose value is at most x, for each value that occurs."""
        x, counts = np.unique(self.of(name), return_counts=True)
        return x, np.cumsum(counts) / len(self)


def mean_interval(values: Values, level: float = 0.95) -> tuple[float, float]:
    """Return the confidence interval of a mean by Student's t; with one value it is that value.

    >>> low, high = mean_interval(np.array([1.0, 2.0, 3.0]))  # 2 +- 4.3027 * 1 / sqrt(3)
    >>> round(low, 3), round(high, 3)
    (-0.484, 4.484)
    """
    from scipy import special  # here, because it takes a tenth of a second, and every command imports this file

    mean, n = float(values.mean()), len(values)
    if n < 2:
        return mean, mean
    half = float(special.stdtrit(n - 1, 0.5 + level / 2) * values.std(ddof=1) / np.sqrt(n))
    return mean - half, mean + half
