"""Audits: the least epsilon that what was measured still allows.

An audit attacks a mechanism and counts how often the attack is right. If it is right more often than (epsilon, delta)
allows, the mechanism has a larger epsilon. What is returned holds with the stated confidence: a mechanism whose bound
lies above its ledger is broken; one whose bound lies below it is not proved sound.

    bound_by_two_worlds   many runs with a canary and many without (Clopper-Pearson on the two error rates)
    bound_by_one_run      one run in which each of many canaries was put in or left out by a fair coin (Steinke, Nasr
                          and Jagielski 2023)
    bound_gaussian        the same run, where noise is nearly Gaussian and independent in every number: far sharper
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import PrivacyError
from tacit.privacy.gaussian import epsilon_of_gdp, require

CONFIDENCE = 0.95
SHARES_GUESSED = (0.5, 0.2, 0.05, 0.02)  # of the canaries, the surest first
_LARGEST = 60.0  # no audit can distinguish larger epsilons


def bound_by_two_worlds(
    scores_in: ArrayLike, scores_out: ArrayLike, delta: float, confidence: float = CONFIDENCE
) -> float:
    """Return a lower bound of epsilon from scores of runs with the canary and of runs without it.

    A score is any number; canaries should make it differ. The first half of each world chooses the threshold and the
    side, the second half measures: a choice on the measured half would not hold at the stated confidence.
    """
    worlds = [_numbers(scores, "scores") for scores in (scores_in, scores_out)]
    _check(delta, confidence)
    if min(map(len, worlds)) < 4:
        raise PrivacyError("An audit needs at least four runs with the canary and four without.", "Run more.")
    choose, measure = ([world[part::2] for world in worlds] for part in (0, 1))
    best = (-math.inf, 0.0, 1.0, 1)  # bound, threshold, side, and which world is the more likely one there
    for side in (1.0, -1.0):
        for order in (1, -1):
            likely, rare = (side * world for world in choose[::order])
            thresholds, bounds = _scan(likely, rare, delta, confidence)
            at = int(np.argmax(bounds))
            best = max(best, (float(bounds[at]), float(thresholds[at]), side, order))
    _, threshold, side, order = best
    likely, rare = measure[::order]
    hits, alarms = (np.array([(side * world > threshold).sum()]) for world in (likely, rare))
    return max(0.0, float(_bound_rates(hits, alarms, (len(likely), len(rare)), delta, confidence)[0]))


def _scan(
    world: NDArray[np.float64], other: NDArray[np.float64], delta: float, confidence: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return thresholds between the scores of both worlds, and the bound that each would give."""
    every = np.unique(np.concatenate([world, other]))
    middles = (every[1:] + every[:-1]) / 2 if len(every) > 1 else every
    thresholds = middles[np.unique(np.linspace(0, len(middles) - 1, 400).astype(int))]
    hits, alarms = (len(scores) - np.searchsorted(np.sort(scores), thresholds, "right") for scores in (world, other))
    return thresholds, _bound_rates(hits, alarms, (len(world), len(other)), delta, confidence)


def _bound_rates(
    hits: NDArray[np.int64], alarms: NDArray[np.int64], sizes: tuple[int, int], delta: float, confidence: float
) -> NDArray[np.float64]:
    """Return log((true positive rate - delta) / false positive rate), both rates at the unfavourable end."""
    from scipy.special import betaincinv

    miss = (1 - confidence) / 2
    low = np.where(hits > 0, betaincinv(np.maximum(hits, 1), sizes[0] - hits + 1, miss), 0.0)
    high = np.where(alarms < sizes[1], betaincinv(alarms + 1, np.maximum(sizes[1] - alarms, 1), 1 - miss), 1.0)
    return np.asarray(np.log(np.maximum(low - delta, 1e-300)) - np.log(high), np.float64)


