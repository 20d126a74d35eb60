"""A user's history: items, times and ratings. It never leaves the device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from tacit.errors import BadRowsError, DataError
from tacit.field.device.import_files import MOST_BYTES, ExportLine, read_lines
from tacit.field.device.names import Names
from tacit.field.device.settings import find_item
from tacit.field.device.store import Store
from tacit.types import Catalog, Clients, Label, offsets

MOST_ROWS = 1_000_000
NAMED = 5  # damaged rows that a message repeats


@dataclass(frozen=True)
class HistoryEntry:
    """One interaction of the user."""

    item: Label
    when: int | None = None  # unix seconds
    value: float | None = None


@dataclass(frozen=True)
class ImportResult:
    """What an import understood, and what it did not: (line, what stood there, why)."""

    added: int
    known_already: int
    not_understood: list[tuple[int, str, str]]


class History:
    """The user's interactions, one row per item; adding an item again renews its row."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: tuple[tuple[int, int], tuple[HistoryEntry, ...]] | None = None
        self._rows: dict[int, tuple[bytes, HistoryEntry]] = {}
        self._cohort: tuple[tuple[HistoryEntry, ...], Catalog, Clients] | None = None

    def __len__(self) -> int:
        return len(self._entries())

    def list(self) -> list[HistoryEntry]:
        """Return everything, in the order in which it was added."""
        return [*self._entries()]

    def _entries(self) -> tuple[HistoryEntry, ...]:
        """Read the rows, only those that have changed; what a transaction may yet take back is not kept."""
        moment = self._store.moment()
        if self._read is not None and self._read[0] == moment:
            return self._read[1]
        self._rows = self._store.read("history", self._rows, _entry)
        entries = tuple(entry for _, entry in self._rows.values())
        if not self._store.in_transaction:
            self._read = (moment, entries)
        return entries

    def add(self, entries: Iterable[HistoryEntry], catalog: Catalog | None) -> int:
        """Add interactions; return how many are new. With a catalogue, each must be in it, by id or by title."""
        chosen = [entry if catalog is None else _find_known(entry, catalog) for entry in entries]
        with self._store.transaction():
            rows = {value["item"]: row for row, value in self._store.rows("history")}
            before = len(rows)
            for entry in chosen:
                if entry.item in rows:
                    self._store.remove(rows[entry.item])
                value = {"item": entry.item, "when": entry.when, "value": entry.value}
                rows[entry.item] = self._store.add("history", value)
            if len(rows) > MOST_ROWS:
                raise DataError(
                    f"A history of {len(rows):,} rows is too long ({MOST_ROWS:,} at most).", "Give fewer rows."
                )
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

    def import_file(self, path: Path, catalog: Catalog, *, skip_bad: bool = False) -> ImportResult:
        """Add what a file says: a table, or what another service handed out (see `tacit.field.device.import_files`)."""
        try:
            if path.stat().st_size > MOST_BYTES:
                raise DataError(f"'{path}' is too large for one user's history.", "Give a smaller file.")
            content = path.read_bytes()
        except OSError as error:
            raise DataError(f"'{path}' cannot be read: {error.strerror}.") from None
        return self.import_bytes(content, str(path), catalog, skip_bad=skip_bad)

    def import_bytes(self, content: bytes, name: str, catalog: Catalog, *, skip_bad: bool = False) -> ImportResult:
        """Add what the content of a file says: see `read_import`."""
        return self.add_import(*read_import(content, name, catalog, skip_bad=skip_bad))

    def add_import(self, entries: Sequence[HistoryEntry], missed: Sequence[tuple[int, str, str]]) -> ImportResult:
        """Add what was read from a file."""
        before = {entry.item for entry in self.list()}
        added = self.add(entries, None)
        return ImportResult(added, len({entry.item for entry in entries} & before), sorted(missed))

    def clients(self, lane: int, catalog: Catalog) -> Clients:
        """Return the history as a cohort of one, without items that the catalogue no longer has."""
        everything, last = self._entries(), self._cohort
        if last is None or last[0] is not everything or last[1] is not catalog:
            last = self._cohort = (everything, catalog, _cohort(everything, catalog))
        return replace(last[2], ids=np.array([lane]))


def read_import(
    content: bytes, name: str, catalog: Catalog, *, skip_bad: bool = False
) -> tuple[list[HistoryEntry], list[tuple[int, str, str]]]:
    """Return what the content of a file says, and which of its lines were not understood. Nothing is stored.

    Damaged lines (a date that is none, a field too many) may mean that the file is not what it seems: a BadRowsError
    names them, unless `skip_bad` leaves them out.
    """
    lines = read_lines(content, name)
    missed = [(line.number, line.text, line.wrong) for line in lines if line.wrong]
    if missed and not skip_bad:
        raise _damage_error(name, missed, len(lines) - len(missed))
    entries, names = [], Names(catalog)
    for line in lines:
        if line.wrong:
            continue
        try:
            entries.append(_find_item(line, names))
        except DataError as error:
            missed.append((line.number, line.text, str(error)))
    return entries, missed


def _damage_error(name: str, rows: Sequence[tuple[int, str, str]], good: int) -> BadRowsError:
    problems = "; ".join(f"line {line}: {why}" for line, _, why in rows[:NAMED])
    more = f"; and {len(rows) - NAMED} more" if len(rows) > NAMED else ""
    return BadRowsError(
        f"'{name}' has {len(rows)} row{'s' if len(rows) > 1 else ''} that cannot be read ({problems}{more}).",
        f"Nothing was added. Correct the file, or add the {good} other{'s' if good > 1 else ''} with --skip-bad.",
        rows,
        good,
    )


def _cohort(everything: Sequence[HistoryEntry], catalog: Catalog) -> Clients:
    placed = ((catalog.item_ids.place(entry.item), at, entry) for at, entry in enumerate(everything))
    known = sorted(((item, at, entry) for item, at, entry in placed if item is not None), key=itemgetter(0))
    times = _all_or_none([entry.when for _, _, entry in known], np.int64)
    added = np.array([at for _, at, _ in known], np.int32)
    return Clients(
        np.zeros(1, np.int64),
        offsets(np.array([len(known)])),
        np.array([item for item, _, _ in known], np.int32),
        catalog.n_items,
        _all_or_none([entry.value for _, _, entry in known], np.float32),
        times,
        None,
        None if times is not None else added,  # where a date is missing, what was added later came later
    )


def _all_or_none(values: Sequence[Any], dtype: Any) -> Any:
    return np.array(values, dtype) if values and all(value is not None for value in values) else None


def _entry(value: Any) -> HistoryEntry:
    return HistoryEntry(value["item"], value["when"], value["value"])


def _find_known(entry: HistoryEntry, catalog: Catalog) -> HistoryEntry:
    return HistoryEntry(catalog.item_ids[find_item(entry.item, catalog)], entry.when, entry.value)


def _find_item(line: ExportLine, names: Names) -> HistoryEntry:
    if not line.spellings:
        raise DataError("The row names no item.")
    item = names.find(line.spellings)
    try:
        value = float(line.value) if line.value else None
    except ValueError:
        value = np.nan
    if value is not None and not np.isfinite(value):
        raise DataError(f"'{line.value}' is not a rating.")
    return HistoryEntry(names.catalog.item_ids[item], line.when, value)
