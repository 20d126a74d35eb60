"""What is known about items, as features that knowledge-aware methods share: statements of a graph, or categories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tacit.data.exploration import STEP
from tacit.data.words import entity_words, predicate_words
from tacit.errors import MethodError
from tacit.types import Catalog, Triples, offsets, ragged_rows

FeatureKind = Literal["any", "categories", "graph"]


@dataclass(frozen=True)
class Features:
    """Item i carries the features `ids[ptr[i]:ptr[i + 1]]`, each once, ascending."""

    ptr: NDArray[np.int64]  # [n_items + 1]
    ids: NDArray[np.int32]
    names: Sequence[str]
    hops: NDArray[np.int32]  # [F] how many steps away each feature was found

    def __len__(self) -> int:
        return len(self.hops)

    def matrix(self) -> Any:
        """Return [n_items, F] of ones."""
        shape = (len(self.ptr) - 1, len(self))
        return sparse.csr_matrix((np.ones(len(self.ids), np.float32), self.ids, self.ptr), shape=shape)

    def carriers(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return the items of each feature, ragged: (ptr [F + 1], items)."""
        order = np.argsort(self.ids, kind="stable")
        items = np.repeat(np.arange(len(self.ptr) - 1, dtype=np.int32), np.diff(self.ptr))
        return offsets(np.bincount(self.ids, minlength=len(self))), items[order]


def features_of(catalog: Catalog, kind: FeatureKind, who: str) -> Features:
    """Return the features of a catalogue's items; of any kind means those of its graph if it has one.

    `who` is the method that asks; errors name it.
    """
    has_graph = catalog.graph is not None and len(catalog.graph) > 0
    has_categories = catalog.categories is not None and len(catalog.categories.ids) > 0
    if catalog.graph is not None and not has_graph and (kind == "graph" or (kind == "any" and not has_categories)):
        raise MethodError(
            f"{who} needs features of items, but the knowledge graph has no statement about any item.",
            "Check its file and data.links. A path that leads back to its own item does not count.",
        )
    if kind == "graph" or (kind == "any" and has_graph):
        if catalog.graph is None or not has_graph:
            raise MethodError(
                f"{who} was asked for features=graph, but this catalogue has no knowledge graph.",
                "Set data.graph=true where the dataset has one, or method.features=categories.",
            )
        return _statements(catalog.graph, who)
    if catalog.categories is None or not has_categories:
        other = "set method.features=graph" if has_graph else "set data.graph=true where the dataset has a graph"
        raise MethodError(
            f"{who} needs features of items, but this catalogue has no categories.",
            f"Map a category column (data.columns) or {other}, or use item-knn, which needs histories only.",
        )
    counts = catalog.categories.matrix()
    counts.sum_duplicates()
    names = list(catalog.categories.names)
    return Features(counts.indptr.astype(np.int64), counts.indices, names, np.ones(len(names), np.int32))


def tf_idf(known: Features) -> Any:
    """Return [n_items, F]: rows of length 1, in which rare features count more; empty rows stay empty."""
    counts = known.matrix()
    spread = np.maximum(counts.getnnz(axis=0), 1)
    return unit_rows(counts.multiply(np.log(counts.shape[0] / spread)))


def unit_rows(matrix: Any) -> Any:
    """Scale each row to length 1; empty rows stay empty."""
    matrix = matrix.tocsr().astype(np.float32)
    lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    inverse = np.divide(1.0, lengths, out=np.zeros(len(lengths), np.float32), where=lengths > 0)
    return sparse.csr_matrix(sparse.diags_array(inverse) @ matrix)


def _statements(graph: Triples, who: str) -> Features:
    """Return the statements (path, object) about each item; an entity may be several items."""
    known = np.flatnonzero(graph.item_entity >= 0)
    by_head = np.argsort(graph.heads, kind="stable")
    ptr = offsets(np.bincount(graph.heads, minlength=len(graph.entities)))
    entities = graph.item_entity[known]
    rows = by_head[ragged_rows(ptr, entities)]
    if not len(rows):
        linked = f"{len(known)} of {len(graph.item_entity)} items are linked to an entity"
        raise MethodError(
            f"{who}: the knowledge graph has no statement about any item ({linked}, none of which heads a statement).",
            "Check that item_entity names entities as the triples do, and that data.skip_predicates leaves some.",
        )
    items = np.repeat(known, np.diff(ptr)[entities])
    n_entities = len(graph.entities)
    pairs = graph.relations[rows].astype(np.int64) * n_entities + graph.tails[rows]
    found, feature = np.unique(pairs, return_inverse=True)
    cells = np.unique(items * len(found) + feature)
    counts = np.bincount(cells // len(found), minlength=len(graph.item_entity))
    names = [
        f"{predicate_words(graph.relation_names[pair // n_entities])}: "
        f"{entity_words(str(graph.entities[pair % n_entities]))}"
        for pair in found.tolist()
    ]
    steps = np.array([name.count(STEP) + 1 for name in graph.relation_names], np.int32)
    return Features(offsets(counts), (cells % len(found)).astype(np.int32), names, steps[found // n_entities])
