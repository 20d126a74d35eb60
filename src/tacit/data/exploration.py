"""Exploration of a knowledge graph: the statements about an item that n steps reach (thesis, 6.1 and 6.5.2).

A feature is a path of predicates and the object it ends at. An explored graph is again a graph, whose statements are
all about items and whose relations are whole paths, joined by `~`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tacit.errors import DataError
from tacit.types import Triples, offsets, ragged_rows

STEP = "~"
"""Joins the predicates of a path: `author~birthPlace` is two hops."""

MOST_STATEMENTS = 200_000_000  # in one exploration: about 5 GB while it is made

NAMESPACES = {
    "http://dbpedia.org/ontology/": "dbo:",
    "http://dbpedia.org/property/": "dbp:",
    "http://www.w3.org/2002/07/owl#": "owl:",
    "http://www.w3.org/1999/02/22-rdf-syntax-ns#": "rdf:",
    "http://www.w3.org/2000/01/rdf-schema#": "rdfs:",
    "http://purl.org/linguistics/gold/": "gold:",
    "http://www.w3.org/ns/prov#": "prov:",
    "http://purl.org/dc/terms/": "dct:",
}
NOISE = (
    "dbo:wikiPageWikiLink",
    "owl:sameAs",
    "rdf:type",
    "gold:hypernym",
    "rdfs:seeAlso",
    "dbp:wordnet_type",
    "dbo:wikiPageExternalLink",
    "dbo:thumbnail",
    "prov:wasDerivedFrom",
    "dbp:wikiPageUsesTemplate",
)
"""Predicates that say nothing of an item's content (thesis, 6.5.2)."""


def shorten_predicate(predicate: str) -> str:
    """Return a predicate with the usual prefix of its namespace.

    >>> shorten_predicate("http://dbpedia.org/ontology/author")
    'dbo:author'
    """
    for space, prefix in NAMESPACES.items():
        if predicate.startswith(space):
            return prefix + predicate[len(space) :]
    return predicate


def predicate_spellings(predicate: str) -> set[str]:
    """Return a predicate as it is and, if it has a usual prefix, in full.

    >>> sorted(predicate_spellings("dbo:author"))
    ['dbo:author', 'http://dbpedia.org/ontology/author']
    """
    full = {space + predicate[len(prefix) :] for space, prefix in NAMESPACES.items() if predicate.startswith(prefix)}
    return {predicate} | full


