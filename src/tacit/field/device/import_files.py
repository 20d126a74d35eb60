"""Files that users bring along: their own tables, and what other services hand out when asked for one's data.

    tables      CSV or TSV with titles, and where there are, times and ratings; Netflix, Letterboxd, IMDb, Goodreads
                and Last.fm are known by their columns; a list of titles, one a line
    JSON, HTML  of Google (YouTube, activity, places), Spotify, Trakt, ListenBrainz and Last.fm: `import_json`
    archives    a ZIP of such files, as the services send them; what else is in it is left alone

Whatever the file, the outcome is the same: lines that say what a user did. Which item a line means is for the
catalogue's names to say. A line that is damaged says why, so that the others can be had without it.
"""

from __future__ import annotations

import csv
import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tacit.data.columns import normalise_column
from tacit.errors import DataError
from tacit.field.device.import_dates import DateOrderError, read_dates
from tacit.field.device.import_json import Act, read_html, read_json
from tacit.field.device.import_lines import (
    COUNTS,
    PLAIN,
    ExportLine,
    ImportChoices,
    TableService,
    find_service,
    left_out_of,
    rename_title,
    song_spellings,
)
from tacit.field.device.names import title_spellings
from tacit.languages.sentences import Sentence

MOST_BYTES = 2**26  # of a file, and of all that is unpacked from one
MOST_LINES = 200_000  # of a file, and of all files of an archive
MOST_COLUMNS = 1000
MOST_PARTS = 5 * MOST_LINES  # objects and lists of a JSON file
MOST_FILES = 500  # in an archive
ARCHIVE = b"PK\x03\x04"  # how a ZIP begins
KINDS = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".html")
BAD_ARCHIVE = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(ValueError, NotImplementedError, RuntimeError, EOFError, OSError),
)
_Time = tuple[int | None, str]  # unix seconds, and what is wrong with what stands there


def read_lines(content: bytes, name: str, choices: ImportChoices | None = None) -> list[ExportLine]:
    """Return what a file says, whatever kind it is; a file that says nothing of the kind is a DataError."""
    choices = choices or ImportChoices()
    if len(content) > MOST_BYTES:
        raise DataError(Sentence("'{name}' is too large for one user's history.", name=name), "Give a smaller file.")
    if content[:4] == ARCHIVE:
        return _archive(content, name, choices)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            Sentence("'{name}' is not text in UTF-8 (byte {byte}).", name=name, byte=error.start),
            "Save it as CSV in UTF-8.",
        ) from None
    if not text.strip():
        raise DataError(Sentence("'{name}' is empty.", name=name))
    if text.lstrip()[0] == "<":
        return _acts(read_html(text, name), name, choices)
    if text.lstrip()[0] not in "[{":
        return _table(text, name, choices)
    if text.count("{") + text.count("[") > MOST_PARTS:  # before each of them takes memory
        raise _too_long(name)
    return _acts(read_json(text, name, MOST_LINES), name, choices)


class TooLongError(DataError):
    """A file with more rows than a user's history can have."""


class ProfileError(DataError):
    """A file with the rows of several people, of whom none was chosen."""

    def __init__(self, name: str, profiles: Sequence[str]) -> None:
        super().__init__(
            Sentence(
                "'{name}' has the rows of {n} people: {some}.",
                name=name,
                n=len(profiles),
                some=", ".join(profiles[:10]),
            ),
            Sentence("Say which of them you are: --with profile='{one}'.", one=profiles[0]),
        )
        self.profiles = list(profiles)


def _too_long(name: str) -> TooLongError:
    return TooLongError(
        Sentence("'{name}' has more than {most:,} rows, too many for one user's history.", name=name, most=MOST_LINES),
        "Give a smaller file.",
    )


# --- tables -----------------------------------------------------------------------------------------------------------