def bound_by_one_run(scores: ArrayLike, is_member: ArrayLike, delta: float, confidence: float = CONFIDENCE) -> float:
    """Return a lower bound of epsilon from one run with many canaries.

    `is_member` says which canaries were put in; each was, with probability 1/2, on its own. `scores` should be larger
    for those. The surest guesses are made at both ends; all numbers of guesses that are tried share the confidence.
    """
    values, members = _numbers(scores, "scores"), np.asarray(is_member)
    _check(delta, confidence)
    if members.dtype != bool or members.shape != values.shape or len(values) < 10:
        raise PrivacyError("An audit in one run needs ten canaries or more, and one boolean for each.", "Add some.")
    order = np.argsort(values, kind="stable")
    miss = (1 - confidence) / len(SHARES_GUESSED)
    found = 0.0
    for share in SHARES_GUESSED:
        half = max(1, int(share * len(values) / 2))
        right = int((~members[order[:half]]).sum() + members[order[-half:]].sum())
        found = max(found, _least_epsilon(len(values), 2 * half, right, delta, miss))
    return found


def bound_gaussian(scores: ArrayLike, is_member: ArrayLike, delta: float, confidence: float = CONFIDENCE) -> float:
    """Return a lower bound of epsilon from one run with many canaries, for noise that is independent in every number.

    A score above 0 is a guess that the canary was put in. Under mu-GDP a guess is right with probability Phi(mu / 2) at
    most. Canaries whose messages are orthogonal are then guessed right independently of each other, so the number of
    right guesses is at most binomial (Clopper-Pearson). Other mechanisms may make all guesses right or wrong together,
    and need `bound_by_one_run`.
    """
    from scipy.special import betaincinv, ndtri

    values, members = _numbers(scores, "scores"), np.asarray(is_member)
    _check(delta, confidence)
    if members.dtype != bool or members.shape != values.shape or not len(values):
        raise PrivacyError("An audit in one run needs canaries, and one boolean for each.", "Add some.")
    right = int(((values > 0) == members).sum())
    if 2 * right <= len(values):
        return 0.0
    share = float(betaincinv(right, len(values) - right + 1, 1 - confidence))
    return epsilon_of_gdp(2 * float(ndtri(share)), delta) if share > 0.5 else 0.0


def _least_epsilon(canaries: int, guesses: int, right: int, delta: float, miss: float) -> float:
    """Return the largest epsilon that so many right guesses refute."""
    if chance_of_guesses(canaries, guesses, right, 0.0, delta) >= miss:
        return 0.0
    low, high = 0.0, _LARGEST
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (
            (middle, high) if chance_of_guesses(canaries, guesses, right, middle, delta) < miss else (low, middle)
        )
    return low


def chance_of_guesses(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Bound the probability of at least `right` right guesses of `guesses` under (epsilon, delta)-DP.

    Without delta, right guesses are at most binomial with probability e^epsilon / (1 + e^epsilon). Delta adds at most
    2 m delta times the largest, over i, of the probability of the i numbers below `right`, divided by i.
    """
    from scipy.special import bdtrc

    share = 1 / (1 + math.exp(-epsilon))
    below = np.arange(right + 1)  # i = 0: right guesses or more
    at_least = np.where(below < right, bdtrc(np.maximum(right - below - 1, 0), guesses, share), 1.0)
    if delta == 0 or right == 0:
        return float(at_least[0])
    within = (at_least[1:] - at_least[0]) / below[1:]
    return min(1.0, float(at_least[0]) + 2 * canaries * delta * float(within.max()))


def _numbers(given: ArrayLike, what: str) -> NDArray[np.float64]:
    values = np.asarray(given, np.float64)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise PrivacyError(f"The {what} of an audit must be a list of finite numbers.", "Leave out failed runs.")
    return values


def _check(delta: float, confidence: float) -> None:
    require(delta, "delta", least=0, below=1)
    require(confidence, "confidence", above=0, below=1)
