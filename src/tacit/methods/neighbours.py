"""Neighbourhood methods: items of similar users (user-knn), items similar to those of the history (item-knn)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
from pydantic import Field
from scipy import sparse

from tacit.kernels import neighbours as kernel
from tacit.methods.base import Centralised, register
from tacit.methods.parts import reasons
from tacit.methods.parts.order import RECENCY, newest_item, recent_history, recent_matrix
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Config, Floats, Model, Reason

Similarity = Literal["cosine", "jaccard", "dice", "pearson"]
_KINDS: dict[str, int] = {
    "cosine": kernel.COSINE,
    "jaccard": kernel.JACCARD,
    "dice": kernel.DICE,
    "pearson": kernel.PEARSON,
}


class NeighbourConfig(Config):
    """Options both neighbourhood methods share."""

    neighbours: int = Field(80, gt=0, description="k: number of nearest neighbours")
    similarity: Similarity = Field("cosine", description="similarity of two histories")
    shrink: float = Field(0.0, ge=0, description="a similarity on c shared entries is multiplied by c / (c + shrink)")


class UserKNNConfig(NeighbourConfig):
    """Options of user-knn."""

    amplify: float = Field(1.0, gt=0, description="exponent of the similarity: above 1 the nearest users count more")


class ItemKNNConfig(NeighbourConfig):
    """Options of item-knn."""

    normalise: bool = Field(False, description="divide a score by the sum of similarities of the item's neighbours")
    recency: float | None = Field(None, gt=0, description=RECENCY)


@register("user-knn", UserKNNConfig)
class UserKNN(Centralised):
    """Similar users: what the k users with the most similar history did, weighted by similarity."""

    def __init__(self, config: UserKNNConfig) -> None:
        self.config = config

    def fit(self, clients: Clients, catalog: Catalog, key: Key) -> Iterator[Model]:
        """Store the histories by users and by items; neighbours are found when they are needed."""
        by_users = clients.matrix()
        by_items = by_users.tocsc()
        yield Model(
            {
                "people": clients.ids,
                "ptr": by_users.indptr,
                "items": by_users.indices,
                "item_ptr": by_items.indptr,
                "item_people": by_items.indices,
            },
            {},
        )

    def score(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients) -> Floats:
        """Return the summed similarity of the neighbours who have each item."""
        found, values = self._nearest(shared, clients)
        n_items = len(shared["item_ptr"]) - 1
        return np.asarray(kernel.sum_of_neighbours(found, values, shared["ptr"], shared["items"], n_items))

    def explain(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], client: Clients, item: int
    ) -> list[Reason]:
        """Return how many of the similar users have the item, and their part of the similarity."""
        found, values = self._nearest(shared, client)
        had = shared["item_people"][shared["item_ptr"][item] : shared["item_ptr"][item + 1]]
        did = np.isin(found[0], had)
        total = float(values[0].sum())
        return [Reason("people", int(did.sum()), float(values[0][did].sum()) / total)] if did.any() else []

    def _nearest(self, shared: Mapping[str, Array], clients: Clients) -> tuple[Array, Floats]:
        """Return the neighbours of each client among the training users, without the client itself."""
        c, x = self.config, clients.matrix()
        order = np.argsort(shared["people"], kind="stable")
        at = np.minimum(np.searchsorted(shared["people"], clients.ids, sorter=order), len(order) - 1)
        known = (shared["people"][order[at]] == clients.ids) & (clients.ids >= 0)
        skip = np.where(known, order[at], -1)
        sizes = np.diff(shared["ptr"])
        found, values = kernel.nearest_rows(
            x.indptr,
            x.indices,
            shared["item_ptr"],
            shared["item_people"],
            sizes,
            skip,
            c.neighbours,
            _KINDS[c.similarity],
            c.shrink,
        )
        return found, values if c.amplify == 1.0 else values ** np.float32(c.amplify)


@register("item-knn", ItemKNNConfig)
class ItemKNN(Centralised):
    """Similar items: an item scores by the similarity of its k nearest items that are in the history."""

    def __init__(self, config: ItemKNNConfig) -> None:
        self.config = config

    def fit(self, clients: Clients, catalog: Catalog, key: Key) -> Iterator[Model]:
        """Find each item's k nearest items; only these are kept."""
        c, n = self.config, catalog.n_items
        by_users = clients.matrix()
        by_items = by_users.tocsc()
        found, values = kernel.nearest_rows(
            by_items.indptr,
            by_items.indices,
            by_users.indptr,
            by_users.indices,
            np.diff(by_items.indptr),
            np.arange(n),
            min(c.neighbours, n),
            _KINDS[c.similarity],
            c.shrink,
        )
        if c.normalise:
            totals = values.sum(axis=1, keepdims=True)
            values = np.divide(values, totals, out=np.zeros_like(values), where=totals > 0)
        towards = _towards(found, values, n)
        yield Model({"ptr": towards.indptr, "items": towards.indices, "weights": towards.data}, {})

    def score(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients) -> Floats:
        """Return for each item the sum of weights from the items of the history."""
        n_items = len(shared["ptr"]) - 1
        if self.config.recency is not None:
            recent = recent_matrix(clients, self.config.recency)
            return np.asarray((recent @ _stored_weights(shared)).toarray(), np.float32)
        x = clients.matrix()
        sums = kernel.sum_of_rows(x.indptr, x.indices, shared["ptr"], shared["items"], shared["weights"], n_items)
        return np.asarray(sums)

    def explain(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], client: Clients, item: int
    ) -> list[Reason]:
        """Return items of the history that are neighbours of the item: the score is their sum."""
        history, recent = recent_history(client, self.config.recency)
        return reasons.from_history(
            history,
            recent * _stored_weights(shared)[history][:, [item]].toarray()[:, 0],
            newest_item(client, self.config.recency),
        )


def _stored_weights(shared: Mapping[str, Array]) -> Any:
    """Return the sparse matrix [from, to] of a model."""
    n = len(shared["ptr"]) - 1
    return sparse.csr_matrix((shared["weights"], shared["items"], shared["ptr"]), shape=(n, n))


def _towards(found: Array, values: Floats, n: int) -> Any:
    """Return the sparse matrix [from, to] of the neighbours `found` [to, k]: by the item that recommends others."""
    to, at = np.nonzero(found >= 0)
    towards = sparse.csr_matrix((values[to, at], (found[to, at], to)), shape=(n, n))
    towards.sort_indices()
    return towards
