"""Files that users bring along: their own tables, and what other services hand out when asked for one's data.

    tables      CSV or TSV with a column of ids or titles, and where there are, times and ratings; Letterboxd's
                exports are such tables, with Name and Year
    activity    Google Takeout, My Activity and YouTube history as JSON: a list of {title: "Watched ...", time}
    places      Google Takeout, Maps: saved places and reviews (features), visits (timelineObjects)
    archives    a ZIP of such files, as the services send them; what else is in it is left alone

Whatever the file, the outcome is the same: lines that say what a user did. Which item a line means is for the
catalogue's names to say. A line that is damaged says why, so that the others can be had without it.
"""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from tacit.data.clock import seconds_or_none
from tacit.data.columns import ROLES, normalise_column
from tacit.errors import DataError
from tacit.field.device.names import title_spellings

MOST_BYTES = 2**26  # of a file, and of all that is unpacked from one
MOST_LINES = 200_000  # of a file, and of all files of an archive
MOST_COLUMNS = 1000
MOST_PARTS = 5 * MOST_LINES  # objects and lists of a JSON file
MOST_FILES = 500  # in an archive
_DID = re.compile(r"(watched|visited|listened to|viewed|played|used|read)\s+", re.IGNORECASE)


_Time = tuple[int | None, str]  # unix seconds, and what is wrong with what stands there


@dataclass(frozen=True)
class ExportLine:
    """One thing a user did, as a file says it."""

    number: int
    text: str  # what stands there
    spellings: tuple[str, ...]  # what it may be called, the surest first; empty where nothing is named
    when: int | None
    value: str
    wrong: str = ""  # why it cannot be read, if it cannot


def read_lines(content: bytes, name: str) -> list[ExportLine]:
    """Return what a file says, whatever kind it is; a file that says nothing of the kind is a DataError."""
    if len(content) > MOST_BYTES:
        raise DataError(f"'{name}' is too large for one user's history.", "Give a smaller file.")
    if content[:4] == b"PK\x03\x04":
        return _archive(content, name)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"'{name}' is not text in UTF-8 (byte {error.start}).", "Save it as CSV in UTF-8.") from None
    if not text.strip():
        raise DataError(f"'{name}' is empty.")
    if text.lstrip()[0] not in "[{":
        return _table(text, name)
    if text.count("{") + text.count("[") > MOST_PARTS:  # before each of them takes memory
        raise _too_long(name)
    return _json(text, name)


class TooLongError(DataError):
    """A file with more rows than a user's history can have."""


def _too_long(name: str) -> TooLongError:
    return TooLongError(
        f"'{name}' has more than {MOST_LINES:,} rows, too many for one user's history.", "Give a smaller file."
    )


# --- tables -----------------------------------------------------------------------------------------------------------


def _table(text: str, name: str) -> list[ExportLine]:
    separator = max(",;\t|", key=text.partition("\n")[0].count)
    if text.partition("\n")[0].count(separator) >= MOST_COLUMNS:
        raise DataError(f"'{name}' has more than {MOST_COLUMNS:,} columns.", "Give a table with fewer.")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    rows = list[tuple[int, list[str]]]()
    try:
        for row in reader:
            if row:
                rows.append((reader.line_num, [field.strip() for field in row]))
            if len(rows) > MOST_LINES + 1:
                raise _too_long(name)
    except csv.Error as error:
        raise DataError(f"'{name}', line {reader.line_num}: {error}.", "Check the quotes there.") from None
    header = rows[0][1]
    roles = _roles(header, name)
    body = rows[1:]
    stamps = [row[roles["timestamp"]] if "timestamp" in roles and len(row) == len(header) else "" for _, row in body]
    return _some_good(
        [_row(line, row, roles, when, len(header)) for (line, row), when in zip(body, _times(stamps), strict=True)],
        name,
    )


def _row(line: int, row: list[str], roles: dict[str, int], time: _Time, fields: int) -> ExportLine:
    when, wrong = time
    if len(row) != fields:
        wrong = f"{len(row)} field{'s' if len(row) > 1 else ''}, but the first line has {fields}"
        return ExportLine(line, ", ".join(row)[:80], (), None, "", wrong)
    item, title, year, value = (
        row[roles[role]] if role in roles else "" for role in ("item", "title", "year", "rating")
    )
    spellings = (*((item,) if item else ()), *(title_spellings(title, year) if title else ()))
    return ExportLine(line, ", ".join(row)[:80], spellings, when, value, wrong)


