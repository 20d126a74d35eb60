"""Suggestions before the first exchange, from what this device has alone.

There is no model yet, but the catalogue may have categories, and a popularity that its operator gives. Nothing is sent
for these suggestions, and nothing is learnt.
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
    """Return n items for a user who has some items, or chose them as interests, without those that are left out.

    Items that share a category with the user's come first. Where the catalogue has a popularity, the most popular of
    them lead, and all others follow by popularity; else those lead whose categories the user has most.
    """
    labels, popularity, n_items = catalog.categories, catalog.popularity, catalog.n_items
    if labels is None and popularity is None:
        raise MethodError("This device has no model yet.", "Take part in a round: tacit device run.")
    categories = [[] if labels is None else labels.of(item) for item in range(n_items)]
    weights: Counter[str] = Counter()
    for item in sorted(items):
        weights.update(dict.fromkeys(categories[item], 1 / max(1, len(categories[item]))))
    likeness, total = np.zeros(n_items, np.float32), sum(weights.values()) or 1.0
    for item, own in enumerate(categories):
        likeness[item] = sum(weights[name] for name in own) / (total * max(1, len(own)))
    listed = ListFilter(exclude=[label for label in left_out if catalog.item_ids.place(label) is not None]).items(
        catalog
    )
    groups, scores = [listed[likeness[listed] > 0]], likeness
    if popularity is not None:
        groups.append(listed[likeness[listed] <= 0])
        scores = (popularity / (popularity.max() or 1.0)).astype(np.float32)
    ties = TieOrder.draw(key.child("alone"), n_items)
    best = [item for group in groups for item in ties.best(scores, 0, group, n).tolist()][:n]
    return [
        Recommendation(
            catalog.item_ids[item], catalog.title(item), float(scores[item]), _explain(categories[item], weights)
        )
        for item in best
    ]


def _explain(categories: Sequence[str], weights: Counter[str]) -> str:
    """Say why an item of some categories is listed for a user who has categories by these weights."""
    name = max(categories, key=lambda one: weights[one], default="")
    if not weights[name]:
        return translate("because it is popular")
    return translate("because much of what you have is “{name}”", name=name)
