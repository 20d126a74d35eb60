"""What lists show of the catalogue: coverage, concentration, the long tail, categories.

All take the top lists [users, k] of item indices, where -1 is padding and counts for nothing, or what is counted
from them. Popularity is the number of users who have the item in their history.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.types import Array, Labels

HEAD_SHARE = 0.8


def recommended_counts(top: Array, n_items: int) -> NDArray[np.int64]:
    """Return how many lists hold each item, [n_items].

    >>> recommended_counts(np.array([[0, 2], [2, -1]]), 4).tolist()
    [1, 0, 2, 0]
    """
    counts = np.zeros(n_items + 1, np.int64)
    for column in top.T:  # column by column: bincount copies its input to 64 bits
        counts += np.bincount(column + 1, minlength=n_items + 1)
    return counts[1:]


def item_coverage(counts: Array) -> int:
    """ItemCoverage: how many different items are in at least one list.

    >>> item_coverage(np.array([1, 0, 2, 0]))
    2
    """
    return int(np.count_nonzero(counts))


def gini(counts: Array) -> float:
    """Gini, higher is better: 1 if all items are recommended equally often, 0 if one takes all.

    It is 1 - sum_i (2i - n - 1) m_i / ((n - 1) sum m), with m ascending. `counts` covers the whole catalogue, items
    never recommended included, as in the figures published with the definition; give the nonzero counts only for the
    definition to the letter.

    >>> gini(np.array([1, 3]))  # 1 - (-1 * 1 + 1 * 3) / (1 * 4)
    0.5
    >>> gini(np.array([2, 2, 2])), gini(np.array([0, 0, 5]))
    (1.0, 0.0)
    """
    n, total = len(counts), int(counts.sum())
    if n < 2 or total == 0:
        return 0.0
    weights = 2.0 * np.arange(1, n + 1) - n - 1
    return float(1.0 - weights @ np.sort(counts) / ((n - 1) * total))


def shannon_entropy(counts: Array) -> float:
    """ShannonEntropy in nats: 0 if one item takes all, log(n) if n items are recommended equally often.

    >>> round(shannon_entropy(np.array([2, 0, 2])), 4), shannon_entropy(np.array([0, 7]))
    (0.6931, 0.0)
    """
    shares = counts[counts > 0] / max(int(counts.sum()), 1)
    return float(-(shares @ np.log(shares))) + 0.0


def short_head(popularity: Array) -> NDArray[np.bool_]:
    """Return which items are popular: the most popular ones that together hold 80 % of all interactions.

    Items are taken from the most popular on until the share is reached, at equal popularity the smaller index first;
    all others are the long tail.

    >>> short_head(np.array([1, 6, 2, 1])).tolist()  # 6 + 2 = 80 % of 10
    [False, True, True, False]
    """
    order = np.argsort(-popularity, kind="stable")
    before = np.cumsum(popularity[order]) - popularity[order]
    is_head = np.zeros(len(popularity), np.bool_)
    is_head[order] = before < HEAD_SHARE * popularity.sum()
    return is_head


def aclt(top: Array, is_head: NDArray[np.bool_]) -> float:
    """ACLT: how many long-tail items a list holds on average.

    >>> aclt(np.array([[0, 1], [1, 2], [2, -1]]), np.array([True, False, False]))  # (1 + 2 + 1) / 3
    1.3333333333333333
    """
    is_tail = np.append(~is_head, False)  # padding, -1, is the last
    return float(is_tail[top].sum() / max(len(top), 1))


def imbalance(shares: Array) -> float:
    """Return standard deviation over mean of the groups' shares: 0 if equal, 1 if one of two has everything.

    >>> imbalance(np.array([0.3, 0.1])), imbalance(np.array([0.2, 0.0])), imbalance(np.array([0.0, 0.0]))
    (0.5, 1.0, 0.0)
    """
    mean = float(np.mean(shares))
    return round(float(np.std(shares)) / mean, 15) if mean > 0 else 0.0


def _both(is_head: NDArray[np.bool_], items: Array) -> NDArray[np.float64]:
    head = np.count_nonzero(is_head[items])
    return np.array([head, len(items) - head], np.float64)


def pop_reo(top: Array, is_held_out: Array, truth: Array, is_head: NDArray[np.bool_]) -> float | None:
    """PopREO: how differently held-out popular and long-tail items are found; None if a group has none held out.

    Shares found are hits in the lists over held-out items, for each group over all users. `is_held_out` [users, k]
    marks the hits; `truth` lists the held-out items of all users that could be recommended.

    >>> top, hits = np.array([[0, 1], [2, 0]]), np.array([[True, False], [True, False]])
    >>> pop_reo(top, hits, np.array([0, 0, 2]), np.array([True, False, False]))  # head 1/2, tail 1/1
    0.333333333333333
    """
    held_out = _both(is_head, truth)
    if not held_out.all():
        return None
    return imbalance(_both(is_head, top[is_held_out]) / held_out)


def pop_rsp(top: Array, popularity: Array, is_head: NDArray[np.bool_]) -> float | None:
    """PopRSP: how differently popular and long-tail items are recommended; None if a group has no candidate.

    Shares are places in the lists over candidates (items not in the user's history), for each group over all users.

    >>> pop_rsp(np.array([[0], [1]]), np.array([0, 1, 1]), np.array([True, False, False]))  # head 1/2, tail 1/2
    0.0
    """
    in_histories = np.array([popularity[is_head].sum(), popularity[~is_head].sum()], np.float64)
    candidates = len(top) * _both(is_head, np.arange(len(is_head))) - in_histories
    if not (candidates > 0).all():
        return None
    return imbalance(_both(is_head, top[top >= 0]) / candidates)


@dataclass(frozen=True)
class CategoryBias:
    """How far lists push users towards or away from each category, against what they did before."""

    names: list[str]
    source: NDArray[np.float64]  # B_T: share of the histories over share of the catalogue
    recommended: NDArray[np.float64]  # B_R: the same for the lists
    disparity: NDArray[np.float64]  # (B_R - B_T) / B_T; NaN where the histories never touch the category

    def to_dict(self) -> dict[str, dict[str, float | None]]:
        """Return plain numbers by category, None where there is no disparity."""
        columns = zip(self.names, self.source, self.recommended, self.disparity, strict=True)
        return {
            name: {"source": float(s), "recommended": float(r), "disparity": None if np.isnan(d) else float(d)}
            for name, s, r, d in columns
        }


def bias_disparity(counts: Array, popularity: Array, categories: Labels) -> CategoryBias:
    """Compare categories in lists and in histories; categories without an item are left out.

    `counts` is how many lists hold each item. An item of several categories counts in each.

    >>> bias = bias_disparity(np.array([3, 1]), np.array([1, 1]), Labels(np.array([0, 1, 2]), np.array([0, 1]), "AB"))
    >>> bias.source.tolist(), bias.recommended.tolist(), bias.disparity.tolist()
    ([1.0, 1.0], [1.5, 0.5], [0.5, -0.5])
    """
    membership = categories.matrix().astype(np.float64)  # [n_items, n_names]
    members = np.asarray(membership.sum(axis=0)).ravel()
    used = np.flatnonzero(members)
    share = members[used] / len(popularity)
    source = (popularity @ membership)[used] / max(popularity.sum(), 1) / share
    recommended = (counts @ membership)[used] / max(counts.sum(), 1) / share
    disparity = np.full(len(used), np.nan)
    np.divide(recommended - source, source, out=disparity, where=source > 0)
    return CategoryBias([categories.names[j] for j in used.tolist()], source, recommended, disparity)