def _roles(header: list[str], name: str) -> dict[str, int]:
    words = [normalise_column(column) for column in header]
    usual = {**ROLES, "timestamp": ("watcheddate", *ROLES["timestamp"]), "year": ("year",)}
    roles: dict[str, int] = {}
    for role in ("item", "title", "timestamp", "rating", "year"):
        position = next((words.index(word) for word in usual[role] if word in words), None)
        if position is not None and position not in roles.values():
            roles[role] = position
    if "item" not in roles and "title" not in roles:
        raise DataError(
            f"'{name}': no column of items among {', '.join(header[:20])}.",
            "Call one 'item' or 'title' in the first line.",
        )
    return roles


def _times(column: list[str]) -> list[_Time]:
    """Return each row's time, if it has one, and what is wrong with it, if it cannot be read."""
    filled = [text for text in column if text]
    read = seconds_or_none(filled)
    like = next((f", like '{text}'" for text, when in zip(filled, read, strict=True) if when is not None), "")
    seconds = iter(read)
    times: list[_Time] = []
    for text in column:
        when = next(seconds) if text else None
        is_wrong = text and when is None
        times.append(
            (when, f"the timestamp '{text[:40]}' cannot be read as a time since 1970{like}" if is_wrong else "")
        )
    return times


def _some_good(lines: list[ExportLine], name: str) -> list[ExportLine]:
    """Return the lines of a file, unless not one of them can be read."""
    if lines and all(line.wrong for line in lines):
        raise DataError(f"'{name}', line {lines[0].number}: {lines[0].wrong}.", "No row of the file can be read.")
    return lines


# --- Google Takeout ---------------------------------------------------------------------------------------------------


def _json(text: str, name: str) -> list[ExportLine]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"'{name}' is not JSON: {error}.", "Ask for the export again.") from None
    found = list(islice(_acts(content), MOST_LINES + 1))
    if len(found) > MOST_LINES:
        raise _too_long(name)
    if not found:
        raise DataError(
            f"'{name}' is JSON of an unknown kind.",
            "Known are Google Takeout's activity, YouTube history, saved places, reviews and visits.",
        )
    stamps = [when or "" for _, when, _ in found]
    acts = enumerate(zip(found, _times(stamps), strict=True), start=1)
    return _some_good(
        [
            ExportLine(place, title[:80], tuple(title_spellings(title)) if title else (), when, value, wrong)
            for place, ((title, _, value), (when, wrong)) in acts
        ],
        name,
    )


def _acts(content: Any) -> Iterator[tuple[str, str, str]]:
    """Yield (title, time, rating) of everything that a Takeout file says was done."""
    if isinstance(content, list):
        for act in content:
            if isinstance(act, dict) and isinstance(act.get("title"), str):
                yield _DID.sub("", act["title"], count=1).strip(), _text(act.get("time")), ""
    elif isinstance(content, dict) and isinstance(content.get("features"), list):
        for feature in content["features"]:
            about = _dict(feature, "properties")
            if about:
                place = _dict(about, "location")
                title = about.get("Title") or about.get("name") or place.get("name") or place.get("Business Name")
                when = about.get("date") or about.get("Published")
                yield _text(title), _text(when), _text(about.get("five_star_rating_published"))
    elif isinstance(content, dict) and isinstance(content.get("timelineObjects"), list):
        for one in content["timelineObjects"]:
            visit = _dict(one, "placeVisit")
            if visit:
                stamp = _dict(visit, "duration").get("startTimestamp")
                yield _text(_dict(visit, "location").get("name")), _text(stamp), ""


def _dict(value: Any, key: str) -> dict[str, Any]:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _text(value: Any) -> str:
    return str(value).strip() if isinstance(value, str | int | float) else ""


# --- archives ---------------------------------------------------------------------------------------------------------


def _archive(content: bytes, name: str) -> list[ExportLine]:
    found: list[ExportLine] = []
    known, left = 0, MOST_BYTES
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for entry in archive.infolist()[:MOST_FILES]:
                if entry.is_dir() or not entry.filename.lower().endswith((".csv", ".tsv", ".json")):
                    continue
                with archive.open(entry) as file:
                    inside = file.read(left + 1)  # the size that the archive claims is not trusted
                left -= len(inside)
                if left < 0:
                    raise DataError(
                        f"'{name}' unpacks to more than {MOST_BYTES // 2**20} MB.", "Give its files one by one."
                    )
                try:
                    lines = read_lines(inside, entry.filename)
                except TooLongError:
                    raise
                except DataError:
                    continue  # an archive holds much that is no history
                known += 1
                if len(found) + len(lines) > MOST_LINES:
                    raise _too_long(name)
                found += [
                    replace(line, wrong=f"{line.wrong} (in {entry.filename})") if line.wrong else line for line in lines
                ]
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        raise DataError(
            f"'{name}' is an archive that cannot be read: {error}.", "Unpack it and give its files."
        ) from None
    if not known:
        raise DataError(f"'{name}' has no file of a known kind.", "Known are CSV tables and Google Takeout's JSON.")
    return found
