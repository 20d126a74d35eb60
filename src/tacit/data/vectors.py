"""Public vectors of items: read from a file that any encoder made, or made here from what the catalogue says."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import linalg, sparse

from tacit.data.folder import read_table
from tacit.errors import DataError
from tacit.numerics import one_blas_thread
from tacit.random import Key
from tacit.types import Array, Catalog, Floats, Triples, offsets, ragged_rows

MOST_WIDTH = 4096
MOST_DENSE = 3000  # words or items: eigenvectors of so many are found at once, in seconds
ITERATIONS, SPARE = 20, 32  # for more: so often, with so many directions besides
KEY = Key(0).child("public vectors")
NEAR_YEARS = 2  # years that count as near: films of 1994 and 1996 have three of these in common
_YEAR = re.compile(r"\((1[89]\d\d|20\d\d)\)\s*$")
_WORD = re.compile(r"[^\W\d_]{3,}")
_HOW = "Give a table with a column 'item' and one column per number, or an .npz with 'items' and 'vectors'."


def attach_vectors(catalog: Catalog, source: bool | str, width: int, digest: str | None = None) -> Catalog:
    """Return the catalogue with the vectors of a file, or with those that it gives itself."""
    if source is False:
        return catalog
    vectors = make_vectors(catalog, width) if source is True else read_vectors(Path(source), catalog, digest)
    return replace(catalog, vectors=vectors)


def read_vectors(path: Path, catalog: Catalog, digest: str | None = None) -> Floats:
    """Return the vectors [n_items, width] of a file in the order of a catalogue; those of other items are left out.

    A file that lacks an item of the catalogue is of another one, and refused; so is one with another SHA-256 than
    `digest`.
    """
    path = path.expanduser()
    if not path.is_file():
        raise DataError(f"data.vectors: there is no file {path}.", _HOW)
    if digest is not None and hashlib.sha256(path.read_bytes()).hexdigest() != digest.lower():
        raise DataError(
            f"data.vectors: {path} has not the digest that was given: it is another file, or was changed.",
            "Take the file that belongs to the catalogue, or correct data.vectors_digest.",
        )
    items, vectors = _read_npz(path) if path.suffix == ".npz" else _read_table(path)
    return match_vectors(catalog, items, vectors, str(path))


def match_vectors(catalog: Catalog, items: list[str | int], vectors: Array, where: str) -> Floats:
    """Return vectors in the order of a catalogue, checked: shape, finite numbers, each item of the catalogue once."""
    if vectors.ndim != 2 or len(vectors) != len(items):
        raise DataError(f"{where}: {len(items)} items, but vectors of the shape {vectors.shape}.", _HOW)
    if not 1 <= vectors.shape[1] <= MOST_WIDTH:
        raise DataError(f"{where}: vectors have {vectors.shape[1]} numbers, not 1 to {MOST_WIDTH}.", _HOW)
    place: dict[str, int] = {}
    for at, item in enumerate(items):
        if place.setdefault(str(item), at) != at:
            raise DataError(f"{where}: item '{item}' has two vectors.", "Leave one of them.")
    rows = [place.get(str(label), -1) for label in catalog.item_ids.labels.tolist()]
    missing = [str(catalog.item_ids[item]) for item, row in enumerate(rows) if row < 0]
    if missing:
        raise DataError(
            f"{where}: the vectors are of another catalogue: {len(missing):,} of {catalog.n_items:,} items have none, "
            f"such as '{missing[0]}'.",
            "Encode every item of this catalogue.",
        )
    with np.errstate(over="ignore"):  # what does not fit is refused below
        found = np.asarray(vectors[rows], np.float32)
    wrong = np.flatnonzero(~np.isfinite(found).all(axis=1))
    if len(wrong):
        raise DataError(
            f"{where}: the vector of item '{catalog.item_ids[int(wrong[0])]}' has a number that is not finite "
            f"({len(wrong):,} such items).",
            "Encode these items again.",
        )
    return to_half_precision(found)


def to_half_precision(vectors: Array) -> Floats:
    """Return vectors at length 1, rounded to 16 bits a number, as they travel to devices; zeros stay zero."""
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1.0), np.float32).astype(np.float16).astype(np.float32)


def _read_npz(path: Path) -> tuple[list[str | int], Array]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            items, vectors = stored["items"], stored["vectors"]
        if items.ndim != 1 or vectors.dtype.kind not in "iufb":
            raise ValueError(f"'items' of the shape {items.shape}, 'vectors' of the type {vectors.dtype}")
        return items.tolist(), vectors.astype(np.float64)
    except (OSError, ValueError, KeyError, EOFError, TypeError, BadZipFile, zlib.error) as error:
        raise DataError(f"{path}: these are no vectors ({error}).", _HOW) from None


def _read_table(path: Path) -> tuple[list[str | int], Array]:
    try:
        frame = pl.read_parquet(path) if path.suffix == ".parquet" else read_table(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(f"{path}: cannot be read as a table ({error}).", _HOW) from None
    if "item" not in frame.columns or frame.width < 2:
        raise DataError(f"{path}: no column 'item' with numbers beside it; seen {', '.join(frame.columns)}.", _HOW)
    numbers = frame.drop("item")
    try:
        if numbers.width == 1 and isinstance(numbers.dtypes[0], pl.List | pl.Array):
            vectors = np.array(numbers.to_series().to_list(), np.float64)
        else:
            vectors = numbers.cast(pl.Float64).to_numpy()
    except (ValueError, TypeError, pl.exceptions.PolarsError) as error:
        raise DataError(f"{path}: a vector is not made of numbers, or shorter than others ({error}).", _HOW) from None
    return frame["item"].to_list(), vectors


def make_vectors(catalog: Catalog, width: int) -> Floats:
    """Return vectors from what the catalogue says about items: categories, words and years of titles, statements.

    Rare words count more (tf-idf), rows have length 1, and the leading `width` singular directions are kept.
    """
    words = [*_words_of(catalog)]
    items = np.concatenate([np.full(len(row), item) for item, row in enumerate(words)]).astype(np.int64)
    names, ids = np.unique(np.array([word for row in words for word in row], dtype=object), return_inverse=True)
    counts = sparse.csr_matrix((np.ones(len(ids)), (items, ids)), shape=(catalog.n_items, len(names)))
    if catalog.graph is not None:
        counts = sparse.hstack([counts, _statements(catalog.graph)], format="csr")
    counts.sum_duplicates()
    counts.data[:] = 1.0
    spread = counts.getnnz(axis=0)
    tells = (spread > 1) & (spread < catalog.n_items)  # what one item has alone, or all have, sets none beside another
    if not tells.any():
        raise DataError(
            "data.vectors=true: the catalogue has no titles, categories or graph that items have in common.",
            "Name a file of vectors, or load a graph (data.graph=true).",
        )
    table = _unit_rows(counts[:, tells] @ sparse.diags_array(np.log(catalog.n_items / spread[tells])))
    found = _leading_directions(table, width)
    largest = found[np.abs(found).argmax(axis=0), np.arange(found.shape[1])]
    return to_half_precision(found * np.where(largest < 0, -1.0, 1.0))  # one sign, whatever the library's habit


def _leading_directions(table: sparse.csr_matrix, width: int) -> NDArray[np.float64]:
    """Return table @ V for its leading right singular directions V, at most `width` of them; the same ones every time.

    Lanczos' method would be faster, but where directions have the same length, as with one category per item, it
    draws vectors anew, and every call returns others.
    """
    n_rows, n_columns = table.shape
    gramian = sparse.csr_matrix(table.T @ table if n_columns <= n_rows else table @ table.T)
    side, kept = gramian.shape[0], min(width, *table.shape)
    with one_blas_thread():
        if side <= MOST_DENSE:
            _, vectors = linalg.eigh(gramian.toarray(), subset_by_index=(side - kept, side - 1))
        else:
            vectors = _iterate(gramian, kept)
        if n_columns > n_rows:  # from left to right directions
            vectors = np.linalg.qr(table.T @ vectors[:, ::-1])[0][:, ::-1]
        return np.asarray(table @ vectors[:, ::-1])


def _iterate(gramian: sparse.csr_matrix, kept: int) -> NDArray[np.float64]:
    """Return the leading eigenvectors, the largest last, by iterating on a space of more directions than are kept."""
    space = KEY.normal(np.arange(gramian.shape[0]), kept + SPARE).astype(np.float64)
    for _ in range(ITERATIONS):
        space = np.linalg.qr(gramian @ space)[0]
    _, rotation = np.linalg.eigh(space.T @ (gramian @ space))
    return np.asarray(space @ rotation[:, -kept:])


def _words_of(catalog: Catalog) -> Iterator[list[str]]:
    for item in range(catalog.n_items):
        found = [] if catalog.categories is None else [f"category {name}" for name in catalog.categories.of(item)]
        title = "" if catalog.titles is None else catalog.titles[item]
        year = _YEAR.search(title)
        if year is not None:
            centre = int(year[1])
            found += [f"year {near}" for near in range(centre - NEAR_YEARS, centre + NEAR_YEARS + 1)]
            found.append(f"decade {centre // 10}")
        yield found + [f"word {word}" for word in _WORD.findall(title.casefold())]


def _statements(graph: Triples) -> sparse.csr_matrix:
    """Return [n_items, statements]: which (relation, object) the graph says of each item."""
    known = np.flatnonzero(graph.item_entity >= 0)
    entities = graph.item_entity[known]
    ptr = offsets(np.bincount(graph.heads, minlength=len(graph.entities)))
    rows = np.argsort(graph.heads, kind="stable")[ragged_rows(ptr, entities)]
    items = np.repeat(known, np.diff(ptr)[entities])
    pairs = graph.relations[rows].astype(np.int64) * len(graph.entities) + graph.tails[rows]
    names, ids = np.unique(pairs, return_inverse=True)
    return sparse.csr_matrix((np.ones(len(ids)), (items, ids)), shape=(len(graph.item_entity), len(names)))


def _unit_rows(table: sparse.csr_matrix) -> sparse.csr_matrix:
    lengths: NDArray[np.float64] = np.sqrt(np.asarray(table.multiply(table).sum(axis=1)).ravel())
    return sparse.csr_matrix(sparse.diags_array(1.0 / np.where(lengths > 0, lengths, 1.0)) @ table)
