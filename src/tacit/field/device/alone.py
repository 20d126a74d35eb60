"""Suggestions before the first exchange, from what this device has alone.

There is no model yet, but the catalogue has categories. Items are ranked by how much of the user's own history shares
their categories. Nothing is sent for that, and nothing is learnt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from tacit.errors import MethodError
from tacit.evaluation.ranking import TieOrder
from tacit.languages import translate
from tacit.random import Key
from tacit.serving.lists import ListFilter, Recommendation
from tacit.types import Catalog, Label


def recommend_alone(
    catalog: Catalog, items: Iterable[int], left_out: Sequence[Label], key: Key, n: int
) -> list[Recommendation]:
    """Return n items of the categories that some items have most, without these and others that are left out."""
    labels = catalog.categories
    if labels is None:
        raise MethodError("This device has no model yet.", "Take part in a round: tacit device run.")
    known = sorted(items)
    weights: Counter[str] = Counter()
    for item in known:
        own = labels.of(item)
        weights.update(dict.fromkeys(own, 1 / max(1, len(own))))
    total = sum(weights.values()) or 1.0
    scores = np.zeros(catalog.n_items, np.float32)
    for item in range(catalog.n_items):
        own = labels.of(item)
        scores[item] = sum(weights[name] for name in own) / (total * max(1, len(own)))
    hidden = [label for label in left_out if catalog.item_ids.place(label) is not None]
    listed = np.setdiff1d(ListFilter(exclude=hidden).items(catalog), np.array(known, np.int64))
    listed = listed[scores[listed] > 0]
    found = []
    for item in TieOrder.draw(key.child("alone"), catalog.n_items).best(scores, 0, listed, n).tolist():
        name = max(labels.of(item), key=lambda one: weights[one])
        why = translate("because much of what you have is “{name}”", name=name)
        found.append(Recommendation(catalog.item_ids[item], catalog.title(item), float(scores[item]), why))
    return found
