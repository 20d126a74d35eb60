"""A person's history, as she keeps it: what she did, when, and how she liked it. It never leaves her device."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tacit.data.clock import to_seconds
from tacit.data.columns import ROLES, plain
from tacit.device.settings import find_item
from tacit.device.store import Store
from tacit.errors import DataError
from tacit.types import Catalog, Clients, Label, offsets

MOST_ROWS = 1_000_000
MOST_BYTES = 2**27  # of a file to be imported


@dataclass(frozen=True)
class Entry:
    """One thing she did."""

    item: Label
    when: int | None = None  # unix seconds
    value: float | None = None


@dataclass(frozen=True)
class Imported:
    """What an import understood, and what it did not: (line, what stood there, why)."""

    added: int
    known_already: int
    not_understood: list[tuple[int, str, str]]


class History:
    """Things she did, one row per item; adding an item again renews its row."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __len__(self) -> int:
        return sum(1 for _ in self._store.rows("history"))

    def list(self) -> list[Entry]:
        """Return everything, in the order in which it was added."""
        return [_entry(value) for _, value in self._store.rows("history")]

    def add(self, entries: Iterable[Entry], catalog: Catalog | None) -> int:
        """Add things she did; return how many are new. With a catalogue, each must be in it, by id or by title."""
        chosen = [entry if catalog is None else _known(entry, catalog) for entry in entries]
        with self._store.transaction():
            rows = {value["item"]: row for row, value in self._store.rows("history")}
            before = len(rows)
            for entry in chosen:
                if entry.item in rows:
                    self._store.remove(rows[entry.item])
                value = {"item": entry.item, "when": entry.when, "value": entry.value}
                rows[entry.item] = self._store.add("history", value)
            if len(rows) > MOST_ROWS:
                raise DataError(f"A history of {len(rows):,} rows is too long ({MOST_ROWS:,} at most).")
        return len(rows) - before

    def remove(self, named: Label, catalog: Catalog | None) -> Label:
        """Take something away, by id or title; return the id of what was taken away."""
        with self._store.transaction():
            rows = {value["item"]: row for row, value in self._store.rows("history")}
            item = named
            if item not in rows and catalog is not None:
                item = catalog.item_ids[find_item(named, catalog)]
            if item not in rows:
                raise DataError(f"'{named}' is not in the history.", "See `tacit device history list`.")
            self._store.remove(rows[item])
        return item

    def import_csv(self, path: Path, catalog: Catalog) -> Imported:
        """Add what a table says: a column of ids or titles, and where there are, times and ratings.

        Rows that are not understood are reported and left out; the others are added together.
        """
        header, rows = _table(path)
        roles = _roles(header, path)
        before = {entry.item for entry in self.list()}
        entries, missed = [], []
        times = _times([row[roles["timestamp"]] for _, row in rows], path) if "timestamp" in roles else None
        for at, (line, row) in enumerate(rows):
            try:
                entries.append(_read(row, roles, catalog, None if times is None else times[at]))
            except DataError as error:
                missed.append((line, ", ".join(row)[:80], str(error)))
        added = self.add(entries, None)
        return Imported(added, len({entry.item for entry in entries} & before), missed)

    def clients(self, lane: int, catalog: Catalog) -> Clients:
        """Return her as a cohort of one. What she did that the catalogue no longer knows is left out."""
        index = {label: item for item, label in enumerate(catalog.item_ids.labels.tolist())}
        known = sorted((index[entry.item], entry) for entry in self.list() if entry.item in index)
        entries = [entry for _, entry in known]
        return Clients(
            np.array([lane]),
            offsets(np.array([len(known)])),
            np.array([item for item, _ in known], np.int32),
            catalog.n_items,
            _all_or_none([entry.value for entry in entries], np.float32),
            _all_or_none([entry.when for entry in entries], np.int64),
        )


def _all_or_none(values: Sequence[Any], dtype: Any) -> Any:
    return np.array(values, dtype) if values and all(value is not None for value in values) else None


def _entry(value: Any) -> Entry:
    return Entry(value["item"], value["when"], value["value"])


def _known(entry: Entry, catalog: Catalog) -> Entry:
    return Entry(catalog.item_ids[find_item(entry.item, catalog)], entry.when, entry.value)


def _table(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Read a text table: its header and (line, fields) of each row."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise DataError(f"'{path}' is too large to be one person's history.", "Give a smaller file.")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError(f"'{path}' cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise DataError(f"'{path}' is not text in UTF-8 (byte {error.start}).", "Save it as CSV in UTF-8.") from None
    first = text.partition("\n")[0]
    separator = max(",;\t|", key=first.count)
    reader = csv.reader(text.splitlines(), delimiter=separator, strict=True)
    try:
        found = [(reader.line_num, [field.strip() for field in row]) for row in reader if row]
    except csv.Error as error:
        raise DataError(f"'{path}', line {reader.line_num}: {error}.", "Check the quotes there.") from None
    if not found:
        raise DataError(f"'{path}' is empty.")
    width = len(found[0][1])
    for line, row in found:
        if len(row) != width:
            raise DataError(f"'{path}', line {line}: {len(row)} fields, but the first line has {width}.")
    return found[0][1], found[1:]


def _roles(header: list[str], path: Path) -> dict[str, int]:
    words = [plain(name) for name in header]
    roles: dict[str, int] = {}
    for role in ("item", "title", "timestamp", "rating"):
        position = next((words.index(name) for name in ROLES[role] if name in words), None)
        if position is not None and position not in roles.values():
            roles[role] = position
    if "item" not in roles and "title" not in roles:
        raise DataError(
            f"'{path}': no column of items among {', '.join(header[:20])}.",
            "Call one 'item' or 'title' in the first line.",
        )
    return roles


def _times(column: list[str], path: Path) -> list[int | None]:
    filled = [text for text in column if text]
    seconds = iter(to_seconds(pl.Series(filled, dtype=pl.String), lambda row: f"{path.name}, row {row + 1}").tolist())
    return [int(next(seconds)) if text else None for text in column]


def _read(row: list[str], roles: dict[str, int], catalog: Catalog, when: int | None) -> Entry:
    named = [row[roles[role]] for role in ("item", "title") if role in roles and row[roles[role]]]
    if not named:
        raise DataError("No item is named.")
    try:
        item = find_item(named[0], catalog)
    except DataError:
        if len(named) == 1:
            raise
        item = find_item(named[1], catalog)
    value = row[roles["rating"]] if "rating" in roles else ""
    try:
        number = float(value) if value else None
    except ValueError:
        raise DataError(f"'{value}' is not a rating.") from None
    if number is not None and not np.isfinite(number):
        raise DataError(f"'{value}' is not a rating.")
    return Entry(catalog.item_ids[item], when, number)
