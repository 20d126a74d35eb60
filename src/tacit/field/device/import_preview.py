"""What an import would add, before anything is added: certain rows, doubtful ones, and those that are left out."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tacit.errors import BadRowsError, DataError
from tacit.field.device.history_entry import HistoryEntry
from tacit.field.device.import_files import MOST_BYTES, read_lines
from tacit.field.device.import_lines import ExportLine, ImportChoices
from tacit.field.device.names import Names
from tacit.languages.sentences import Sentence
from tacit.types import Catalog, Label

NAMED = 5  # damaged rows that a message repeats
STARS = 5.0
SCALES = (5.0, 10.0, 100.0)  # highest ratings, of which one is guessed where no service says it

Row = tuple[int, str, str]  # its line, what stands there, and why it is listed


@dataclass(frozen=True)
class DoubtfulRow:
    """A row that may mean an item; the user decides. Without an entry, several items have its title."""

    row: Row
    entry: HistoryEntry | None
    title: str


@dataclass(frozen=True)
class ImportPreview:
    """What a file says, sorted by what would happen to it."""

    name: str
    certain: list[HistoryEntry]  # one for each item
    doubtful: list[DoubtfulRow]
    disliked: list[Row]  # rated below what the user calls a like
    left_out: list[Row]  # lists for later, advertisements, what was skipped
    damaged: list[Row]
    not_found: list[Row]
    likes_from: float
    scale: float  # the highest rating, as it was taken; 0: there are no ratings
    n_rows: int

    def entries(self, accepted: Collection[int] = ()) -> list[HistoryEntry]:
        """Return what would be added, with the doubtful rows at these places."""
        chosen = (row.entry for at, row in enumerate(self.doubtful) if at in accepted)
        return _one_each([*self.certain, *(entry for entry in chosen if entry is not None)])

    def list_certain(self, catalog: Catalog, most: int) -> list[tuple[str, HistoryEntry]]:
        """Return the first of the items that are certain, with their titles as the catalogue has them."""
        places = ((catalog.item_ids.place(entry.item), entry) for entry in self.certain[:most])
        return [(str(entry.item) if at is None else catalog.title(at), entry) for at, entry in places]

    def list_not_added(self, accepted: Collection[int] = ()) -> list[Row]:
        """Return the rows that would not be added although they may mean something that the user did."""
        doubtful = [row.row for at, row in enumerate(self.doubtful) if at not in accepted or row.entry is None]
        return sorted([*self.damaged, *self.not_found, *doubtful])

    def counts(self) -> dict[str, int]:
        """Return how many rows are of each kind, and how many items are certain."""
        kinds = ("doubtful", "disliked", "left_out", "damaged", "not_found")
        return {"rows": self.n_rows, "certain": len(self.certain)} | {kind: len(getattr(self, kind)) for kind in kinds}

    def damage_error(self) -> BadRowsError:
        """Return the error that names damaged rows."""
        rows, good = self.damaged, self.n_rows - len(self.damaged)
        problems = "; ".join(f"line {line}: {why}" for line, _, why in rows[:NAMED])
        more = f"; and {len(rows) - NAMED} more" if len(rows) > NAMED else ""
        return BadRowsError(
            Sentence(
                "'{name}' has {n:row} that cannot be read ({problems}).",
                name=self.name,
                n=len(rows),
                problems=problems + more,
            ),
            Sentence("Nothing was added. Correct the file, or add the {good:other} with --skip-bad.", good=good),
            rows,
            good,
        )


def read_preview_file(path: Path, catalog: Catalog, choices: ImportChoices | None = None) -> ImportPreview:
    """Read a file as `read_preview` does."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise DataError(
                Sentence("'{path}' is too large for one user's history.", path=path), "Give a smaller file."
            )
        content = path.read_bytes()
    except OSError as error:
        raise DataError(Sentence("'{path}' cannot be read: {error}.", path=path, error=error.strerror)) from None
    return read_preview(content, str(path), catalog, choices)


def read_preview(content: bytes, name: str, catalog: Catalog, choices: ImportChoices | None = None) -> ImportPreview:
    """Return what the content of a file would add to a history. Nothing is stored."""
    choices = choices or ImportChoices()
    lines, names = read_lines(content, name, choices), Names(catalog)
    scale = choices.scale or _find_scale(lines)
    preview = ImportPreview(name, [], [], [], [], [], [], choices.likes_from, scale, len(lines))
    for line in lines:
        _sort_in(line, preview, names)
    return replace(preview, certain=_one_each(preview.certain))


def _sort_in(line: ExportLine, preview: ImportPreview, names: Names) -> None:
    """Put a line where it belongs."""

    def row(why: str) -> Row:
        return line.number, line.text, why

    if line.wrong:
        preview.damaged.append(row(line.wrong))
        return
    if line.left_out:
        preview.left_out.append(row(line.left_out))
        return
    value = _number(line.value)
    if value is not None and math.isnan(value):
        preview.not_found.append(row(Sentence("'{value}' is not a rating.", value=line.value)))
        return
    highest = line.scale or preview.scale
    if value is not None and highest > 0 and STARS * value / highest < preview.likes_from:
        preview.disliked.append(row(Sentence("Rated {value:g} of {highest:g}.", value=value, highest=highest)))
        return
    try:
        found = names.match(line)
    except DataError as error:
        preview.not_found.append(row(error.message))
        return
    entry = None if found.item is None else HistoryEntry(names.catalog.item_ids[found.item], line.when, value)
    if entry is not None and not found.doubt:
        preview.certain.append(entry)
    else:
        title = "" if found.item is None else names.catalog.title(found.item)
        preview.doubtful.append(DoubtfulRow(row(found.doubt), entry, title))


def _number(text: str) -> float | None:
    """Return a rating, NaN where it is none, nothing where there is none."""
    try:
        value = float(text) if text else None
    except ValueError:
        return math.nan
    return math.nan if value is not None and not math.isfinite(value) else value


def _find_scale(lines: Sequence[ExportLine]) -> float:
    """Return the highest rating of a file of an unknown service, as its numbers show."""
    known = {line.scale for line in lines if line.scale > 0 and line.value}
    if known:
        return max(known)
    numbers = [value for line in lines if line.scale == 0 and (value := _number(line.value)) is not None]
    values = [value for value in numbers if not math.isnan(value)]
    return next((scale for scale in SCALES if max(values) <= scale), max(values)) if values else 0.0


def _one_each(entries: Sequence[HistoryEntry]) -> list[HistoryEntry]:
    """Return one entry for each item: with its latest time, and the rating that was given last."""
    found: dict[Label, HistoryEntry] = {}
    for entry in entries:
        before = found.get(entry.item)
        if before is None:
            found[entry.item] = entry
            continue
        is_later = before.when is None or (entry.when is not None and entry.when >= before.when)
        late, early = (entry, before) if is_later else (before, entry)
        when = late.when if late.when is not None else early.when
        found[entry.item] = HistoryEntry(entry.item, when, late.value if late.value is not None else early.value)
    return list(found.values())
