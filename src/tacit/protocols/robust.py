"""Robust aggregation: the clients of a round are assigned to groups, and a rule combines the means of the groups.

    trimmed-mean   the mean of what is left, coordinate by coordinate, without the largest and the smallest groups
    median         the middle one, coordinate by coordinate
    krum           all of the one group that is closest to most others (Blanchard et al., 2017)

A plain sum lets one adversary move a row anywhere. A group's mean of a row is its sum over the clients that mention it.
A rule sees only groups with such clients, so few decide about a rare item. The result is multiplied by the number of
all clients that mention the row, so that a method applies it like any other sum. With secure sums every group's sum is
revealed instead of the whole one: larger groups hide more and tolerate fewer adversaries. One group per client is the
classic form, which no secure sum can give.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tacit.random import Key
from tacit.types import Array, Config
from tacit.updates import Total

BLOCK = 2**22  # numbers of all groups together that are sorted at a time

Means = NDArray[np.float64]  # [G, n, D], NaN if a group did not mention a row
Rule = Callable[[Means, float], NDArray[np.float64]]  # the means of some rows and the share of adversaries -> [n, D]


class RobustConfig(Config):
    """Which rule, over how many groups."""

    former_names: ClassVar[Mapping[str, str]] = {
        "robust.liars": "robust.adversaries",
    }
    rule: Literal["trimmed-mean", "median", "krum"] = Field(
        "trimmed-mean", description="how the sums of groups are combined"
    )
    groups: int = Field(0, ge=0, description="number of random groups of clients in a round; 0: one per client")
    adversaries: float = Field(
        0.1, ge=0, lt=0.5, description="share of groups that may hold adversaries: trimmed at each end, or left out"
    )


def assign_groups(positions: NDArray[np.int64], config: RobustConfig, key: Key) -> list[NDArray[np.int64]]:
    """Assign clients to groups of nearly equal size, anew in each round."""
    n_groups = min(config.groups or len(positions), len(positions))
    draws = key.uniform(positions, 1)[:, 0]
    order = positions[np.argsort(draws, kind="stable")]
    return [np.sort(part) for part in np.array_split(order, n_groups)]


def combine_groups(totals: Sequence[Total], config: RobustConfig) -> Total:
    """Return the sum that a rule makes of the sums of groups."""
    counts = {name: np.sum([total.counts[name] for total in totals], axis=0) for name in totals[0].counts}
    n_clients = sum(total.n_clients for total in totals)
    if config.rule == "krum":
        chosen = totals[krum(totals, config.adversaries)]
        sums = {name: _scale(chosen.sums[name], chosen.counts[name], counts[name]) for name in counts}
        there = {name: np.where(chosen.counts[name] > 0, counts[name], 0) for name in counts}
        return Total(sums, there, n_clients)
    rule = RULES[config.rule]
    return Total({name: _by_row(totals, name, rule, config.adversaries) for name in counts}, counts, n_clients)


def trimmed_mean(means: Means, adversaries: float) -> NDArray[np.float64]:
    """Return, per number, the mean without the `adversaries` largest and smallest of the groups that mention it."""
    ordered = np.sort(means, axis=0)  # NaN goes to the end
    n_there = (~np.isnan(means)).sum(axis=0)
    cut = np.floor(n_there * adversaries).astype(np.int64)
    rank = np.arange(len(means))[:, None, None]
    kept = (rank >= cut) & (rank < n_there - cut)
    total: NDArray[np.float64] = np.where(kept, ordered, 0.0).sum(axis=0) / np.maximum(kept.sum(axis=0), 1)
    return total


def median(means: Means, adversaries: float) -> NDArray[np.float64]:
    """Return, per number, the middle of the groups that mention it, or the mean of the middle two."""
    n_there, ordered = (~np.isnan(means)).sum(axis=0), np.sort(means, axis=0)  # NaN goes to the end
    low, high = np.maximum(n_there - 1, 0) // 2, n_there // 2
    middle = [np.take_along_axis(ordered, np.minimum(at, len(means) - 1)[None], axis=0)[0] for at in (low, high)]
    found: NDArray[np.float64] = np.where(n_there > 0, (middle[0] + middle[1]) / 2.0, 0.0)
    return found


def krum(totals: Sequence[Total], adversaries: float) -> int:
    """Return which group is closest to its n - f - 2 nearest others; rows it did not mention count as no change."""
    n = len(totals)
    squares = np.zeros((n, n))
    for name in totals[0].sums:
        flat = np.stack([_mean(total, name).ravel() for total in totals])
        norms = np.einsum("ij,ij->i", flat, flat)
        squares += norms[:, None] + norms[None, :] - 2.0 * flat @ flat.T
    np.fill_diagonal(squares, np.inf)
    nearest = max(1, min(n - 1, n - int(np.ceil(adversaries * n)) - 2))
    scores = np.sort(squares, axis=1)[:, :nearest].sum(axis=1)
    return int(np.argmin(scores)) if n > 1 else 0


RULES: dict[str, Rule] = {"trimmed-mean": trimmed_mean, "median": median}


def _by_row(totals: Sequence[Total], name: str, rule: Rule, adversaries: float) -> NDArray[np.int64]:
    n_rows, width = totals[0].sums[name].shape
    result = np.zeros((n_rows, width), np.int64)
    step = max(1, BLOCK // (len(totals) * max(1, width)))
    for start in range(0, n_rows, step):
        cut = slice(start, start + step)
        means = np.stack([_mean(total, name, cut, missing=np.nan) for total in totals])
        spoke = np.sum([total.counts[name][cut] for total in totals], axis=0)
        result[cut] = np.rint(rule(means, adversaries) * spoke[:, None]).astype(np.int64)
    return result


def _mean(total: Total, name: str, cut: slice = slice(None), missing: float = 0.0) -> NDArray[np.float64]:
    sums, counts = total.sums[name][cut], total.counts[name][cut]
    return np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], missing)


def _scale(sums: NDArray[np.int64], counts: NDArray[np.int64], to: Array) -> NDArray[np.int64]:
    by = np.where(counts > 0, to / np.maximum(counts, 1), 0.0)
    return np.rint(sums * by[:, None]).astype(np.int64)