def _table(text: str, name: str, choices: ImportChoices) -> list[ExportLine]:
    separator = max(",;\t|", key=text.partition("\n")[0].count)
    if text.partition("\n")[0].count(separator) >= MOST_COLUMNS:
        raise DataError(
            Sentence("'{name}' has more than {most:,} columns.", name=name, most=MOST_COLUMNS),
            "Give a table with fewer.",
        )
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    rows = list[tuple[int, list[str]]]()
    try:
        for row in reader:
            if row:
                rows.append((reader.line_num, [field.strip() for field in row]))
            if len(rows) > MOST_LINES + 1:
                raise _too_long(name)
    except csv.Error as error:
        raise DataError(
            Sentence("'{name}', line {line}: {error}.", name=name, line=reader.line_num, error=error),
            "Check the quotes there.",
        ) from None
    header, body = rows[0][1], rows[1:]
    words = [normalise_column(column) for column in header]
    known = _known_words()
    if len(header) == 1 and words[0] not in known and separator not in text and name.lower().endswith(".txt"):
        return [ExportLine(line, row[0][:80], tuple(title_spellings(row[0]))) for line, row in rows]
    if len(header) == 4 and not known & set(words) and read_dates([header[3]])[0] is not None:
        header, words, body = ["artist", "album", "track", "date"], ["artist", "album", "track", "date"], rows
    service = find_service(words)
    roles = _roles(words, service, header, name)
    body = _own_rows(body, words, name, choices)
    whole = [row if len(row) == len(header) else [] for _, row in body]
    stamps = [_cell(row, roles, "timestamp") for row in whole]
    table = _Table(service, words, roles, header, name, choices)
    times = _times(stamps, choices)
    return _some_good([table.line(*row, when) for row, when in zip(body, times, strict=True)], name)


def _known_words() -> set[str]:
    return {word for names in PLAIN.roles.values() for word in names}


def _own_rows(
    rows: list[tuple[int, list[str]]], words: list[str], name: str, choices: ImportChoices
) -> list[tuple[int, list[str]]]:
    """Return the rows of the user, where a table has those of several people."""
    if "profilename" not in words:
        return rows
    at = words.index("profilename")
    people = sorted({row[at] for _, row in rows if len(row) > at})
    if choices.profile not in people and len(people) > 1:
        raise ProfileError(name, people)
    return [(line, row) for line, row in rows if len(people) < 2 or (len(row) > at and row[at] == choices.profile)]


class _Table:
    """Reads rows of a table, once its columns are known."""

    def __init__(
        self,
        service: TableService,
        words: list[str],
        roles: dict[str, int],
        header: list[str],
        name: str,
        choices: ImportChoices,
    ) -> None:
        self._service, self._words, self._roles, self._name, self._choices = service, words, roles, name, choices
        self._fields = len(header)
        rating = roles.get("rating")
        is_count = rating is not None and words[rating] in COUNTS
        self._scale = -1.0 if is_count else choices.scale or service.scale

    def line(self, number: int, row: list[str], time: _Time) -> ExportLine:
        """Read one row."""
        text = ", ".join(row)[:80]
        if len(row) != self._fields:
            wrong = Sentence("{n:field}, but the first line has {first}", n=len(row), first=self._fields)
            return ExportLine(number, text, wrong=wrong)
        cells = dict(zip(self._words, row, strict=True))
        title, year = _cell(row, self._roles, "title"), _cell(row, self._roles, "year")
        vague: tuple[str, ...] = ()
        if self._service.name == "Last.fm":
            spellings, vague = song_spellings(cells["artist"], cells["track"])
        else:
            title = rename_title(self._service.name, title)
            spellings = tuple(title_spellings(title, year)) if title else ()
        ours, other = _cell(row, self._roles, "item"), _cell(row, self._roles, "other")
        value = _cell(row, self._roles, "rating")
        return ExportLine(
            number,
            text,
            spellings,
            time[0],
            "" if self._service.name == "Goodreads" and value == "0" else value,
            time[1],
            year,
            ours or other,
            bool(ours) or self._choices.ids,
            vague,
            left_out_of(self._service.name, cells, self._name),
            self._scale,
        )


def _cell(row: list[str], roles: dict[str, int], role: str) -> str:
    return row[roles[role]] if role in roles and row else ""


def _roles(words: list[str], service: TableService, header: list[str], name: str) -> dict[str, int]:
    roles: dict[str, int] = {}
    for role, usual in service.roles.items():
        position = next((words.index(word) for word in usual if word in words), None)
        if position is not None and position not in roles.values():
            roles[role] = position
    if service is PLAIN and not roles.keys() & {"item", "title", "other"}:
        raise DataError(
            Sentence("'{name}': no column of items among {columns}.", name=name, columns=", ".join(header[:20])),
            "Call one 'title' in the first line, or 'item' if it holds the ids of this catalogue.",
        )
    return roles


