"""Accuracy: one value per user, from where the held-out items stand. Ties are worth what random orders would give.

A method may give several items the same score. Which of them are in a list is then chance, and every metric is its
expectation over all orders of the tied items, each equally likely. So no rounding of scores is worth more than the
orders it stands for. With b candidates better than a group of g tied ones, of which m are held out, the group takes
places b + 1, ..., b + g, and s = min(max(k - b, 0), g) of them are in a list of k. Over all orders,

    an item of the group is in the list with probability s / g, and at each place with probability 1 / g;
    none of the m is with probability C(g - m, s) / C(g, s);
    the first of them is j-th of the group with probability C(g - j, m - 1) / C(g, m);
    if one is j-th, (j - 1) (m - 1) / (g - 1) others are expected before it.

All sums below follow from these four. At most one group has some places in the list and some outside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tacit.types import Array

Values = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class TiedGroups:
    """The groups with more than one candidate that hold someone's held-out items; [G] each."""

    user: Counts
    items: Counts  # the positions of the items in all groups, one group after the other
    better: Counts  # b
    size: Counts  # g
    held_out: Counts  # m
    before: Counts  # held-out items of the same user before the group

    def in_list(self, k: int) -> Counts:
        """Return s, how many places of each group are in a list of k."""
        return np.clip(k - self.better, 0, self.size)

    def sum_places(self, worth: Values, k: int) -> Values:
        """Return the sum of what the places in the list are worth; worth[r] is that of place r + 1."""
        sums = np.concatenate([[0.0], np.cumsum(worth)])
        first = np.minimum(self.better, k)
        found: Values = sums[first + self.in_list(k)] - sums[first]
        return found

    def each_item(self, values: Values) -> Values:
        """Repeat a value of every group for each of its held-out items."""
        return np.repeat(values, self.held_out)

    def first_places(self, k: int) -> tuple[Values, Values]:
        """Return, over the orders, the chance that the first held-out item is in the list and its mean 1 / place."""
        hit, reciprocal = np.zeros(len(self.size)), np.zeros(len(self.size))
        chance, in_list = self.held_out / self.size, self.in_list(k)  # that the first one is j-th
        for j in range(1, int(in_list.max(initial=0)) + 1):
            now = np.where(j <= in_list, chance, 0.0)
            hit += now
            reciprocal += now / (self.better + j)
            left = self.size - j
            chance = chance * np.maximum(left - self.held_out + 1, 0) / np.maximum(left, 1)
        return np.where(in_list > self.size - self.held_out, 1.0, hit), reciprocal  # more places than others: a hit


@dataclass(frozen=True)
class Positions:
    """Where the held-out items stand: ragged, at least one per user, ascending within a user.

    An item that is not found has more candidates before it than any list is long, and ties with nothing.
    """

    ptr: Counts  # [P + 1]
    better: Counts  # [H] candidates with a higher score
    tied: Counts  # [H] candidates with the same score, itself included
    _hits: dict[int, Values] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def at(cls, ptr: Array, places: Array) -> Positions:
        """Return items at places counted from 1, without ties."""
        return cls(np.asarray(ptr, np.int64), np.asarray(places, np.int64) - 1, np.ones(len(places), np.int64))

    @cached_property
    def sizes(self) -> Counts:
        """How many items each user has held out, [P]."""
        return np.diff(self.ptr)

    @cached_property
    def before(self) -> Counts:
        """How many of the same user's items stand before each in this order, [H]."""
        return np.arange(len(self.better)) - np.repeat(self.ptr[:-1], self.sizes)

    @cached_property
    def groups(self) -> TiedGroups:
        """The tied groups."""
        items = np.flatnonzero(self.tied > 1)
        is_first = np.ones(len(items), np.bool_)
        is_first[1:] = (np.diff(self.better[items]) != 0) | (np.diff(items) != 1) | (self.before[items[1:]] == 0)
        first = items[is_first]
        held_out = np.diff(np.append(np.flatnonzero(is_first), len(items)))
        user = np.searchsorted(self.ptr, first, side="right") - 1
        return TiedGroups(user, items, self.better[first], self.tied[first], held_out, self.before[first])

    def per_user(self, values: Array) -> Values:
        """Return the sum over each user's held-out items, [P]."""
        sums: Values = np.add.reduceat(values, self.ptr[:-1], dtype=np.float64)
        return sums

    def hits(self, k: int) -> Values:
        """Return how many held-out items are in each user's list of k, expected, [P]."""
        if k not in self._hits:  # four metrics ask for it
            self._hits[k] = self.per_user(np.clip((k - self.better) / self.tied, 0.0, 1.0))
        return self._hits[k]

    def apart(self) -> Positions:
        """Return each held-out item as a user of its own."""
        return Positions(np.arange(len(self.better) + 1), self.better, self.tied)


