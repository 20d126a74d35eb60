"""Merge rules: how much of itself a peer keeps when it mixes a peer's model into its own. A new one is one function.

A rule sees what is known of two models when they meet and returns two weights for each meeting, not both zero; they are
divided by their sum.

    performance   by what each earns on the reader's weighting set (PEPPER, algorithm 2)
    performance-or-even   the same, but where neither earns anything half and half
    samples       by how much its owner has learnt from (decentralised FedAvg)
    age           by how often it has been updated (Hegedus et al.)
    even          half and half
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Weights = NDArray[np.float64]


@dataclass(frozen=True)
class ModelPair:
    """Two models that meet, [R, 2]: the reader's own, and the one of the peer model."""

    samples: Weights
    ages: Weights
    worths: Weights  # on the receiver's weighting set; -1 if it has none


@dataclass(frozen=True)
class MergeRule:
    """A rule, whether it asks what models are worth to the reader, and whether for how many samples they are of."""

    weigh: Callable[[ModelPair], Weights]
    judges: bool = False
    uses_samples: bool = False


def by_performance(meeting: ModelPair) -> Weights:
    """Weights are worths. If neither earns anything the peer keeps its own; a peer that cannot judge averages."""
    worths = meeting.worths
    keeps = np.where(worths.sum(axis=1, keepdims=True) == 0, [1.0, 0.0], worths)
    return np.where(worths.min(axis=1, keepdims=True) < 0, 0.5, keeps)


def by_performance_or_even(meeting: ModelPair) -> Weights:
    """As by performance, but two models that earn nothing are averaged."""
    worths = meeting.worths
    return np.where((worths.sum(axis=1, keepdims=True) == 0) | (worths.min(axis=1, keepdims=True) < 0), 0.5, worths)


def by_samples(meeting: ModelPair) -> Weights:
    """Weights are numbers of samples; two peers that have none average."""
    return _or_even(meeting.samples)


def by_age(meeting: ModelPair) -> Weights:
    """Weights are ages; two models that never learnt average."""
    return _or_even(meeting.ages)


def evenly(meeting: ModelPair) -> Weights:
    """Half and half."""
    return np.full_like(meeting.samples, 0.5)


def _or_even(weights: Weights) -> Weights:
    return np.where(weights.sum(axis=1, keepdims=True) == 0, 0.5, weights)


RULES = {
    "performance": MergeRule(by_performance, judges=True),
    "performance-or-even": MergeRule(by_performance_or_even, judges=True),
    "samples": MergeRule(by_samples, uses_samples=True),
    "age": MergeRule(by_age),
    "even": MergeRule(evenly),
}
