"""Accuracy: one value per person, from where her held-out items stand.

A position is 1 for the best candidate; ties stand in the middle of their group, so a position may end in .5, and it
is infinite where the item was not found within the longest list or is not in the catalogue. An item counts at k if
its position is at most k, and counts half at k + 0.5: of two tied for the last place one is in the list, whichever.
(Counting none would hold ties against a method, counting both would favour them.) A list of k holds at most k items:
of a larger tied group only k count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tacit.types import Array

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Positions:
    """Where the held-out items stand: ragged, at least one per person, ascending within a person."""

    ptr: NDArray[np.int64]  # [P + 1]
    values: Values  # [H]
    _counts: dict[int, Values] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """How many items each person has held out, [P]."""
        return np.diff(self.ptr)

    def per_person(self, values: Array) -> Values:
        """Return the sum over each person's held-out items, [P]."""
        sums: Values = np.add.reduceat(values, self.ptr[:-1], dtype=np.float64)
        return sums

    def before(self, counts: Values) -> Values:
        """Return the sum over the same person's items before each, [H]."""
        sums = np.cumsum(counts) - counts
        first: Values = np.repeat(sums[self.ptr[:-1]], self.sizes)
        return sums - first

    def counts(self, k: int) -> Values:
        """How far each held-out item is in its person's list of k: 1, 0.5 or 0, [H]."""
        if k not in self._counts:  # every metric asks for it
            wanted = np.clip(k + 1.0 - self.values, 0.0, 1.0)
            self._counts[k] = np.clip(k - self.before(wanted), 0.0, wanted)
        return self._counts[k]

    def apart(self) -> Positions:
        """Return each held-out item as a person of its own."""
        return Positions(np.arange(len(self.values) + 1), self.values)


def hit_rate(found: Positions, k: int) -> Values:
    """HR@k: 1 if any held-out item is in the list.

    >>> hit_rate(Positions(np.array([0, 2, 3, 4]), np.array([2.0, np.inf, 4.0, 3.5])), k=3).tolist()
    [1.0, 0.0, 0.5]
    """
    return np.minimum(found.per_person(found.counts(k)), 1.0)


def precision(found: Positions, k: int) -> Values:
    """Precision@k: held-out items in the list, divided by k.

    >>> precision(Positions(np.array([0, 3]), np.array([1.0, 4.0, np.inf])), k=4).tolist()
    [0.5]
    """
    return found.per_person(found.counts(k)) / k


def recall(found: Positions, k: int) -> Values:
    """Recall@k: held-out items in the list, divided by all held-out items.

    >>> recall(Positions(np.array([0, 4]), np.array([1.0, 3.0, 7.0, np.inf])), k=4).tolist()
    [0.5]
    """
    return found.per_person(found.counts(k)) / found.sizes


def f1(found: Positions, k: int) -> Values:
    """F1@k: harmonic mean of precision and recall, 2 hits / (k + held-out items).

    >>> f1(Positions(np.array([0, 2]), np.array([1.0, 9.0])), k=3).tolist()  # P = 1/3, R = 1/2
    [0.4]
    """
    return 2.0 * found.per_person(found.counts(k)) / (k + found.sizes)


def ndcg(found: Positions, k: int) -> Values:
    """NDCG@k: sum of 1 / log2(position + 1), divided by that of the best possible list of k.

    >>> ndcg(Positions(np.array([0, 1, 3]), np.array([3.0, 1.0, np.inf])), k=3).round(4).tolist()  # 1/2; 1/(1 + 0.6309)
    [0.5, 0.6131]
    """
    gains = found.counts(k) / np.log2(found.values + 1.0)
    ideal = np.cumsum(1.0 / np.log2(np.arange(2, k + 2)))
    best: Values = ideal[np.minimum(found.sizes, k) - 1]
    return found.per_person(gains) / best


def average_precision(found: Positions, k: int) -> Values:
    """MAP@k: sum of the precisions at the held-out items in the list, divided by all held-out items.

    The divisor is the number of held-out items even where it exceeds k (as in trec_eval and ranx).

    >>> average_precision(Positions(np.array([0, 3]), np.array([1.0, 4.0, np.inf])), k=5).tolist()  # (1/1 + 2/4) / 3
    [0.5]
    """
    counts = found.counts(k)
    precisions = counts * (found.before(counts) + 1.0) / found.values
    return found.per_person(precisions) / found.sizes


def reciprocal_rank(found: Positions, k: int) -> Values:
    """MRR@k: one over the position of the first held-out item, 0 if it is not in the list.

    >>> reciprocal_rank(Positions(np.array([0, 2, 3]), np.array([4.0, 5.0, 6.0])), k=5).tolist()
    [0.25, 0.0]
    """
    return hit_rate(found, k) / found.values[found.ptr[:-1]]


METRICS: dict[str, Callable[[Positions, int], Values]] = {
    "HR": hit_rate,
    "NDCG": ndcg,
    "Precision": precision,
    "Recall": recall,
    "F1": f1,
    "MAP": average_precision,
    "MRR": reciprocal_rank,
}


def accuracy(found: Positions, ks: tuple[int, ...], *, apart: bool = False) -> dict[str, Values]:
    """Return every accuracy metric at every k.

    With `apart` (the sampled protocol) each held-out item is the only relevant one of a list of its own: a metric is
    computed for each of them and averaged over the person's items. With one held-out item per person this is the
    usual leave-one-out HR@k and NDCG@k.

    >>> found = Positions(np.array([0, 2]), np.array([1.0, 3.0]))
    >>> accuracy(found, (2,), apart=True)["HR@2"].tolist(), accuracy(found, (2,))["HR@2"].tolist()
    ([0.5], [1.0])
    """
    judged = found.apart() if apart else found
    values = {f"{name}@{k}": metric(judged, k) for k in ks for name, metric in METRICS.items()}
    return {name: found.per_person(value) / found.sizes for name, value in values.items()} if apart else values
