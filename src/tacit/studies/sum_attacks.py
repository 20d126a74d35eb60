"""What a server may still read out of sums: the attacks that secure sums must withstand, run on our own.

differenced   who was in some sums and not in others, all others being the same (FedNCF, section 3.5.2)
linked        rows of a sum that one user alone made point the same way: they can be told to belong together
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.types import Array, Floats

MOST_GROUPS = 2000


def difference_sums(with_user: Array, without_user: Array) -> NDArray[np.float64]:
    """Return, per item, how much more sums [R, n_items] with a user hold than sums without."""
    sides = [np.asarray(sums, np.float64).mean(axis=0) for sums in (with_user, without_user)]
    more: NDArray[np.float64] = sides[0] - sides[1]
    return more


def link_rows(rows: Floats, alike: float) -> NDArray[np.int64]:
    """Return the group of each row [R, D]: rows whose directions, or opposite ones, agree up to the cosine `alike`.

    Groups grow around the longest row that is not in one yet, which is the least rounded.
    """
    lengths = np.linalg.norm(rows, axis=1)
    units = rows / np.maximum(lengths, np.finfo(np.float32).tiny)[:, None]
    groups = np.full(len(rows), -1, np.int64)
    order = np.argsort(-lengths, kind="stable")
    for number in range(MOST_GROUPS):
        left = order[groups[order] < 0]
        if not len(left):
            break
        near = np.abs(units[left] @ units[left[0]]) >= alike
        near[0] = True
        groups[left[near]] = number
    groups[groups < 0] = MOST_GROUPS + np.arange(int((groups < 0).sum()))  # each on its own
    return groups


def adjusted_rand(one: Array, other: Array) -> float:
    """Return how far two groupings of the same things agree: 1 for the same, about 0 for chance.

    >>> adjusted_rand([0, 0, 1, 1], [5, 5, 7, 7]), round(adjusted_rand([0, 0, 1, 1], [0, 1, 0, 1]), 6)
    (1.0, -0.5)
    """
    n_things = len(one)
    if n_things < 2:
        return 0.0
    _, a = np.unique(one, return_inverse=True)
    _, b = np.unique(other, return_inverse=True)
    both = _pairs(np.unique(a * (int(b.max()) + 1) + b, return_counts=True)[1])
    first, second, every = _pairs(np.bincount(a)), _pairs(np.bincount(b)), _pairs(np.array([n_things]))
    chance = first * second / every
    room = (first + second) / 2 - chance
    return 1.0 if room == 0 else float((both - chance) / room)


def _pairs(counts: Array) -> float:
    return float((counts.astype(np.float64) * (counts - 1) / 2).sum())


@dataclass(frozen=True)
class LinkingResult:
    """What rows that stand alone in a sum tell."""

    touched: int  # rows that any user mentions
    alone: int  # rows that are shown and that one user alone mentions
    agreement: float  # of the groups with the users (adjusted Rand index); 0 where nothing stands alone
    exposed: float  # share of users' own items whose rows stand alone
    by_sign: float  # share of those rows whose sign within its group tells positives from negatives


def attack_by_linking(
    owner: Array, ids: Array, values: Floats, positive: NDArray[np.bool_], least: int, alike: float
) -> LinkingResult:
    """Attack one sum: row r is of item `ids[r]` and by user `owner[r]`; rows of fewer than `least` users are hidden.

    Each user mentions a row once.
    """
    users = np.bincount(ids)
    alone = (users[ids] == 1) & (least <= 1)
    n_positive = int(positive.sum())
    if not alone.any():
        return LinkingResult(int((users > 0).sum()), 0, 0.0, 0.0, 0.0)
    groups = link_rows(values[alone], alike)
    right = 0
    for group in np.unique(groups):
        here = groups == group
        rows = values[alone][here]
        toward = rows @ rows[np.argmax(np.linalg.norm(rows, axis=1))] > 0
        agree = int((toward == positive[alone][here]).sum())
        right += max(agree, len(rows) - agree)  # which of the two signs is which is told by either's number
    return LinkingResult(
        int((users > 0).sum()),
        int(alone.sum()),
        adjusted_rand(owner[alone], groups),
        float((alone & positive).sum() / max(1, n_positive)),
        right / int(alone.sum()),
    )
