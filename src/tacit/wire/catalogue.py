"""The catalogue as bytes: all that devices know of items. It is public, and its digest is part of a federation's terms.

Ids, titles, categories and popularity always travel; coordinates, a knowledge graph and vectors only where the method
needs them. What a catalogue lacks is not written, so that one without it keeps its digest.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode, b64encode
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import DataError
from tacit.methods.base import Federated
from tacit.plain_text import strip_controls
from tacit.types import Catalog, Floats, Labels, Triples, Vocabulary


def public_catalog(catalog: Catalog, method: Federated) -> Catalog:
    """Return the parts of a catalogue that devices need for a method."""
    needs = method.spec.needs
    coordinates = catalog.coordinates if "coordinates" in needs else None
    graph = catalog.graph if "features" in needs else None
    vectors = catalog.vectors if "vectors" in needs else None
    return replace(
        catalog, coordinates=coordinates, graph=None if graph is None else about_items(graph), vectors=vectors
    )


def about_items(graph: Triples) -> Triples:
    """Return the statements of a graph whose head is an item, and only entities and relations that occur in them."""
    known = np.unique(graph.item_entity[graph.item_entity >= 0])
    rows = np.isin(graph.heads, known)
    heads, tails, relations = graph.heads[rows], graph.tails[rows], graph.relations[rows]
    entities, place = np.unique(np.concatenate([known, heads, tails]), return_inverse=True)
    n_known = len(known)
    kinds, kind = np.unique(relations, return_inverse=True)
    new_place = np.full(len(graph.entities), -1, np.int32)
    new_place[entities] = np.arange(len(entities))
    is_linked = graph.item_entity >= 0
    return Triples(
        place[n_known : n_known + len(heads)].astype(np.int32),
        kind.astype(np.int32),
        place[n_known + len(heads) :].astype(np.int32),
        graph.entities.take(entities),
        [graph.relation_names[at] for at in kinds],
        np.where(is_linked, new_place[np.maximum(graph.item_entity, 0)], -1).astype(np.int32),
    )


def canonical(value: Any) -> bytes:
    """Write JSON in one way only."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest_of(content: bytes) -> str:
    """Return SHA-256 in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def catalog_bytes(catalog: Catalog) -> bytes:
    """Write a catalogue."""
    about: dict[str, Any] = {"items": catalog.item_ids.labels.tolist()}
    if catalog.titles is not None:
        about["titles"] = list(catalog.titles)
    if catalog.categories is not None:
        labels = catalog.categories
        about["categories"] = {"ptr": labels.ptr.tolist(), "ids": labels.ids.tolist(), "names": list(labels.names)}
    if catalog.coordinates is not None:
        about["coordinates"] = [None if np.isnan(pair).any() else pair.tolist() for pair in catalog.coordinates]
    if catalog.graph is not None:
        graph = catalog.graph
        about["graph"] = {
            "heads": graph.heads.tolist(),
            "relations": graph.relations.tolist(),
            "tails": graph.tails.tolist(),
            "entities": graph.entities.labels.tolist(),
            "relation_names": list(graph.relation_names),
            "item_entity": graph.item_entity.tolist(),
        }
    if catalog.retired is not None and len(catalog.retired):
        about["retired"] = catalog.retired.tolist()
    if catalog.vectors is not None:  # text, row by row: an amendment then adds the rows of new items alone
        about["vectors"] = [b64encode(row.tobytes()).decode() for row in catalog.vectors.astype("<f2")]
    if catalog.popularity is not None:
        about["popularity"] = catalog.popularity.tolist()
    return canonical(about)


def catalog_from(content: bytes) -> Catalog:
    """Read what `catalog_bytes` wrote; anything else is a DataError."""
    try:
        about = json.loads(content)
        items = _vocabulary(about["items"])
        n_items, titles = len(items), about.get("titles")
        if not n_items:
            raise ValueError("it has no items")
        if titles is not None and (len(titles) != n_items or any(type(title) is not str for title in titles)):
            raise ValueError("the number of titles is not the number of items")
        catalog = Catalog(
            items,
            titles,
            _labels(about.get("categories"), n_items),
            _coordinates(about.get("coordinates"), n_items),
            _graph(about.get("graph"), n_items),
            _read_retired(about.get("retired"), n_items),
            _read_vectors(about.get("vectors"), n_items),
            _read_popularity(about.get("popularity"), n_items),
        )
        if catalog_bytes(catalog) != content:
            raise ValueError("it is not written in its one form")
        return catalog
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise DataError(f"This is not a catalogue: {error}.") from None


def strip_names(catalog: Catalog) -> Catalog:
    """Return a catalogue whose titles and names steer no terminal; names that differ in nothing else are refused."""
    titles = None if catalog.titles is None else [strip_controls(title) for title in catalog.titles]
    labels, graph = catalog.categories, catalog.graph
    if labels is not None:
        names = [strip_controls(name) for name in labels.names]
        if len(set(names)) < len(set(labels.names)):
            raise DataError("Two categories of the catalogue differ only in characters that cannot be seen.")
        labels = Labels(labels.ptr, labels.ids, names)
    if graph is not None:
        graph = replace(graph, relation_names=[strip_controls(name) for name in graph.relation_names])
    return replace(catalog, titles=titles, categories=labels, graph=graph)


def _vocabulary(labels: list[Any]) -> Vocabulary:
    whole = all(type(label) is int and abs(label) < 2**63 for label in labels)
    if not (whole or all(type(label) is str for label in labels)) or len(set(labels)) < len(labels):
        raise ValueError("its ids are not unique numbers or unique strings")
    return Vocabulary(np.array(labels, np.int64 if whole else object))


def _coordinates(about: Any, n_items: int) -> NDArray[np.float64] | None:
    if about is None:
        return None
    found = np.array([[np.nan, np.nan] if pair is None else pair for pair in about], np.float64)
    if found.shape != (n_items, 2) or np.isinf(found).any():
        raise ValueError("the number of coordinates is not the number of items")
    return found


def _graph(about: Any, n_items: int) -> Triples | None:
    if about is None:
        return None
    entities, names = _vocabulary(about["entities"]), about["relation_names"]
    if any(type(name) is not str for name in names):
        raise ValueError("a relation has no name")
    columns = [np.array(about[name], np.int32) for name in ("heads", "relations", "tails", "item_entity")]
    heads, relations, tails, item_entity = columns
    if any(column.ndim != 1 for column in columns) or not len(heads) == len(relations) == len(tails):
        raise ValueError("its statements are incomplete")
    for column, most in ((heads, len(entities)), (relations, len(names)), (tails, len(entities))):
        if len(column) and not 0 <= column.min() <= column.max() < most:
            raise ValueError("a statement names an entity or relation that does not exist")
    is_known = (item_entity >= -1) & (item_entity < len(entities))
    if item_entity.shape != (n_items,) or not is_known.all():
        raise ValueError("its items are linked to entities that do not exist")
    return Triples(heads, relations, tails, entities, names, item_entity)


def _read_retired(about: Any, n_items: int) -> NDArray[np.int32] | None:
    if about is None:
        return None
    found = np.array(about, np.int32)
    if found.ndim != 1 or not len(found) or (np.diff(found) <= 0).any() or not 0 <= found[0] <= found[-1] < n_items:
        raise ValueError("its retired items are not some of its items, in order")
    return found


def _read_vectors(about: Any, n_items: int) -> Floats | None:
    if about is None:
        return None
    rows = [np.frombuffer(b64decode(text, validate=True), "<f2") for text in about]
    widths = {len(row) for row in rows}
    if len(rows) != n_items or len(widths) != 1 or 0 in widths:
        raise ValueError("its vectors are not one for each item, of one width")
    found = np.array(rows, np.float32)
    if not np.isfinite(found).all():
        raise ValueError("a number of its vectors is not finite")
    return found


def _read_popularity(about: Any, n_items: int) -> NDArray[np.float64] | None:
    if about is None:
        return None
    found = np.array(about, np.float64)
    if found.shape != (n_items,) or not np.isfinite(found).all() or (found < 0).any():
        raise ValueError("its popularity is not one number for each item, of at least 0")
    return found


def _labels(about: Any, n_items: int) -> Labels | None:
    if about is None:
        return None
    ptr, ids, names = np.array(about["ptr"], np.int64), np.array(about["ids"], np.int32), about["names"]
    if any(type(name) is not str for name in names):
        raise ValueError("a category has no name")
    fits = ptr.shape == (n_items + 1,) and ids.ndim == 1 and ptr[0] == 0 and ptr[-1] == len(ids)
    if not fits or (np.diff(ptr) < 0).any() or (len(ids) and not 0 <= ids.min() <= ids.max() < len(names)):
        raise ValueError("its categories do not fit its items")
    return Labels(ptr, ids, list(names))
