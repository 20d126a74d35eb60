"""A user's history: items, times and ratings. It never leaves the device."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.errors import DataError
from tacit.field.device.history_entry import HistoryEntry, ImportResult
from tacit.field.device.settings import find_item
from tacit.field.device.store import Store
from tacit.languages.sentences import Sentence
from tacit.types import Catalog, Clients, Label, offsets

if TYPE_CHECKING:
    from tacit.field.device.import_lines import ImportChoices
    from tacit.field.device.import_preview import ImportPreview

__all__ = ["History", "HistoryEntry", "ImportResult"]

MOST_ROWS = 1_000_000
IMPORT = "import"  # where the last import is kept, so that it can be undone


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
            self._leave_out_of_undo({entry.item for entry in chosen})
            return self._put(chosen)

    def _put(self, chosen: Iterable[HistoryEntry]) -> int:
        """Add interactions inside a transaction; what is known of one and not said anew stays."""
        there = {row: _entry(value) for row, value in self._store.rows("history")}
        rows = {entry.item: row for row, entry in there.items()}
        before = len(rows)
        for entry in chosen:
            known = there.get(rows.get(entry.item, -1))
            kept = entry if known is None else _keep_known(known, entry)
            if kept == known:
                continue
            if known is not None:
                self._store.remove(rows[entry.item])
            rows[entry.item] = self._store.add("history", asdict(kept))
            there[rows[entry.item]] = kept
        if len(rows) > MOST_ROWS:
            raise DataError(
                Sentence("A history of {rows:,} rows is too long ({most:,} at most).", rows=len(rows), most=MOST_ROWS),
                "Give fewer rows.",
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
                raise DataError(
                    Sentence("'{named}' is not in the history.", named=named), "See `tacit device history list`."
                )
            self._store.remove(rows[item])
            self._leave_out_of_undo({item})
        return item

    def import_file(
        self, path: Path, catalog: Catalog, choices: ImportChoices | None = None, *, skip_bad: bool = False
    ) -> ImportResult:
        """Add what is certain in a file: see `read_preview`. Damaged rows are a BadRowsError unless left out."""
        from tacit.field.device.import_preview import read_preview_file  # here: most programs import no file

        preview = read_preview_file(path, catalog, choices)
        if preview.damaged and not skip_bad:
            raise preview.damage_error()
        return self.add_import(preview)

    def add_import(self, preview: ImportPreview, accepted: Collection[int] = ()) -> ImportResult:
        """Add what a preview found certain, and those of its doubtful rows that the user accepts; it can be undone."""
        with self._store.transaction():
            known = {entry.item: entry for entry in self._entries()}
            places = {entry.item: row for row, (_, entry) in self._rows.items()}
            entries = preview.entries(accepted)
            latest = [_keep_latest(known.get(entry.item), entry) for entry in entries]
            added = self._put(latest)
            after = {entry.item: entry for entry in self._entries()}
            changed = [entry.item for entry in entries if after[entry.item] != known.get(entry.item)]
            dated = sum(item in known and known[item].when is None for item in changed)
            note = {
                "file": preview.name,
                "before": [asdict(known[item]) | {"row": places[item]} for item in changed if item in known],
                "after": [asdict(after[item]) for item in changed],
            }
            self._keep_note(note)
        return ImportResult(added, len(entries) - added, dated, preview.list_not_added(accepted))

    def _keep_note(self, note: dict[str, Any]) -> None:
        """Store what the last import changed, inside a transaction; nothing if it changed nothing."""
        if note["after"]:
            self._store.put_json(IMPORT, note)
        else:
            self._store.drop(IMPORT)

    def _leave_out_of_undo(self, items: Collection[Label]) -> None:
        """Forget what the last import did to some items: by now they are as the user wants them, or gone."""
        note = self._store.get_json(IMPORT)
        if note is not None and any(value["item"] in items for value in note["after"]):
            parts = ("before", "after")
            rest = {part: [value for value in note[part] if value["item"] not in items] for part in parts}
            self._keep_note(note | rest)

    @property
    def last_import(self) -> str:
        """The name of the file whose import can be undone; empty if there is none."""
        note = self._store.get_json(IMPORT)
        return "" if note is None else str(note["file"])

    def undo_import(self) -> int:
        """Take the last import back, except for rows that were changed since; return how many rows changed.

        Rows that the import renewed go back to where they were.
        """
        with self._store.transaction():
            note = self._store.get_json(IMPORT)
            if note is None:
                raise DataError("There is no import to undo.", "Only the last one can be undone, once.")
            rows = {value["item"]: (row, _entry(value)) for row, value in self._store.rows("history")}
            undone = {entry.item for entry in map(_entry, note["after"]) if rows.get(entry.item, (0, None))[1] == entry}
            last = max((row for row, _ in rows.values()), default=0)
            back = [(value.get("row", last), _entry(value)) for value in note["before"] if value["item"] in undone]
            first = min((row for row, _ in back), default=last)
            moved = [one for item, one in rows.items() if item not in undone and one[0] > first]
            for row, _ in (*moved, *(rows[item] for item in undone)):
                self._store.remove(row)
            for _, entry in sorted([*moved, *back], key=itemgetter(0)):
                self._store.add("history", asdict(entry))
            self._store.drop(IMPORT)
        return len(undone)

    def clients(self, client_id: int, catalog: Catalog) -> Clients:
        """Return the history as a cohort of one, without items that the catalogue no longer has."""
        everything, last = self._entries(), self._cohort
        if last is None or last[0] is not everything or last[1] is not catalog:
            last = self._cohort = (everything, catalog, _cohort(everything, catalog))
        return replace(last[2], ids=np.array([client_id]))


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


def _keep_known(known: HistoryEntry, entry: HistoryEntry) -> HistoryEntry:
    """Return an entry that is renewed, with what was known of it and is not said anew."""
    when = known.when if entry.when is None else entry.when
    return replace(entry, when=when, value=known.value if entry.value is None else entry.value)


def _keep_latest(known: HistoryEntry | None, entry: HistoryEntry) -> HistoryEntry:
    """Return an entry of a file with the later of two times."""
    if known is None or known.when is None or entry.when is None:
        return entry
    return replace(entry, when=max(known.when, entry.when))