def _times(column: list[str], choices: ImportChoices) -> list[_Time]:
    """Return each row's time, if it has one, and what is wrong with it, if it cannot be read."""
    filled = [text for text in column if text]
    read = read_dates(filled, choices.dates)
    like = next((text for text, when in zip(filled, read, strict=True) if when is not None), "")
    alone = "the timestamp '{text}' cannot be read as a time since 1970"
    beside = "the timestamp '{text}' cannot be read as a time since 1970, like '{like}'"
    seconds = iter(read)
    times: list[_Time] = []
    for text in column:
        when = next(seconds) if text else None
        is_wrong = text and when is None
        times.append((when, Sentence(beside if like else alone, text=text[:40], like=like) if is_wrong else ""))
    return times


def _some_good(lines: list[ExportLine], name: str) -> list[ExportLine]:
    """Return the lines of a file, unless not one of them can be read."""
    if lines and all(line.wrong for line in lines):
        raise DataError(
            Sentence("'{name}', line {line}: {why}.", name=name, line=lines[0].number, why=lines[0].wrong),
            "No row of the file can be read.",
        )
    return lines


# --- JSON and HTML ----------------------------------------------------------------------------------------------------


def _acts(acts: list[Act], name: str, choices: ImportChoices) -> list[ExportLine]:
    if len(acts) > MOST_LINES:
        raise _too_long(name)
    times = _times([act.when for act in acts], choices)
    lines = []
    for place, (act, (when, wrong)) in enumerate(zip(acts, times, strict=True), start=1):
        spellings, vague = (
            song_spellings(act.artist, act.title) if act.artist else (tuple(title_spellings(act.title, act.year)), ())
        )
        shown = f"{act.artist}: {act.title}" if act.artist else act.title
        lines.append(
            ExportLine(
                place,
                shown[:80],
                spellings if act.title or act.artist else (),
                when,
                act.rating,
                wrong,
                act.year,
                act.item,
                act.is_ours or choices.ids,
                vague,
                act.left_out,
                choices.scale or act.scale,
            )
        )
    return _some_good(lines, name)


# --- archives ---------------------------------------------------------------------------------------------------------


def _archive(content: bytes, name: str, choices: ImportChoices) -> list[ExportLine]:
    found: list[ExportLine] = []
    known = 0
    for inside, text in _unpack(content, name):
        if text[:4] == ARCHIVE:
            continue  # whatever it is called: each would unpack to as much again
        try:
            lines = read_lines(text, inside, choices)
        except (TooLongError, DateOrderError, ProfileError):
            raise
        except DataError:
            continue  # an archive holds much that is no history
        known += 1
        if len(found) + len(lines) > MOST_LINES:
            raise _too_long(name)
        found += [
            replace(line, wrong=Sentence("{why} (in {inside})", why=line.wrong, inside=inside)) if line.wrong else line
            for line in lines
        ]
    if not known:
        raise DataError(
            Sentence("'{name}' has no file of a known kind.", name=name),
            "Known are tables, JSON and HTML of usual services.",
        )
    return found


def _unpack(content: bytes, name: str) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of each file that may be a history; an archive that is damaged is a DataError."""
    left = MOST_BYTES
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for entry in archive.infolist()[:MOST_FILES]:
                if entry.is_dir() or not entry.filename.lower().endswith(KINDS[:2] + KINDS[3:]):
                    continue
                with archive.open(entry) as file:
                    inside = file.read(left + 1)  # the size that the archive claims is not trusted
                left -= len(inside)
                if left < 0:
                    raise DataError(
                        Sentence(
                            "'{name}' unpacks to more than {megabytes} MB.", name=name, megabytes=MOST_BYTES // 2**20
                        ),
                        "Give its files one by one.",
                    )
                yield entry.filename, inside
    except BAD_ARCHIVE as error:
        raise DataError(
            Sentence("'{name}' is an archive that cannot be read: {error}.", name=name, error=error),
            "Unpack it and give its files.",
        ) from None
