"""How much the stored releases of a run reveal about its users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from tacit.privacy.meter import Exposure, ObservedRows, measure_exposure, presence, sign
from tacit.random import Key
from tacit.report.folder import Run
from tacit.types import Clients

PEOPLE = 100


def measure_exposures(found: Run, clients: Clients, pi: float, after: int, key: Key) -> list[Exposure]:
    """Measure a sample of the users of a run that kept its releases, after so many rounds."""
    served = found.recommender
    catalog, steps = served.catalog, int(served.model.shared["local_steps"])
    sample = np.argsort(key.child("sample").uniform(clients.ids, 1)[:, 0], kind="stable")[:PEOPLE]
    popularity = np.bincount(clients.items, minlength=catalog.n_items)
    assert found.events is not None  # it was asked for
    labels = [served.user_ids[int(clients.ids[position])] for position in sample]
    sent = found.events.filter((pl.col("round") < after) & pl.col("user").is_in(labels)).collect()
    seen = _count_observed(sent, labels, {label: i for i, label in enumerate(catalog.item_ids.labels.tolist())})
    people = []
    for position, label in zip(sample, labels, strict=True):
        history = clients.of(int(position))
        evidence = presence(seen[label], len(history), pi, steps) + sign(seen[label])
        people.append(measure_exposure(history, popularity, evidence))
    return people


def _count_observed(sent: pl.DataFrame, labels: Sequence[Any], place: Mapping[Any, int]) -> dict[Any, ObservedRows]:
    """Count, for each user, the rounds in which each item rose or fell."""
    found = {}
    by_user = dict(sent.partition_by("user", as_dict=True).items())
    for label in labels:
        mine = by_user.get((label,), sent.clear())
        counts = []
        for column in ("positives", "negatives"):
            times = np.zeros(len(place), np.int64)
            for items in mine[column].to_list():
                times[[place[item] for item in set(items)]] += 1
            counts.append(times)
        found[label] = ObservedRows(counts[0], counts[1], len(mine))
    return found
