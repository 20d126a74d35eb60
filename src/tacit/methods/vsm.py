"""Vector space model: items as weighted vectors of what is known about them, a person as the mean of hers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field
from scipy import sparse

from tacit.errors import MethodError
from tacit.methods import reasons
from tacit.methods.base import register
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Config, Floats, Model, Reason, Triples


class VSMConfig(Config):
    """Options of vsm."""

    features: Literal["categories", "graph"] = Field(
        "categories", description="what describes an item: its categories, or its statements in the knowledge graph"
    )
    weighting: Literal["tf-idf", "binary"] = Field("tf-idf", description="tf-idf: rare features count more")


@register("vsm", VSMConfig)
class VSM:
    """Items like her own by what they are: cosine between features of items and the mean of her items."""

    uses_features: ClassVar[bool] = True

    def __init__(self, config: VSMConfig) -> None:
        self.config = config

    def fit(self, clients: Clients, catalog: Catalog, key: Key) -> Iterator[Model]:
        """Weigh the features of every item; people are not looked at."""
        counts, names = _features(catalog, self.config.features)
        if self.config.weighting == "tf-idf":
            spread = np.maximum(counts.getnnz(axis=0), 1)
            counts = counts.multiply(np.log(catalog.n_items / spread)).tocsr()
        vectors = _unit_rows(counts)
        shared = {"ptr": vectors.indptr, "features": vectors.indices, "weights": vectors.data, "names": np.array(names)}
        yield Model(shared, {})

    def score(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients) -> Floats:
        """Return the cosine between each person's profile and each item."""
        vectors = _vectors(shared)
        profiles = _unit_rows(clients.matrix() @ vectors)
        return np.ascontiguousarray((vectors @ profiles.T.toarray()).T, np.float32)

    def explain(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], client: Clients, item: int
    ) -> list[Reason]:
        """Return the features she and the item share, by their part of the cosine."""
        vectors = _vectors(shared)
        profile = (client.matrix() @ vectors).toarray()[0]
        target = vectors[[item]]
        found = reasons.strongest(target.data * profile[target.indices])
        return [Reason("feature", str(shared["names"][target.indices[at]]), weight) for at, weight in found]


def _vectors(shared: Mapping[str, Array]) -> Any:
    shape = (len(shared["ptr"]) - 1, len(shared["names"]))
    return sparse.csr_matrix((shared["weights"], shared["features"], shared["ptr"]), shape=shape)


def _unit_rows(matrix: Any) -> Any:
    """Scale each row to length 1; empty rows stay empty."""
    matrix = matrix.tocsr().astype(np.float32)
    lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    inverse = np.divide(1.0, lengths, out=np.zeros(len(lengths), np.float32), where=lengths > 0)
    return sparse.csr_matrix(sparse.diags_array(inverse) @ matrix)


def _features(catalog: Catalog, which: str) -> tuple[Any, list[str]]:
    """Return how often each item carries each feature, [n_items, n], and the features' names."""
    if which == "categories":
        if catalog.categories is None or len(catalog.categories.ids) == 0:
            other = " or set method.features=graph" if catalog.graph is not None else ""
            raise MethodError(
                "vsm needs to know what the items are, but this catalogue has no categories.",
                f"Map a category column (data.columns){other}, or use item-knn, which needs histories only.",
            )
        counts = catalog.categories.matrix()
        counts.sum_duplicates()
        return counts, list(catalog.categories.names)
    if catalog.graph is None or len(catalog.graph) == 0:
        raise MethodError(
            "vsm was asked for features=graph, but this catalogue has no knowledge graph.",
            "Set method.features=categories, or use a dataset with a graph.",
        )
    return _statements(catalog.graph)


def _statements(graph: Triples) -> tuple[Any, list[str]]:
    """Return the statements (relation, tail) about each item as features."""
    item_of = np.full(len(graph.entities), -1, np.int64)
    known = graph.item_entity >= 0
    item_of[graph.item_entity[known]] = np.flatnonzero(known)
    about = np.flatnonzero(item_of[graph.heads] >= 0)
    pairs = graph.relations[about].astype(np.int64) * len(graph.entities) + graph.tails[about]
    found, feature = np.unique(pairs, return_inverse=True)
    names = [
        f"{graph.relation_names[pair // len(graph.entities)]}: {graph.entities[pair % len(graph.entities)]}"
        for pair in found.tolist()
    ]
    ones = np.ones(len(about), np.float32)
    shape = (len(graph.item_entity), len(found))
    return sparse.csr_matrix((ones, (item_of[graph.heads[about]], feature)), shape=shape), names
