"""Dataset: the log with what is publicly known about its items, and how labelled columns become one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from html import escape

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.data.clock import DateOrder, Where, to_seconds
from tacit.data.graph_files import GraphFile, read_triples
from tacit.data.row_warnings import SPACES
from tacit.data.words import entity_words
from tacit.errors import DataError
from tacit.types import Array, Catalog, Config, Interactions, Labels, Triples, Vocabulary, offsets

PARTS = ("train", "validation", "test")
"""What the codes of a ready split stand for."""

_BLOCK_ROWS = 1 << 20
_INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"


@dataclass(frozen=True)
class Step:
    """One filter and what it left."""

    what: str
    rows: int
    users: int
    items: int


@dataclass(frozen=True)
class Dataset:
    """A log of what users did and the catalogue it refers to; both share the item vocabulary."""

    name: str
    interactions: Interactions
    catalog: Catalog
    given: NDArray[np.int8] | None = None  # [N] index into PARTS, when the data came with its own split
    columns: Mapping[str, str] = field(default_factory=dict)  # role -> what it was taken from
    origin: str = ""
    steps: tuple[Step, ...] = ()
    warnings: tuple[str, ...] = ()
    loaded: tuple[Config, Interactions] | None = None  # with which options, and what came; none: it was a frame

    def __len__(self) -> int:
        return len(self.interactions)

    @property
    def n_users(self) -> int:
        """How many users there are."""
        return len(self.interactions.user_ids)

    @property
    def n_items(self) -> int:
        """How many items there are."""
        return self.catalog.n_items

    @property
    def request(self) -> Config | None:
        """The options that load this log again; none if it was a frame, or was changed since."""
        return self.loaded[0] if self.loaded is not None and self.loaded[1] is self.interactions else None

    @property
    def fingerprint(self) -> str:
        """Eight digits that follow from what the log holds."""
        return self._digest(4)

    @property
    def digest(self) -> str:
        """A digest of the log, the catalogue and the split that came with them."""
        return self._digest(16, self.given, self.catalog)

    def _digest(self, size: int, *more: object) -> str:
        log, digest = self.interactions, hashlib.blake2b(digest_size=size)
        for value in (log.users, log.items, log.values, log.times, log.user_ids.labels, log.item_ids.labels, *more):
            _update(digest, value)
        return digest.hexdigest()

    def __repr__(self) -> str:
        return f"Dataset('{self.name}': {self.n_users} users, {self.n_items} items, {len(self)} interactions)"

    def _repr_html_(self) -> str:
        facts = {"users": self.n_users, "items": self.n_items, "interactions": len(self)}
        rows = "".join(f"<tr><th>{name}</th><td>{count:,}</td></tr>" for name, count in facts.items())
        return f"<table><caption>{escape(self.name)}</caption><tbody>{rows}</tbody></table>"


def _update(digest: hashlib.blake2b, value: object) -> None:
    """Add a value to a digest: arrays by their bytes, labels as text, dataclasses field by field."""
    if isinstance(value, np.ndarray) and value.dtype.kind not in "OUS":
        digest.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
    elif isinstance(value, np.ndarray | list | tuple):
        listed = value.tolist() if isinstance(value, np.ndarray) else value
        digest.update("\n".join(map(str, listed)).encode("utf-8", "surrogatepass"))
    elif is_dataclass(value):
        for one in fields(value):
            _update(digest, getattr(value, one.name))
    else:
        digest.update(b"-" if value is None else repr(value).encode())


@dataclass(frozen=True)
class KnowledgeGraph:
    """A knowledge graph as it is written: triples of labels, and which entity each item is."""

    triples: pl.DataFrame  # head, relation, tail
    links: pl.DataFrame  # item, entity


@dataclass(frozen=True)
class Tables:
    """What a parser hands over: labelled columns, not yet indices.

    log: user, item [, rating, timestamp, split]; items: item [, title, category, lat, lon], where category is a list of
    texts, or one text with names joined by '|'.
    """

    log: pl.DataFrame
    items: pl.DataFrame | None = None
    graph: KnowledgeGraph | GraphFile | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    before_1970: bool = False  # only where a named dataset is known to hold such dates
    dates: DateOrder = "auto"

    def strip_ids(self) -> Tables:
        """Return the tables without spaces around ids of users and items."""
        texts = [role for role in ("user", "item") if self.log.schema[role] == pl.String]
        log = self.log.with_columns(pl.col(role).str.strip_chars() for role in texts)
        items = self.items
        if items is not None and items.schema["item"] == pl.String:  # sorted: the rows come in no order
            bare = items.sort("item").with_columns(pl.col("item").str.strip_chars())
            items = bare.unique("item", keep="first", maintain_order=True)
        return replace(self, log=log, items=items, warnings=tuple(w for w in self.warnings if SPACES not in w))


def assemble(name: str, tables: Tables, origin: str, where: Where | None = None) -> Dataset:
    """Turn labelled columns into a Dataset; vocabularies are sorted, so an index says which id is smaller.

    Columns are taken out of the tables one by one: a long log is not in memory twice.
    """
    log, at = tables.log, where or (lambda row: f"{origin}, row {row + 1}")
    if log.height == 0:
        raise DataError(f"{origin}: there are no interactions in it.", "It needs at least one row: user, item.")
    for role in ("user", "item"):
        holes = log[role].is_null() | (log[role] == "" if log[role].dtype == pl.String else False)
        if holes.any():
            raise DataError(f"{at(int(holes.arg_true()[0]))}: the {role} is missing ({int(holes.sum())} such rows).")
    given = _parts(log["split"], at) if "split" in log.columns else None
    values = _ratings(log.drop_in_place("rating"), at) if "rating" in log.columns else None
    times = None
    if "timestamp" in log.columns:
        times = to_seconds(log.drop_in_place("timestamp"), at, tables.before_1970, tables.dates)
    users, user_ids = encode(log.drop_in_place("user"))
    items, item_ids = encode(log.drop_in_place("item"))
    interactions = Interactions(users, items, values, times, user_ids, item_ids)
    catalog = describe_items(item_ids, tables.items, tables.graph)
    return Dataset(name, interactions, catalog, given, tables.columns, origin, warnings=tables.warnings)


def encode(column: pl.Series) -> tuple[NDArray[np.int32], Vocabulary]:
    """Return each row's index and the sorted labels; ids written as integers become integers."""
    if column.dtype.is_float():
        column = _whole(column)
    if column.dtype.is_nested():
        raise DataError(
            f"Column '{column.name}' holds {column.dtype}: an id must be whole or text.", "Give one id in each row."
        )
    if column.dtype.is_integer() and (column.dtype.is_signed_integer() or column.max() < 2**63):  # type: ignore[operator]
        return _encode_integers((column if column.dtype == pl.Int32 else column.cast(pl.Int64)).to_numpy())
    text = column.cast(pl.String)
    labels = text.unique().sort()
    codes = text.cast(pl.Enum(labels)).to_physical().to_numpy().astype(np.int32)
    if labels.str.contains(_INTEGER).all():
        numbers = labels.cast(pl.Int64).to_numpy()
        order = np.argsort(numbers)
        rank = np.empty(len(order), np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        return rank[codes], Vocabulary(numbers[order])
    return codes, Vocabulary(labels.to_numpy().astype(object))


def _encode_integers(values: NDArray[np.int32] | NDArray[np.int64]) -> tuple[NDArray[np.int32], Vocabulary]:
    """Encode in blocks of rows: a long log is in memory with its codes, and with nothing else of its length."""
    low, high = int(values.min()), int(values.max())
    blocks = [slice(start, start + _BLOCK_ROWS) for start in range(0, len(values), _BLOCK_ROWS)]
    codes = np.empty(len(values), np.int32)
    if high - low < max(4 * len(values), 1 << 20):  # a table of the whole range is faster than sorting
        present = np.zeros(high - low + 1, bool)
        for rows in blocks:
            present[values[rows].astype(np.int64) - low] = True
        rank = np.cumsum(present, dtype=np.int32) - np.int32(1)
        for rows in blocks:
            codes[rows] = rank[values[rows].astype(np.int64) - low]
        return codes, Vocabulary(np.flatnonzero(present) + low)
    labels = np.sort(pl.Series(values).unique().to_numpy()).astype(np.int64)
    for rows in blocks:
        codes[rows] = np.searchsorted(labels, values[rows].astype(np.int64))
    return codes, Vocabulary(labels)


def _whole(column: pl.Series) -> pl.Series:
    whole = column.cast(pl.Int64, strict=False)
    wrong = (whole.cast(pl.Float64) != column).fill_null(True)
    if wrong.any():
        row = int(wrong.arg_true()[0])
        raise DataError(f"Column '{column.name}', row {row + 1}: an id must be whole or text, seen {column[row]}.")
    return whole


def _ratings(column: pl.Series, where: Where) -> NDArray[np.float32]:
    values = column
    if column.dtype == pl.String:
        values = column.str.strip_chars().cast(pl.Float32, strict=False)
    if not values.dtype.is_numeric() and values.dtype != pl.Boolean:
        raise DataError(f"{where(0)}: ratings must be numbers, seen type {column.dtype}.")
    values = values.cast(pl.Float32)
    wrong = values.is_null() | ~values.is_finite().fill_null(False)
    if wrong.any():
        row = int(wrong.arg_true()[0])
        raise DataError(
            f"{where(row)}: the rating is not a number (seen '{column[row]}'; {int(wrong.sum())} such rows).",
            "Drop these rows, or leave the rating column out.",
        )
    return values.to_numpy()


def _parts(column: pl.Series, where: Where) -> NDArray[np.int8]:
    words = {"train": 0, "training": 0, "valid": 1, "validation": 1, "val": 1, "dev": 1, "test": 2, "testing": 2}
    codes = column.cast(pl.String).str.to_lowercase().replace_strict(words, default=-1, return_dtype=pl.Int8)
    if (codes < 0).any():
        row = int((codes < 0).arg_true()[0])
        raise DataError(f"{where(row)}: '{column[row]}' is not a part of a split.", "Use train, validation or test.")
    return codes.to_numpy()


def describe_items(
    item_ids: Vocabulary, items: pl.DataFrame | None, graph: KnowledgeGraph | GraphFile | None
) -> Catalog:
    """Build the catalogue of the items that occur; what else the table knows is left out."""
    if items is None:
        return Catalog(
            item_ids, _titles_from_graph(item_ids, graph), graph=None if graph is None else _triples(item_ids, graph)
        )
    at = _positions(item_ids, items["item"])
    known = items.filter(pl.Series(at >= 0))
    at = at[at >= 0]
    titles: list[str] | None = None
    if "title" in items.columns:
        titles = [str(label) for label in item_ids.labels.tolist()]
        for item, title in zip(at.tolist(), known["title"].to_list(), strict=True):
            if title:
                titles[item] = title
    coordinates = None
    if "lat" in items.columns and "lon" in items.columns:
        coordinates = np.full((len(item_ids), 2), np.nan)
        coordinates[at] = known.select(pl.col("lat", "lon").cast(pl.Float64)).to_numpy()
    categories = _categories(len(item_ids), at, known["category"]) if "category" in items.columns else None
    return Catalog(item_ids, titles, categories, coordinates, None if graph is None else _triples(item_ids, graph))


def _titles_from_graph(item_ids: Vocabulary, graph: KnowledgeGraph | GraphFile | None) -> list[str] | None:
    """Return titles made of the entities that items are, where nothing else names them; none without such entities."""
    linked = [] if graph is None else _entities_of(item_ids, graph.links).to_list()
    if not any("://" in entity for entity in linked if entity is not None):
        return None
    return [
        str(label) if entity is None or "://" not in entity else entity_words(entity)
        for label, entity in zip(item_ids.labels.tolist(), linked, strict=True)
    ]


def _positions(ids: Vocabulary, labels: pl.Series) -> NDArray[np.int64]:
    """Return the index of each label, -1 where it is not known."""
    if ids.labels.dtype == object:
        known = pl.Series(ids.labels.tolist(), dtype=pl.String)
        wanted = labels.cast(pl.String)
    else:
        known, wanted = pl.Series(ids.labels), labels.cast(pl.Int64, strict=False)
    table = pl.DataFrame({"label": known, "at": np.arange(len(ids))})
    found = pl.DataFrame({"label": wanted}).join(table, on="label", how="left", maintain_order="left")
    return found["at"].fill_null(-1).to_numpy()


def _categories(n_items: int, at: Array, column: pl.Series) -> Labels:
    lists = column if column.dtype == pl.List else column.cast(pl.String).str.split("|")
    rows = pl.DataFrame({"item": at, "name": lists}).explode("name").drop_nulls().filter(pl.col("name") != "")
    rows = rows.unique().sort("item", "name")
    names = rows["name"].unique().sort()
    ids = rows["name"].cast(pl.Enum(names)).to_physical().to_numpy().astype(np.int32)
    return Labels(offsets(np.bincount(rows["item"].to_numpy(), minlength=n_items)), ids, names.to_list())


def _triples(item_ids: Vocabulary, graph: KnowledgeGraph | GraphFile) -> Triples:
    links = graph.links
    if isinstance(graph, GraphFile):
        return read_triples(graph.path, _entities_of(item_ids, links), graph.hops, graph.skip)
    triples = graph.triples.cast(pl.String)
    entities = pl.concat([triples["head"], triples["tail"], links["entity"].cast(pl.String)]).unique().sort()
    relations = triples["relation"].unique().sort()
    index = pl.Enum(entities)
    item_entity = np.full(len(item_ids), -1, np.int32)
    at = _positions(item_ids, links["item"])
    linked = links["entity"].cast(pl.String).cast(index).to_physical().to_numpy()
    item_entity[at[at >= 0]] = linked[at >= 0]
    return Triples(
        triples["head"].cast(index).to_physical().to_numpy().astype(np.int32),
        triples["relation"].cast(pl.Enum(relations)).to_physical().to_numpy().astype(np.int32),
        triples["tail"].cast(index).to_physical().to_numpy().astype(np.int32),
        Vocabulary(entities.to_numpy().astype(object)),
        relations.to_list(),
        item_entity,
    )


def _entities_of(item_ids: Vocabulary, links: pl.DataFrame) -> pl.Series:
    """Return the entity of each item, null where it has none."""
    at = _positions(item_ids, links["item"])
    named = links.with_columns(at=pl.Series(at)).filter(pl.col("at") >= 0).unique("at", keep="last")
    every = pl.DataFrame({"at": np.arange(len(item_ids))})
    return every.join(named, on="at", how="left", maintain_order="left")["entity"].cast(pl.String)
