"""The privacy meter: what a reader of everything that left a device could infer about its user.

The reader knows the catalogue and the popularity of each item. From readable rows it also knows, for each item, in how
many rounds it had a row (*presence*) and whether it moved up or down (*sign*). In pair-wise learning the bias of an
item of the history always rises, that of another always falls. Each gives a log-likelihood ratio per item; prior and
evidence add up to a posterior. Masked rows reveal nothing about one client beyond the sum, so they are not counted
here; the threat model says what sums may still reveal.

    Exposure.leak_index   0: no better than guessing the popular items; 1: the whole history, in order
    Exposure.named        items of the history that the reader would name with at least 90 % certainty
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.types import Array

SURE = 0.9
MISREAD = 0.01  # chance that a sign is read wrongly: averages over local steps can hide one
MOST = 1e-6  # nothing is held for certain
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Exposure:
    """How well a reader distinguishes a client's items from all others."""

    auc: float
    auc_popularity: float  # of a reader who saw nothing and guesses the popular items
    precision: float  # share of true items among as many items that the reader thinks most likely
    tpr_at_1: float  # share of true items found while one other item in a hundred is wrongly named
    named: int  # true items with a posterior of at least SURE
    accused: int  # items with such a posterior, true or not
    items: int  # length of the history

    @property
    def leak_index(self) -> float:
        """How much of the way from popularity to certainty the reader has come, 0 to 1."""
        room = 1.0 - self.auc_popularity
        return float(max(0.0, (self.auc - self.auc_popularity) / room)) if room > 0 else 0.0


@dataclass(frozen=True)
class ObservedRows:
    """The evidence of readable rows so far, per item [n_items]: rounds in which it rose, rounds in which it fell."""

    rose: NDArray[np.int64]
    fell: NDArray[np.int64]
    rounds: int  # in which anything was sent


def prior(popularity: Array, size: int) -> Numbers:
    """Return the log-odds that a client with so many items has each: as popular, so likely."""
    counts = np.asarray(popularity, np.float64) + 0.5  # an item without interactions is not impossible
    chance = np.clip(counts * size / counts.sum(), MOST, 0.5)
    odds: Numbers = np.log(chance / (1.0 - chance))
    return odds


def presence(seen: ObservedRows, size: int, pi: float, steps: int) -> Numbers:
    """Return the evidence of each item's presence, for a client with `size` items that sends a positive with chance pi.

    In a round of `steps` triples an item of the history is drawn with chance a, another with chance b.
    """
    n_items = len(seen.rose)
    size = min(max(size, 1), n_items - 1)
    a = pi * (1.0 - (1.0 - 1.0 / size) ** steps)
    b = 1.0 - (1.0 - 1.0 / (n_items - size)) ** steps
    a, b = (min(max(chance, MOST), 1.0 - MOST) for chance in (a, b))
    times = np.minimum(seen.rose + seen.fell, seen.rounds)
    ratio: Numbers = times * np.log(a / b) + (seen.rounds - times) * np.log((1.0 - a) / (1.0 - b))
    return ratio


def sign(seen: ObservedRows) -> Numbers:
    """Return the evidence of rising and falling for each item."""
    ratio: Numbers = (seen.rose - seen.fell) * np.log((1.0 - MISREAD) / MISREAD)
    return ratio


def measure_exposure(
    history: Array, popularity: Array, evidence: Numbers, guessing: Exposure | None = None
) -> Exposure:
    """Compare what a reader concludes from prior and evidence with the truth.

    `guessing` is the same without evidence, where that was measured: it need not be measured again.
    """
    n_items = len(popularity)
    is_own = np.zeros(n_items, bool)
    is_own[history] = True
    size = int(is_own.sum())
    guess = prior(popularity, size)
    belief = guess + evidence
    likely = belief >= np.log(SURE / (1.0 - SURE))
    mine, others = _apart(belief, is_own)
    known = _auc(mine, others)
    return Exposure(
        auc=known,
        auc_popularity=guessing.auc if guessing is not None else auc(guess, is_own) if evidence.any() else known,
        precision=share_named(belief, is_own),
        tpr_at_1=_true_positives(mine, others, 0.01),
        named=int((likely & is_own).sum()),
        accused=int(likely.sum()),
        items=size,
    )


def auc(belief: Numbers, is_own: NDArray[np.bool_]) -> float:
    """Return the chance that an item of the history has a higher belief than another; a tie counts half."""
    return _auc(*_apart(belief, is_own))


def share_named(belief: Numbers, is_own: NDArray[np.bool_]) -> float:
    """Return the share of true items among as many with the highest belief; ties count by position."""
    size = int(is_own.sum())
    if not size:
        return 0.0
    level = np.partition(belief, len(belief) - size)[len(belief) - size]
    above = belief > level
    level_with = np.flatnonzero(belief == level)[: size - int(above.sum())]
    return float((is_own[above].sum() + is_own[level_with].sum()) / size)


def _apart(belief: Numbers, is_own: NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
    """Return the beliefs in items of the history and in the others, each in ascending order."""
    return np.sort(belief[is_own]), np.sort(belief[~is_own])


def _auc(mine: Numbers, others: Numbers) -> float:
    if not len(mine) or not len(others):
        return 0.5
    below = np.searchsorted(others, mine, "left").sum() + np.searchsorted(others, mine, "right").sum()
    return float(below / (2 * len(mine) * len(others)))


def _true_positives(mine: Numbers, others: Numbers, rate: float) -> float:
    """Return the share of true items above the level that `rate` of the others exceed."""
    if not len(mine) or not len(others):
        return 0.0
    level = others[math.ceil((len(others) - 1) * (1.0 - rate))]
    return float((mine > level).mean())
