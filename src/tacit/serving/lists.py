"""Lists of recommendations: one for a user, or many as a table that other tools read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ConfigError, DataError, StorageError, nearest
from tacit.types import Catalog, Label

if TYPE_CHECKING:
    import polars as pl

TAG = "tacit"  # names the system in a TREC run


@dataclass(frozen=True)
class Recommendation:
    """One item for one user, and why."""

    item: Label
    title: str
    score: float
    why: str


class Recommendations(list[Recommendation]):
    """A list, best first. `notices` say what was ignored, or that popular items stand in for an unknown taste."""

    def __init__(self, found: Sequence[Recommendation] = (), notices: Sequence[str] = ()) -> None:
        super().__init__(found)
        self.notices = tuple(notices)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{place}</td><td>{escape(one.title)}</td><td>{one.score:.3f}</td><td>{escape(one.why)}</td></tr>"
            for place, one in enumerate(self, 1)
        )
        head = "<thead><tr><th></th><th>item</th><th>score</th><th>why</th></tr></thead>"
        notes = "".join(f"<p>{escape(notice)}</p>" for notice in self.notices)
        return f"<table>{head}<tbody>{rows}</tbody></table>{notes}"


@dataclass(frozen=True)
class ListFilter:
    """Which items may be on a list. `exclude` and `only` are ids, `categories` names: an item needs one of them."""

    exclude: Sequence[Label] = ()
    only: Sequence[Label] | None = None
    categories: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("exclude", "only", "categories"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, tuple(take_ids(getattr(self, name), f"ListFilter.{name}")))

    def items(self, catalog: Catalog) -> NDArray[np.int64]:
        """Return the items of a catalogue that may be listed, ascending; unknown ids and categories are a DataError."""
        allowed = np.ones(catalog.n_items, bool)
        if catalog.retired is not None:
            allowed[catalog.retired] = False
        if self.only is not None:
            named = np.zeros(catalog.n_items, bool)
            named[_positions(catalog, self.only)] = True
            allowed &= named
        if self.categories:
            allowed &= _carrying(catalog, self.categories)
        allowed[_positions(catalog, self.exclude)] = False
        return np.flatnonzero(allowed)


def take_ids(given: Iterable[Label], what: str) -> list[Label]:
    """Return ids as a list. A single text is refused: its letters would be taken for ids."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise DataError(f"{what} is a list, not {given!r}.", "Put a single one in brackets: [...].")
    return list(given)


def take_length(k: int) -> int:
    """Return how long a list may be; 0 gives an empty list, and more than there are items gives all of them."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 0:
        raise ConfigError(f"k is a whole number from 0 on, not {k!r}.", "It says how many items a list may have.")
    return int(k)


def take_filter(among: ListFilter | None) -> ListFilter:
    """Return which items may be listed; all, if nothing is said."""
    if among is not None and not isinstance(among, ListFilter):
        raise ConfigError(f"among is a ListFilter, not {type(among).__name__}.", "Write ListFilter(only=[...]).")
    return among or ListFilter()


def _positions(catalog: Catalog, labels: Sequence[Label]) -> NDArray[np.int64]:
    return np.array([catalog.item_ids.index(label, "item") for label in labels], np.int64)


def _carrying(catalog: Catalog, names: Sequence[str]) -> NDArray[np.bool_]:
    """Return which items have one of some categories."""
    labels = catalog.categories
    if labels is None:
        raise DataError("The items of this model have no categories.", "Give a column of categories with the data.")
    known = {name: i for i, name in enumerate(labels.names)}
    for name in names:
        if name not in known:
            raise DataError(f"No item has the category '{name}'.", nearest(name, list(known)))
    wanted = np.zeros(len(known), bool)
    wanted[[known[name] for name in names]] = True
    counts = np.add.reduceat(np.append(wanted[labels.ids], False), labels.ptr[:-1].clip(max=len(labels.ids)))
    return (counts > 0) & (np.diff(labels.ptr) > 0)


def check_ending(path: Path) -> None:
    """Refuse a file whose ending names no format."""
    if path.suffix.lower() not in WRITERS:
        raise StorageError(
            f"Lists cannot be written to '{path}': the ending '{path.suffix}' is not known.",
            f"End the name with one of {', '.join(WRITERS)}.",
        )


def write_lists(lists: pl.DataFrame, path: Path) -> None:
    """Write lists of many users to a file; its ending decides: .tsv, .csv, .parquet, .jsonl or .trec."""
    check_ending(path)
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        WRITERS[path.suffix.lower()](lists, partial)
        partial.replace(path)
    except OSError as error:
        raise StorageError(f"'{path}' cannot be written: {error.strerror or error}.", "Choose another file.") from None
    finally:
        partial.unlink(missing_ok=True)


def _write_trec(lists: pl.DataFrame, path: Path) -> None:
    """Write a run in the form of trec_eval: user, Q0, item, rank, score, tag."""
    import polars as pl  # here: a device makes lists without it

    for column in ("user", "item"):
        spaced = lists.filter(pl.col(column).cast(pl.String).str.contains(r"\s|^$"))
        if len(spaced):
            raise StorageError(
                f"The {column} '{spaced[column][0]}' has a space, and a TREC run separates fields by spaces.",
                "Write a .tsv or .parquet file instead.",
            )
    trec = lists.select("user", pl.lit("Q0"), "item", "rank", pl.col("score"), pl.lit(TAG).alias("tag"))
    trec.write_csv(path, separator=" ", include_header=False, quote_style="never")


WRITERS: dict[str, Callable[[pl.DataFrame, Path], None]] = {
    ".tsv": lambda lists, path: lists.write_csv(path, separator="\t"),
    ".csv": lambda lists, path: lists.write_csv(path),
    ".parquet": lambda lists, path: lists.write_parquet(path),
    ".jsonl": lambda lists, path: lists.write_ndjson(path),
    ".trec": _write_trec,
}
