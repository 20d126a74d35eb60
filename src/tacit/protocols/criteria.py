"""Client-aware aggregation: who counts how much in a round, and why (Ferrara's thesis, chapter 5).

Criteria measure what a device can report without showing the history: how long it is, how diverse it is, how far the
model has moved. In priority order they make a score, f(x) = x1 + x1 x2 + x1 x2 x3 + ... (5.5): a criterion of 0 cancels
all after it (5.7). A device multiplies what it learnt by its weight before it leaves, so sums, secure ones too, work as
they are. All it needs from others are two sums, of the criteria and of the scores.

A criterion of one's own is one function:

    @criterion("night-owl", "share of interactions after ten in the evening")
    def night_owl(seen):
        return shares_after(seen.clients, hour=22)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from tacit.errors import ConfigError, MethodError, nearest
from tacit.methods.parts.features import FeatureKind, features_of
from tacit.types import Array, Catalog, Clients, Config
from tacit.updates import Update

STEPS = 2.0**20  # criteria and scores are added as whole numbers of this grid: exact in any order
HALF_LIFE = 30 * 86_400.0  # seconds after which freshness has halved
LIKED = 4.0  # ratings from here on
Numbers = NDArray[np.float64]


class CriteriaConfig(Config):
    """By which criteria clients are weighed, the most important first."""

    order: tuple[str, ...] = Field(min_length=1, description="names of criteria, the most important first")
    scale: Literal["share", "relative"] = Field(
        "share",
        description="scaling of a criterion x: x / sum over the round, or x / (x + mean), which is 1/2 for the average "
        "and gives later criteria weight in rounds of any size",
    )
    score: Literal["priority", "mean"] = Field(
        "priority", description="x1 + x1 x2 + ..., in which a criterion of 0 cancels all after it; or their mean"
    )

    @field_validator("order")
    @classmethod
    def _known(cls, order: tuple[str, ...]) -> tuple[str, ...]:
        for name in order:
            if name not in CRITERIA:
                raise ConfigError(f"There is no criterion '{name}'.", nearest(name, CRITERIA))
        if len(set(order)) < len(order):
            raise ValueError("a criterion occurs twice in the order")
        return order


@dataclass(frozen=True)
class ClientFacts:
    """What the devices of some clients know when they measure themselves."""

    clients: Clients
    catalog: Catalog
    now: int  # unix seconds; 0 where the data has no times
    answered: NDArray[np.int64]  # [C] rounds in which the client's answer counted so far
    asked: NDArray[np.int64]  # [C] rounds in which the client was asked so far
    update: Update | None = None  # what was learnt in this round, where a criterion asks for it


@dataclass(frozen=True)
class Criterion:
    """A measure of clients: numbers from 0, higher is better."""

    name: str
    about: str
    measure: Callable[[ClientFacts], Array]
    after_learning: bool  # it needs the update


CRITERIA: dict[str, Criterion] = {}
Measure = Callable[[ClientFacts], Array]


def criterion(name: str, about: str, *, after_learning: bool = False) -> Callable[[Measure], Measure]:
    """Register a function of `ClientFacts` that returns one number per client, [C]."""

    def keep(measure: Measure) -> Measure:
        CRITERIA[name] = Criterion(name, about, measure, after_learning)
        return measure

    return keep


@criterion("size", "length of the history")
def size(seen: ClientFacts) -> Array:
    """Rows of the history: FedAvg's own criterion."""
    return seen.clients.sizes


@criterion("diversity", "number of different categories, or statements of the graph, of the client's items")
def diversity(seen: ClientFacts) -> Array:
    """Different labels in the history: categories, or statements of a knowledge graph if there are none."""
    return np.asarray((_per_category(seen) > 0).sum(axis=1))


@criterion("balance", "balance of liked and other items in the history")
def balance(seen: ClientFacts) -> Array:
    """min / max of the numbers of liked and of other rows (5.8)."""
    liked = _is_liked(seen)
    return class_balance(liked, seen.clients.sizes - liked)


@criterion("liked", "share of the history that the user liked")
def liked_share(seen: ClientFacts) -> Array:
    """A fraction of good samples, as sharp pictures are in the thesis."""
    return _is_liked(seen) / np.maximum(seen.clients.sizes, 1)


@criterion("divergence", "how little the client's model changed", after_learning=True)
def divergence(seen: ClientFacts) -> Array:
    """1 / sqrt(|d| + 1), d all that the client would send."""
    if seen.update is None:
        raise MethodError("The criterion 'divergence' compares updates, and this round has none.")
    squares = np.zeros(len(seen.clients))
    for rows in seen.update.tables.values():
        owner = np.repeat(np.arange(len(squares)), np.diff(rows.ptr))
        lengths = (rows.values.astype(np.float64) ** 2).sum(axis=1)
        squares += np.bincount(owner, weights=lengths, minlength=len(squares))
    return model_closeness(np.sqrt(squares))


