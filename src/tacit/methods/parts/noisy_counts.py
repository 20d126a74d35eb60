"""Noisy counts of items: which items stand out of the noise, how much each weighs, and how popular it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.methods.parts.denoising import Reals
from tacit.types import Array

OUTLIER = 2.0  # standard deviations: items above are kept
FEWEST_KEPT = 600


@dataclass(frozen=True)
class NoisyCounts:
    """How often each item was counted, with one standard deviation for all."""

    counts: Reals
    sigma: float
    is_exact: bool  # there is no noise: `sigma` is a floor

    @classmethod
    def of(cls, counts: Reals, precision: float, is_exact: bool) -> NoisyCounts:
        """Take counts whose noise has this precision (one over its variance)."""
        return cls(counts, 1e-2 if is_exact else 1.0 / float(np.sqrt(precision)), is_exact)

    @classmethod
    def read(cls, shared: Mapping[str, Array], is_exact: bool) -> NoisyCounts:
        """Read them from a shared model."""
        return cls.of(shared["counts"].astype(np.float64), float(shared["precision"][0]), is_exact)

    @property
    def n_outstanding(self) -> float:
        """How many items stand out, less those that noise alone puts there."""
        return np.inf if self.is_exact else float((self.counts > OUTLIER * self.sigma).sum()) - 0.023 * len(self.counts)

    def kept(self) -> NDArray[np.int64]:
        """Return the items that stand out of the noise, most counted first."""
        n_items = len(self.counts)
        n_kept = n_items if self.is_exact else max(FEWEST_KEPT, int((self.counts > OUTLIER * self.sigma).sum()))
        return np.argsort(-self.counts, kind="stable")[: min(n_items, n_kept)]

    def weigh(self, kept: NDArray[np.int64], rows: NDArray[np.int64], item_weight: float) -> dict[str, Reals]:
        """Return weights of the rows of the next sum, 0 for all others, and their popularity as a unit vector."""
        c = np.maximum(self.counts[kept], self.sigma)
        weights, popular = np.zeros(len(self.counts)), np.zeros(len(self.counts))
        every = np.zeros(len(self.counts))
        every[kept] = (c / c.min()) ** -item_weight
        weights[rows] = every[rows]
        popular[rows] = np.maximum(self.counts[rows], self.sigma) * weights[rows]
        return {"weights": weights, "popular": popular / np.linalg.norm(popular)}

    def popular_only(self) -> dict[str, Reals]:
        """Return the arrays of a model that ranks by popularity alone."""
        popular = np.maximum(self.counts, 0.5 * self.sigma)
        return {"weights": np.ones(len(self.counts)), "popular": popular / np.linalg.norm(popular)}
