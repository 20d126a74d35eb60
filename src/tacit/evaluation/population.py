"""The metrics of all lists together, at every k."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tacit.evaluation.heldout import HeldoutItems
from tacit.evaluation.lists import (
    CategoryBias,
    aclt,
    bias_disparity,
    gini,
    item_coverage,
    pop_reo,
    pop_rsp,
    recommended_counts,
    shannon_entropy,
    short_head,
)
from tacit.kernels.topk import listed_truth
from tacit.types import Array, Catalog


@dataclass
class Population:
    """What lists show of the catalogue: metrics by name, the rest by k."""

    metrics: dict[str, float] = field(default_factory=dict)
    recommended: dict[int, NDArray[np.int64]] = field(default_factory=dict)
    bias: dict[int, CategoryBias] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def measure_lists(top: Array, data: HeldoutItems, catalog: Catalog, ks: tuple[int, ...]) -> Population:
    """Measure the lists of all users; a metric that is undefined on this data is left out, with a note."""
    popularity = np.bincount(data.seen, minlength=catalog.n_items)
    is_head = short_head(popularity)
    hits = listed_truth(top, data.truth_ptr, data.truth)
    findable = data.truth[(data.truth >= 0) & ~data.truth_seen]
    found = Population()
    for k in ks:
        lists = top[:, :k]
        counts = recommended_counts(lists, catalog.n_items)
        measured: dict[str, float | None] = {
            "ItemCoverage": item_coverage(counts),
            "ItemCoverageRatio": item_coverage(counts) / catalog.n_items,
            "Gini": gini(counts),
            "ShannonEntropy": shannon_entropy(counts),
            "ACLT": aclt(lists, is_head),
            "PopREO": pop_reo(lists, hits[:, :k], findable, is_head),
            "PopRSP": pop_rsp(lists, popularity, is_head),
        }
        found.metrics |= {f"{name}@{k}": float(value) for name, value in measured.items() if value is not None}
        found.recommended[k] = counts
        if catalog.categories is not None:
            found.bias[k] = bias_disparity(counts, popularity, catalog.categories)
        for name in (name for name, value in measured.items() if value is None):
            found.notes.append(f"{name}@{k} is undefined: popular or long-tail items are missing from one side")
    return found
