"""Dates in files of other services become unix seconds, row by row; a day and a month that may be either are asked for.

A time without a zone, or with one whose name means several, is taken as UTC: recommenders use the day only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Literal

from tacit.errors import DataError
from tacit.languages.sentences import Sentence

DateOrder = Literal["", "day-first", "month-first"]
UNITS = ((10**11, 1), (10**14, 10**3), (10**17, 10**6))  # numbers below: seconds, milliseconds, microseconds
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
LATEST = 4_102_444_800  # the year 2100
_CLOCK = r"(?:[,\s]+(?:at\s+)?(?P<h>\d{1,2}):(?P<min>\d{2})(?::(?P<s>\d{2}))?(?:\.\d+)?\s*(?P<half>[ap]\.?m\.?)?)?"
_ZONE = r"(?:\s*(?P<zone>[A-Z]{1,5}(?:[+-]\d{1,2})?|[+-]\d{2}:?\d{2}))?"
_ISO = re.compile(r"(?P<y>\d{4})[/.](?P<m>\d{1,2})[/.](?P<d>\d{1,2})" + _CLOCK + _ZONE, re.IGNORECASE)
_ENDS = r"(?P<y>\d{4}|\d{2})" + _CLOCK + _ZONE
_DOTTED = re.compile(r"(?P<d>\d{1,2})\.\s?(?P<m>\d{1,2})\.\s?" + _ENDS, re.IGNORECASE)
_EITHER = re.compile(r"(?P<one>\d{1,2})[/-](?P<two>\d{1,2})[/-]" + _ENDS, re.IGNORECASE)
_DAY_MONTH = re.compile(r"(?:[a-z]{3,9},?\s+)?(?P<d>\d{1,2})\.?\s+(?P<name>[a-z]{3,9})\.?,?\s+" + _ENDS, re.IGNORECASE)
_MONTH_DAY = re.compile(r"(?:[a-z]{3,9},?\s+)?(?P<name>[a-z]{3,9})\.?\s+(?P<d>\d{1,2}),?\s+" + _ENDS, re.IGNORECASE)
_UNIX_STYLE = re.compile(
    r"[A-Z][a-z]{2} (?P<name>[A-Z][a-z]{2}) +(?P<d>\d{1,2})(?P<rest> [\d:]{8}) (?P<o>\S+) (?P<y>\d{4})"
)


MONTH_NAMES = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)


class DateOrderError(DataError):
    """Dates that may have the day or the month first."""

    def __init__(self, example: str, one: int, two: int) -> None:
        first, second = (Sentence(MONTH_NAMES[month - 1]) for month in (one, two))
        super().__init__(
            Sentence(
                "We cannot tell whether {example} is in {first} or {second}.",
                example=example,
                first=first,
                second=second,
            ),
            "Say which comes first: --with dates=day-first or --with dates=month-first.",
        )
        self.example, self.day_first, self.month_first = example, second, first


def read_dates(column: Sequence[str], order: DateOrder = "") -> list[int | None]:
    """Return unix seconds row by row, none where there is no time; of numbers and dates mixed the rarer are none."""
    numbers = [_number(text) for text in column]
    texts = [" ".join(text.replace("\u202f", " ").split()) for text in column]
    order = order or _find_order(texts)
    dates = [None if not text else _date(text, order) for text in texts]
    if sum(one is not None for one in dates) >= sum(one is not None for one in numbers):
        return dates
    scales = [None if value is None else _scale(value) for value in numbers]
    usual = Counter(scale for scale in scales if scale is not None).most_common(1)[0][0]
    return [
        _check_range(value / scale) if value is not None and scale == usual else None
        for value, scale in zip(numbers, scales, strict=True)
    ]


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < 10**20 else None


def _scale(value: float) -> int:
    return next((scale for bound, scale in UNITS if value < bound), 10**9)


def _check_range(seconds: float) -> int | None:
    return int(seconds) if 0 <= seconds < LATEST else None


def _find_order(column: Sequence[str]) -> DateOrder:
    """Return the order that the dates of a column show; a DateOrderError if it matters and they do not show it."""
    found = [(text, int(match["one"]), int(match["two"])) for text in column if (match := _EITHER.fullmatch(text))]
    day, month = any(one > 12 for _, one, _ in found), any(two > 12 for _, _, two in found)
    either = (row for row in found if row[1] != row[2] and all(1 <= number <= 12 for number in row[1:]))
    unclear = next(either, None)
    if unclear is not None and day == month:
        text, one, two = unclear
        raise DateOrderError(text, one, two)
    return "day-first" if day else "month-first"


def _date(text: str, order: DateOrder) -> int | None:
    try:
        return _check_range(_moment(text, order).timestamp())
    except (ValueError, OverflowError, LookupError):
        return None


def _moment(text: str, order: DateOrder) -> datetime:
    """Return the moment that a text names; a ValueError if it names none."""
    if _number(text) is not None:
        raise ValueError("a number")
    try:
        found = datetime.fromisoformat(text.removesuffix(" UTC"))
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    except ValueError:
        pass
    if match := _ISO.fullmatch(text) or _DOTTED.fullmatch(text):
        return _assemble(match, int(match["m"]), int(match["d"]))
    if match := _EITHER.fullmatch(text):
        one, two = int(match["one"]), int(match["two"])
        month, day = (two, one) if order == "day-first" else (one, two)
        return _assemble(match, month, day)
    if match := _UNIX_STYLE.fullmatch(text):
        return _moment(f"{match['d']} {match['name']} {match['y']}{match['rest']} {match['o']}", order)
    if match := _DAY_MONTH.fullmatch(text) or _MONTH_DAY.fullmatch(text):
        return _assemble(match, MONTHS.index(match["name"][:3].lower()) + 1, int(match["d"]))
    raise ValueError("no date")


def _assemble(match: re.Match[str], month: int, day: int) -> datetime:
    year = int(match["y"])
    hour = int(match["h"] or 0)
    if match["half"]:
        hour = hour % 12 + (12 if match["half"][0] in "pP" else 0)
    when = datetime(year + 2000 if year < 100 else year, month, day, hour, int(match["min"] or 0), int(match["s"] or 0))
    return when.replace(tzinfo=_zone(match["zone"] or ""))


def _zone(name: str) -> timezone:
    offset = re.fullmatch(r"(?:GMT|UTC)?([+-])(\d{1,2}):?(\d{2})?", name)
    if offset is None:
        return UTC
    minutes = int(offset[2]) * 60 + int(offset[3] or 0)
    return timezone(timedelta(minutes=minutes if offset[1] == "+" else -minutes))