@criterion("freshness", "how recent the newest interaction is")
def freshness(seen: ClientFacts) -> Array:
    """Halves with every 30 days since the newest row."""
    clients = seen.clients
    if clients.times is None:
        raise MethodError("The criterion 'freshness' needs times, and the data has none.", "Leave it out.")
    newest = np.full(len(clients), -np.inf)
    there = clients.sizes > 0
    newest[there] = np.maximum.reduceat(clients.times, clients.ptr[:-1][there])
    return np.asarray(np.exp2(-np.maximum(seen.now - newest, 0.0) / HALF_LIFE))


@criterion("reliability", "how often the client answered when asked")
def reliability(seen: ClientFacts) -> Array:
    """(1 + answered) / (1 + asked)."""
    return np.asarray((1.0 + seen.answered) / (1.0 + seen.asked))


def class_balance(first: Array, second: Array) -> Numbers:
    """min / max of two counts; 0 where one class is missing.

    >>> class_balance(np.array([3, 5, 0]), np.array([6, 5, 4])).tolist()
    [0.5, 1.0, 0.0]
    """
    most = np.maximum(first, second)
    return np.divide(np.minimum(first, second), most, out=np.zeros(len(most)), where=most > 0)


def model_closeness(lengths: Array) -> Numbers:
    """1 / sqrt(|d| + 1) of the lengths of moves."""
    return np.asarray(1.0 / np.sqrt(lengths + 1.0))


def _per_category(seen: ClientFacts) -> Array:
    catalog = seen.catalog
    if catalog.categories is None and catalog.graph is None:
        raise MethodError(
            "The criterion 'diversity' counts categories, and the data has none.",
            "Leave it out, or load a knowledge graph (data.graph).",
        )
    kind: FeatureKind = "graph" if catalog.categories is None else "categories"
    known = features_of(catalog, kind, "the criterion 'diversity'").matrix()
    counts: Array = (seen.clients.matrix() @ known).toarray()
    return counts


def _is_liked(seen: ClientFacts) -> Array:
    clients = seen.clients
    if clients.values is None:
        raise MethodError("The criteria 'liked' and 'balance' need ratings, and the data has none.", "Leave them out.")
    return np.bincount(clients.rows, weights=clients.values >= LIKED, minlength=len(clients))


def priority_score(x: Array) -> Numbers:
    """Return f(x) = sum over i of the product of x_1 ... x_i (5.5), for columns x [m, C].

    >>> priority_score(np.array([[0.9, 0.1], [0.2, 0.8], [0.4, 0.5]])).round(3).tolist()
    [1.152, 0.22]
    """
    return np.asarray(np.cumprod(np.asarray(x, np.float64), axis=0).sum(axis=0))


def mean_score(x: Array) -> Numbers:
    """Return the mean of the criteria, for columns x [m, C]."""
    return np.asarray(np.asarray(x, np.float64).mean(axis=0))


SCORES: dict[str, Callable[[Array], Numbers]] = {"priority": priority_score, "mean": mean_score}


@dataclass(frozen=True)
class ClientWeights:
    """The clients of a round, what they measured, and what follows from it. Criteria down, clients across."""

    names: tuple[str, ...]
    measured: Numbers  # [m, C]
    criteria: Numbers  # [m, C] the same, from 0 to 1: shares of the round's sum, or relative to its mean
    scores: Numbers  # [C]
    weights: Numbers  # [C], 1 in all

    @property
    def factors(self) -> Numbers:
        """The factor of each client's update: 1 on average, so that a rule that adds or averages stays in scale."""
        return self.weights * len(self.weights)


def weigh_clients(
    names: Sequence[str], measured: Array, score: str = "priority", scale: str = "share", who: Array | None = None
) -> ClientWeights:
    """Return the weights (5.4) that follow from what clients measured, [m, C].

    Normalisers are sums of whole numbers, so they do not depend on the order of arrival and may be secure sums. Where
    no client meets a criterion it is 0 for all; where every score is 0 all clients count the same.
    """
    measured = np.asarray(measured, np.float64)
    for name, values in zip(names, measured, strict=True):
        bad = ~np.isfinite(values) | (values < 0)
        if bad.any():
            at = int(np.flatnonzero(bad)[0])
            client = at if who is None else who[at]
            raise MethodError(
                f"The criterion '{name}' measured {values[at]:g} for client {client}.",
                "A criterion is a finite number from 0 on, higher is better: correct its function.",
            )
    steps = np.rint(measured * STEPS)
    sums = steps.sum(axis=1, keepdims=True)
    n_clients = measured.shape[1]
    by = sums if scale == "share" else steps + sums / max(n_clients, 1)
    criteria = np.divide(steps, by, out=np.zeros_like(steps), where=by > 0)
    scores = SCORES[score](criteria)
    shown = np.rint(scores * n_clients * STEPS)  # scores are about 1 / n: on the grid as n times as much
    total = shown.sum()
    weights = shown / total if total > 0 else np.full(n_clients, 1.0 / max(n_clients, 1))
    return ClientWeights(tuple(names), measured, criteria, scores, weights)
