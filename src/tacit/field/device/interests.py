"""What a new user likes, chosen on the device: titles and categories that stand in for a history while there is none.

They never leave the device and are no part of the history: no update is learnt from them, and a device with interests
alone has nothing to send. Recommendations are made from them here, by the model that the device has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.errors import MethodError
from tacit.field.device.alone import recommend_alone
from tacit.field.device.learning import first_private
from tacit.field.device.membership import Membership
from tacit.field.device.settings import find_forbidden
from tacit.languages import translate
from tacit.random import Key
from tacit.serving.lists import ListFilter, Recommendation
from tacit.serving.recommender import Recommender, score_rows
from tacit.types import Array, Catalog, Clients, Floats, Label, Model, Vocabulary, offsets

MOST_OF_CATEGORY = 50  # items that stand for a category, spread evenly over it


@dataclass(frozen=True)
class Interests:
    """Items by their id, and categories by their name."""

    items: tuple[Label, ...] = ()
    categories: tuple[str, ...] = ()

    @classmethod
    def find(cls, names: Sequence[str], catalog: Catalog) -> Interests:
        """Return the interests of some titles, ids or categories; an unknown one is an error that names the nearest."""
        found = [find_forbidden(name, catalog) for name in names]
        items = dict.fromkeys(item for item, _ in found if item is not None)
        return cls(tuple(items), tuple(dict.fromkeys(name for _, name in found if name is not None)))

    @classmethod
    def read(cls, stored: dict[str, Any] | None) -> Interests:
        """Read what the device's file holds."""
        return cls() if stored is None else cls(tuple(stored["items"]), tuple(stored["categories"]))

    def to_json(self) -> dict[str, Any]:
        """Return it for the device's file."""
        return {"items": [*self.items], "categories": [*self.categories]}

    def __bool__(self) -> bool:
        return bool(self.items or self.categories)

    def stand_ins(self, catalog: Catalog) -> dict[int, str]:
        """Return items that stand for the interests, and the interest of each; what the catalogue lost is left out."""
        found: dict[int, str] = {}
        labels = catalog.categories
        for name in self.categories:
            if labels is not None and name in labels.names:
                carriers = ListFilter(categories=[name]).items(catalog)
                chosen = np.linspace(0, len(carriers) - 1, min(len(carriers), MOST_OF_CATEGORY)).round().astype(int)
                found |= dict.fromkeys(carriers[chosen].tolist(), name)
        for label in self.items:
            item = catalog.item_ids.place(label)
            if item is not None:
                found[item] = catalog.title(item)
        return found


def recommend_by_interests(
    member: Membership, interests: Interests, hidden: Sequence[Label], key: Key, n: int
) -> list[Recommendation]:
    """Return the best n items for chosen interests. Items of a chosen category may be listed, chosen titles are not."""
    last, catalog = member.model(), member.catalog
    stand_ins = interests.stand_ins(catalog)
    if not stand_ins:
        raise MethodError("None of your interests is in the catalogue any more.", "Choose others.")
    if last is None:
        return recommend_alone(catalog, stand_ins, (*interests.items, *hidden), key, n)
    items = np.array(sorted(stand_ins), np.int32)
    client = Clients(
        np.zeros(1, np.int64),
        offsets(np.array([len(items)])),
        items,
        catalog.n_items,
        places=np.arange(len(items), dtype=np.int32),
    )
    federation, model = member.federation, Model(last.shared, first_private(member, client, key))
    recommender = Recommender(
        federation.method, federation.config, model, client, catalog, Vocabulary(np.zeros(1, int))
    )
    left_out = [label for label in (*interests.items, *hidden) if catalog.item_ids.place(label) is not None]
    listed = ListFilter(exclude=left_out).items(catalog)
    scores, listed = _score(recommender, client, stand_ins, listed)
    found = []
    for item in recommender.ties.best(scores, 0, listed, n).tolist():
        why = translate("because you chose “{name}”", name=_strongest(recommender, client, stand_ins, item))
        found.append(Recommendation(catalog.item_ids[item], catalog.title(item), float(scores[item]), why))
    return found


def _score(recommender: Recommender, client: Clients, stand_ins: dict[int, str], listed: Array) -> tuple[Floats, Array]:
    """Return scores of all items, and which may be listed.

    A method with a vector per user has none for a user without a history: there, what is popular among items that share
    a category with an interest is listed.
    """
    if not recommender.model.private:
        return score_rows(recommender.method, recommender.model, client)[0], listed
    popular = recommender.method.popularity(recommender.model.shared)
    scores = np.zeros(recommender.catalog.n_items, np.float32) if popular is None else np.asarray(popular, np.float32)
    labels = recommender.catalog.categories
    if labels is None:
        return scores, listed
    names = sorted({name for item in stand_ins for name in labels.of(item)})
    like = ListFilter(categories=names).items(recommender.catalog) if names else listed
    return scores, np.intersect1d(listed, like)


def _strongest(recommender: Recommender, client: Clients, stand_ins: dict[int, str], item: int) -> str:
    """Return the interest that carried the score of an item."""
    weights: Counter[str] = Counter()
    if not recommender.model.private:
        for reason in recommender.method.explain(recommender.model.shared, recommender.model.private, client, item):
            if reason.kind == "history" and int(reason.about) in stand_ins:
                weights[stand_ins[int(reason.about)]] += reason.weight  # type: ignore[assignment]
    labels = recommender.catalog.categories
    if not weights and labels is not None:  # an interest of its own kind
        own = {*labels.of(item)}
        for stand_in, name in stand_ins.items():
            weights[name] += len(own & {*labels.of(stand_in)})
    return weights.most_common(1)[0][0] if weights else next(iter(stand_ins.values()))
