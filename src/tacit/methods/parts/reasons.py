"""Turn contributions to a score into the few reasons a client is shown."""

from __future__ import annotations

import numpy as np

from tacit.types import Array, Reason

MOST = 5  # reasons: more than a client reads


def from_history(items: Array, parts: Array, newest: int | None = None) -> list[Reason]:
    """Return the items of the history that contributed to a score, strongest first; only positive parts count.

    A method that reads order says which item is the newest.
    """
    return [
        Reason("history", int(items[at]), weight, is_newest=int(items[at]) == newest) for at, weight in strongest(parts)
    ]


def strongest(parts: Array) -> list[tuple[int, float]]:
    """Return (position, share of all that is positive) of the largest positive parts, largest first."""
    positive = np.maximum(np.asarray(parts, np.float64), 0.0)
    total = float(positive.sum())
    order = np.argsort(-positive, kind="stable")[:MOST]
    return [(int(at), float(positive[at]) / total) for at in order if positive[at] > 0]


def alignment(vectors: Array, items: Array, item: int) -> Array:
    """Return the cosine between the vectors of some items and that of one item; zero vectors align with nothing."""
    chosen, target = vectors[items], vectors[item]
    lengths = np.linalg.norm(chosen, axis=1) * np.linalg.norm(target)
    aligned: Array = np.divide(chosen @ target, lengths, out=np.zeros(len(items), vectors.dtype), where=lengths > 0)
    return aligned