def hit_rate(found: Positions, k: int) -> Values:
    """HR@k: 1 if any held-out item is in the list.

    >>> hit_rate(Positions.at([0, 2, 3], [2, 99, 4]), k=3).tolist()
    [1.0, 0.0]
    >>> hit_rate(Positions(np.array([0, 2]), np.array([0, 0]), np.array([4, 4])), k=1).tolist()  # 2 of 4 tied
    [0.5]
    """
    hit, groups = np.minimum(found.hits(k), 1.0), found.groups
    decides = groups.before == 0  # an item before the group is in the list wherever a part of the group is
    hit[groups.user[decides]] = groups.first_places(k)[0][decides]
    return hit


def precision(found: Positions, k: int) -> Values:
    """Precision@k: held-out items in the list, divided by k.

    >>> precision(Positions.at([0, 3], [1, 4, 99]), k=4).tolist()
    [0.5]
    """
    return found.hits(k) / k


def recall(found: Positions, k: int) -> Values:
    """Recall@k: held-out items in the list, divided by all held-out items.

    >>> recall(Positions.at([0, 4], [1, 3, 7, 99]), k=4).tolist()
    [0.5]
    """
    return found.hits(k) / found.sizes


def f1(found: Positions, k: int) -> Values:
    """F1@k: harmonic mean of precision and recall, 2 hits / (k + held-out items).

    >>> f1(Positions.at([0, 2], [1, 9]), k=3).tolist()  # P = 1/3, R = 1/2
    [0.4]
    """
    return 2.0 * found.hits(k) / (k + found.sizes)


def ndcg(found: Positions, k: int) -> Values:
    """NDCG@k: sum of 1 / log2(place + 1), divided by that of the best possible list of k.

    >>> ndcg(Positions.at([0, 1, 3], [3, 1, 99]), k=3).round(4).tolist()  # 1/2; 1/(1 + 0.6309)
    [0.5, 0.6131]
    """
    worth, groups = 1.0 / np.log2(np.arange(2, k + 2)), found.groups
    gains: Values = np.append(worth, 0.0)[np.minimum(found.better, k)]
    gains[groups.items] = groups.each_item(groups.sum_places(worth, k) / groups.size)
    best: Values = np.cumsum(worth)[np.minimum(found.sizes, k) - 1]
    return found.per_user(gains) / best


def average_precision(found: Positions, k: int) -> Values:
    """MAP@k: sum of the precisions at the held-out items in the list, divided by all held-out items.

    The divisor is the number of held-out items even where it exceeds k (as in trec_eval and ranx).

    >>> average_precision(Positions.at([0, 3], [1, 4, 99]), k=5).tolist()  # (1/1 + 2/4) / 3
    [0.5]
    """
    precisions, groups = (found.better < k) * (found.before + 1.0) / (found.better + 1.0), found.groups
    inverse = groups.sum_places(1.0 / np.arange(1, k + 1), k)  # sum of 1 / place
    earlier = groups.in_list(k) - (groups.better + 1) * inverse  # sum of (j - 1) / place
    others = (groups.held_out - 1) / np.maximum(groups.size - 1, 1)
    expected = ((groups.before + 1) * inverse + others * earlier) / groups.size
    precisions[groups.items] = groups.each_item(expected)
    return found.per_user(precisions) / found.sizes


def reciprocal_rank(found: Positions, k: int) -> Values:
    """MRR@k: one over the place of the first held-out item, 0 if it is not in the list.

    >>> reciprocal_rank(Positions.at([0, 2, 3], [4, 5, 6]), k=5).tolist()
    [0.25, 0.0]
    """
    first, groups = found.better[found.ptr[:-1]], found.groups
    values: Values = (first < k) / (first + 1.0)
    decides = groups.before == 0
    values[groups.user[decides]] = groups.first_places(k)[1][decides]
    return values


METRICS: dict[str, Callable[[Positions, int], Values]] = {
    "HR": hit_rate,
    "NDCG": ndcg,
    "Precision": precision,
    "Recall": recall,
    "F1": f1,
    "MAP": average_precision,
    "MRR": reciprocal_rank,
}


def accuracy_metrics(found: Positions, ks: tuple[int, ...], *, apart: bool = False) -> dict[str, Values]:
    """Return every accuracy metric at every k.

    With `apart` (the sampled protocol) each held-out item is the only relevant one of a list of its own. A metric is
    computed for each of them and averaged over the user's items. With one held-out item per user this is the usual
    leave-one-out HR@k and NDCG@k.

    >>> found = Positions.at([0, 2], [1, 3])
    >>> accuracy_metrics(found, (2,), apart=True)["HR@2"].tolist(), accuracy_metrics(found, (2,))["HR@2"].tolist()
    ([0.5], [1.0])
    """
    judged = found.apart() if apart else found
    values = {f"{name}@{k}": metric(judged, k) for k in ks for name, metric in METRICS.items()}
    return {name: found.per_user(value) / found.sizes for name, value in values.items()} if apart else values