def explore(
    graph: Triples, hops: int, *, min_items: int = 0, skip: Sequence[str] = NOISE, only: Sequence[str] = ()
) -> Triples:
    """Return the statements about items that `hops` steps reach.

    `skip` and `only` apply to the first predicate of a path. A relation that is a path already (`a~b`) counts its
    steps. A path that leads back to its item is left out. Features of fewer than `min_items` items are dropped.
    """
    starts, n_items = np.unique(graph.item_entity[graph.item_entity >= 0], return_counts=True)
    begins = _may_begin(graph.relation_names, skip, only)
    ptr = offsets(np.bincount(graph.heads, minlength=len(graph.entities)))
    by_head = np.argsort(graph.heads, kind="stable")
    steps = np.array([name.count(STEP) + 1 for name in graph.relation_names], np.int64)
    _refuse_if_empty(graph, starts, begins, ptr, by_head)
    paths, lengths = [""], np.zeros(1, np.int64)
    at, path, node = np.arange(len(starts)), np.zeros(len(starts), np.int64), starts.astype(np.int64)
    found: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]] = []
    while len(at):
        counts = np.diff(ptr)[node]
        if int(counts.sum()) > MOST_STATEMENTS:
            raise DataError(
                f"Exploring the graph to {hops} hops needs {int(counts.sum()):,} statements at once: too many.",
                "Lower data.hops, or leave out more predicates (data.skip_predicates).",
            )
        rows = by_head[ragged_rows(ptr, node)]
        at, path = np.repeat(at, counts), np.repeat(path, counts)
        relation, node = graph.relations[rows].astype(np.int64), graph.tails[rows].astype(np.int64)
        fits = (lengths[path] + steps[relation] <= hops) & (node != starts[at])
        fits &= begins[relation] | (path > 0)
        at, path, relation, node = at[fits], path[fits], relation[fits], node[fits]
        longer, new = np.unique(path * len(steps) + relation, return_inverse=True)
        before, last = longer // len(steps), longer % len(steps)
        first = len(paths)
        paths += [
            STEP.join(filter(None, (paths[b], graph.relation_names[r]))) for b, r in zip(before, last, strict=True)
        ]
        lengths = np.append(lengths, lengths[before] + steps[last])
        at, path, node = _distinct(at, first + new, node, len(paths), len(graph.entities))
        found.append((at, path, node))
        further = lengths[path] < hops
        at, path, node = at[further], path[further], node[further]
    at, path, node = (np.concatenate(part) for part in zip(*found, strict=True))
    if min_items > 1 and len(at):
        _, feature = np.unique(path * len(graph.entities) + node, return_inverse=True)
        common = (np.bincount(feature, weights=n_items[at]) >= min_items)[feature]
        if not common.any():
            most = int(np.bincount(feature, weights=n_items[at]).max())
            raise DataError(
                f"No feature of the knowledge graph describes {min_items} items; the commonest describes {most}.",
                "Lower data.min_per_feature.",
            )
        at, path, node = at[common], path[common], node[common]
    used, relation = np.unique(path, return_inverse=True)
    return Triples(
        starts[at].astype(np.int32),
        relation.astype(np.int32),
        node.astype(np.int32),
        graph.entities,
        [paths[p] for p in used],
        graph.item_entity,
    )


def _may_begin(relations: Sequence[str], skip: Sequence[str], only: Sequence[str]) -> NDArray[np.bool_]:
    """Return which relations a path may begin with; predicates match in full or with their usual prefix."""
    firsts = [name.split(STEP)[0] for name in relations]
    spelt = [{first, shorten_predicate(first)} for first in firsts]
    return np.array([not names & set(skip) and (not only or bool(names & set(only))) for names in spelt], bool)


def _refuse_if_empty(
    graph: Triples,
    starts: NDArray[np.int32],
    begins: NDArray[np.bool_],
    ptr: NDArray[np.int64],
    by_head: NDArray[np.int64],
) -> None:
    rows = by_head[ragged_rows(ptr, starts)]
    if not len(rows):
        raise DataError(
            f"The knowledge graph has no statement about any item: {len(starts)} entities are linked, and none of "
            f"them is the head of any of the {len(graph):,} triples.",
            "Check that item_entity names entities exactly as the triples do.",
        )
    if not begins[graph.relations[rows]].any():
        seen = sorted({shorten_predicate(graph.relation_names[r]) for r in np.unique(graph.relations[rows])})
        raise DataError(
            f"The filters of predicates remove every statement. Predicates of the items: {', '.join(seen[:12])}.",
            "Change data.skip_predicates or data.only_predicates.",
        )


def _distinct(
    at: NDArray[np.int64], path: NDArray[np.int64], node: NDArray[np.int64], n_paths: int, n_nodes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return each (start, path, node) once, in that order."""
    if len(at) and int(at.max() + 1) * n_paths * n_nodes < 2**63:
        cells = np.unique((at * n_paths + path) * n_nodes + node)
        return cells // (n_paths * n_nodes), cells // n_nodes % n_paths, cells % n_nodes
    order = np.lexsort((node, path, at))
    at, path, node = at[order], path[order], node[order]
    new = np.ones(len(at), bool)
    new[1:] = (at[1:] != at[:-1]) | (path[1:] != path[:-1]) | (node[1:] != node[:-1])
    return at[new], path[new], node[new]
