"""The operator's catalogue: a table or a dataset's items; and how a later one continues that of a running federation.

Items keep their places for ever: rows of models and sums mean the same after every change. New items come behind, in
the order of the file. An item is retired by a column `retired`; only then may its row go.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.data import SOURCES, DataConfig, load
from tacit.data.vectors import read_vectors
from tacit.errors import ConfigError, DataError
from tacit.types import Array, Catalog, Floats, Labels, Vocabulary, offsets

NAMED = 5  # ids that a refusal names
YES, NO = {"yes", "true", "1", "x"}, {"", "no", "false", "0"}


def read_catalogue(source: str, graph: bool | str = False, hops: int = 0, vectors: Path | None = None) -> Catalog:
    """Read the public knowledge about items; what users did in a named dataset is not read.

    `vectors` is a file with a vector of every item. Those of the items before stay as they are when others join, so
    they are never made here from the whole catalogue.
    """
    catalog = _read_items(source, graph, hops)
    return catalog if vectors is None else replace(catalog, vectors=read_vectors(vectors, catalog))


def _read_items(source: str, graph: bool | str, hops: int) -> Catalog:
    if source in SOURCES or not Path(source).suffix:
        return load(DataConfig(source=source, graph=graph, hops=hops)).catalog
    if graph or hops:
        raise ConfigError("graph and hops belong to a dataset by name.", "Give categories in the table instead.")
    path = Path(source)
    try:
        frame = pl.read_csv(path, separator="\t" if path.suffix == ".tsv" else ",", infer_schema=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(f"The catalogue '{path}' cannot be read: {str(error).splitlines()[0]}.") from None
    if "item" not in frame.columns:
        raise DataError(f"The catalogue '{path}' has no column 'item'.", f"Its columns: {', '.join(frame.columns)}.")
    items = frame["item"].to_list()
    if any(item is None for item in items):
        row = items.index(None) + 2
        raise DataError(f"The catalogue '{path}' has a row without an item: line {row}.", "Give each item one row.")
    if len(set(items)) < len(items):
        seen: set[str] = set()
        twice = [item for item in items if item in seen or seen.add(item)]  # type: ignore[func-returns-value]
        raise DataError(f"The catalogue '{path}' has an item twice: {_some(twice)}.", "Give each item one row.")
    titles = [str(title or "") for title in frame["title"].to_list()] if "title" in frame.columns else None
    vocabulary = Vocabulary(pl.Series(items).to_numpy().astype(object))
    retired, popularity = _find_retired(frame, path), _read_popularity(frame, path)
    return Catalog(vocabulary, titles, _categories(frame), retired=retired, popularity=popularity)


def _categories(frame: pl.DataFrame) -> Labels | None:
    if "category" not in frame.columns:
        return None
    lists = [[name for name in (text or "").split("|") if name] for text in frame["category"].to_list()]
    return _labels(lists, sorted({name for row in lists for name in row}))


def _labels(lists: Sequence[Sequence[str]], names: Sequence[str]) -> Labels:
    index = {name: at for at, name in enumerate(names)}
    ids = np.array([index[name] for row in lists for name in row], np.int32)
    return Labels(offsets(np.array([len(row) for row in lists], np.int64)), ids, list(names))


def _find_retired(frame: pl.DataFrame, path: Path) -> Array | None:
    if "retired" not in frame.columns:
        return None
    answers = [(text or "").strip().casefold() for text in frame["retired"].to_list()]
    for row, text in enumerate(answers, start=2):
        if text not in YES | NO:
            raise DataError(
                f"'{text}' in line {row} of '{path}' says not whether the item is retired.", "Write yes or no."
            )
    found = np.flatnonzero([text in YES for text in answers]).astype(np.int32)
    if len(found) == len(answers):
        raise DataError(f"Every item of '{path}' is retired.", "Leave some to recommend.")
    return found


def _read_popularity(frame: pl.DataFrame, path: Path) -> NDArray[np.float64] | None:
    """Return the figure of each item; an item without one has 0."""
    if "popularity" not in frame.columns:
        return None
    found = np.zeros(len(frame))
    for at, text in enumerate(frame["popularity"].to_list()):
        try:
            number = float((text or "").strip() or 0)
        except ValueError:
            number = math.nan
        if not (math.isfinite(number) and number >= 0):
            raise DataError(
                f"'{text}' in line {at + 2} of '{path}' is not how popular the item is.",
                "Write a number of at least 0, or nothing.",
            )
        found[at] = abs(number)  # -0 is 0: there is one way to write it
    return found


@dataclass(frozen=True)
class CatalogueChange:
    """What a later catalogue changes, in counts."""

    added: int
    changed: int
    retired: int
    returned: int

    def describe(self) -> str:
        """Return it in words."""
        parts = [f"{n:,} {what}" for what, n in vars(self).items() if n]
        return ", ".join(parts) or "nothing that users see"


def continue_catalogue(before: Catalog, later: Catalog) -> Catalog:
    """Return a later catalogue in the places of the one before; one that lost an item which was not retired is refused.

    Categories keep their numbers too: those before come first, whether or not an item is left in them.
    """
    place = {label: at for at, label in enumerate(later.item_ids.labels.tolist())}
    old = before.item_ids.labels.tolist()
    was_retired = set() if before.retired is None else set(before.retired.tolist())
    vanished = [label for at, label in enumerate(old) if label not in place and at not in was_retired]
    if vanished:
        raise DataError(
            f"The catalogue has lost items that were not retired: {_some(vanished)}.",
            "Items keep their rows for ever. Put them back, with 'yes' in a column 'retired' if they are gone.",
        )
    kept = set(old)
    order = [place.get(label, -1) for label in old] + [at for label, at in place.items() if label not in kept]
    labels = [*old, *(label for label in place if label not in kept)]
    numbers = before.item_ids.labels.dtype.kind == "i" and all(type(label) is int for label in labels)
    ids = Vocabulary(np.array(labels, np.int64 if numbers else object))
    titles = None
    if later.titles is not None:
        titles = [later.titles[at] if at >= 0 else before.title(item) for item, at in enumerate(order)]
    elif before.titles is not None:
        raise DataError("The catalogue has no titles any more.", "Put the column 'title' back.")
    coordinates = None
    if later.coordinates is not None:
        coordinates = np.array([later.coordinates[at] if at >= 0 else (np.nan, np.nan) for at in order])
    graph = later.graph
    if graph is not None:
        entity = np.array([graph.item_entity[at] if at >= 0 else -1 for at in order], np.int32)
        graph = replace(graph, item_entity=entity)
    vectors = _merge_vectors(before, later, order)
    gone = set() if later.retired is None else set(later.retired.tolist())
    retired = np.array([item for item, at in enumerate(order) if at < 0 or at in gone], np.int32)
    return Catalog(
        ids,
        titles,
        _merge_categories(before, later, order),
        coordinates,
        graph,
        retired if len(retired) else None,
        vectors,
        _merge_popularity(before, later, order),
    )


def _merge_vectors(before: Catalog, later: Catalog, order: Sequence[int]) -> Floats | None:
    """Return the vectors of a later catalogue; retired items that it lacks keep theirs."""
    known, new = before.vectors, later.vectors
    if known is None:
        return new
    if new is None or new.shape[1] != known.shape[1]:
        seen = "none" if new is None else f"those with {new.shape[1]} numbers"
        raise DataError(
            f"The catalogue had vectors with {known.shape[1]} numbers, and has {seen} now.",
            "Encode new items with the encoder of the first ones.",
        )
    return np.array([new[at] if at >= 0 else known[item] for item, at in enumerate(order)], np.float32)


def _merge_popularity(before: Catalog, later: Catalog, order: Sequence[int]) -> NDArray[np.float64] | None:
    """Return the popularity of a later catalogue; retired items that it lacks keep theirs."""
    known, new = before.popularity, later.popularity
    if new is None:
        return None
    gone = np.zeros(before.n_items) if known is None else known
    return np.array([new[at] if at >= 0 else gone[item] for item, at in enumerate(order)], np.float64)


def _merge_categories(before: Catalog, later: Catalog, order: Sequence[int]) -> Labels | None:
    known, new = before.categories, later.categories
    if new is None:
        if known is not None and known.names:
            raise DataError("The catalogue has no categories any more.", "Put the column 'category' back.")
        return None
    names = list(known.names) if known is not None else []
    names += [name for name in new.names if name not in set(names)]
    rows = [new.of(at) if at >= 0 else (known.of(item) if known is not None else []) for item, at in enumerate(order)]
    return _labels(rows, names)


def compare_catalogues(before: Catalog, after: Catalog) -> CatalogueChange:
    """Return what a catalogue changes in the one before it."""
    was, now = (set() if c.retired is None else set(c.retired.tolist()) for c in (before, after))
    changed = 0
    for item in range(before.n_items):
        labels = [sorted(c.categories.of(item)) if c.categories is not None else [] for c in (before, after)]
        figures = [None if c.popularity is None else c.popularity[item] for c in (before, after)]
        changed += before.title(item) != after.title(item) or labels[0] != labels[1] or figures[0] != figures[1]
    return CatalogueChange(after.n_items - before.n_items, changed, len(now - was), len(was - now))


def _some(labels: Sequence[object]) -> str:
    """Name a few of many."""
    more = f" and {len(labels) - NAMED:,} more" if len(labels) > NAMED else ""
    return ", ".join(f"'{label}'" for label in labels[:NAMED]) + more
