"""Timestamps of any usual kind become unix seconds; units are detected, never mixed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.errors import DataError

Where = Callable[[int], str]
"""Turns a row number into words a reader can look up, e.g. 'log.csv, line 17'."""

_UNITS = ((10**11, "seconds", 1), (10**14, "milliseconds", 10**3), (10**17, "microseconds", 10**6))
_NANOSECONDS = ("nanoseconds", 10**9)
_FORMATS = (
    "%Y-%m-%dT%H:%M:%S%.fZ",
    "%Y-%m-%dT%H:%M:%S%.f%:z",
    "%Y-%m-%d %H:%M:%S%.f%:z",
    "%Y-%m-%dT%H:%M:%S%.f",
    "%Y-%m-%d %H:%M:%S%.f UTC",
    "%Y-%m-%d %H:%M:%S%.f",
    "%Y-%m-%dT%H:%M",
    "%Y-%m-%d %H:%M",
    "%a %b %d %H:%M:%S %z %Y",
    "%Y-%m-%d",
    "%Y/%m/%d",
)


DateOrder = Literal["auto", "day-first", "month-first"]
_EITHER = r"^(\d{1,2})([/.-])(\d{1,2})[/.-](\d{4})(.*)$"  # 03/04/2024, with or without a time


def to_seconds(
    column: pl.Series, where: Where, before_1970: bool = False, dates: DateOrder = "auto"
) -> NDArray[np.int64]:
    """Return unix seconds (UTC) from numbers in s, ms, us or ns, dates, or text; fractions are cut off.

    `dates` says of text such as 03/04/2024 whether the day or the month comes first, where the column does not.
    """
    if column.dtype == pl.String:
        column = _parse(column, where, dates)
    if column.dtype in (pl.Datetime, pl.Date):
        _no_holes(column, where)
        stamps = column.cast(pl.Datetime("us")).dt.epoch("us")
        seconds = stamps.to_numpy() // 10**6
        return seconds if before_1970 else _not_negative(seconds, where)
    if not column.dtype.is_numeric():
        raise DataError(f"{where(0)}: timestamps must be numbers or dates, seen type {column.dtype}.")
    _no_holes(column, where)
    values = column.to_numpy()
    if len(values) == 0:
        return np.zeros(0, np.int64)
    low = int(values.argmin())
    if values[low] < 0 and not before_1970:
        raise DataError(
            f"{where(low)}: negative timestamp {values[low]}.", "Timestamps are unix times, counted from 1970."
        )
    scale = require_one_unit(values, where)
    if values.dtype.kind == "f":
        return np.asarray(np.floor(values / scale), np.int64)
    return np.asarray(values if scale == 1 else values // scale, np.int64)


def require_one_unit(values: NDArray[Any], where: Where) -> int:
    """Return how many units of these unix times make a second; refuse them where the smallest and largest differ."""
    low, high = int(values.argmin()), int(values.argmax())
    (small, scale), (large, largest) = _unit(values[low]), _unit(values[high])
    if scale != largest:
        raise DataError(
            f"Mixed units of time: {where(low)} has {_show(values[low])} ({small}), "
            f"{where(high)} has {_show(values[high])} ({large}).",
            "Bring all timestamps to one unit (seconds, ms, us or ns).",
        )
    return scale


def _unit(value: float) -> tuple[str, int]:
    for bound, name, scale in _UNITS:
        if value < bound:
            return name, scale
    return _NANOSECONDS


def _show(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else str(value)


def _parse(column: pl.Series, where: Where, dates: DateOrder) -> pl.Series:
    """Turn text into numbers or dates, by the first format that reads the first value."""
    _no_holes(column, where)
    if len(column) == 0:
        return column.cast(pl.Int64)
    text = column.str.strip_chars()
    for kind in (pl.Int64, pl.Float64):
        numbers = text.cast(kind, strict=False)
        if numbers[0] is not None:
            return _complete(numbers, column, where)
    for pattern in _FORMATS:
        if _try(text.head(1), pattern)[0] is not None:
            return _complete(_try(text, pattern), column, where)
    if text.str.contains(_EITHER)[0]:
        return _parse_either(text, column, where, dates)
    raise DataError(
        f"{where(0)}: cannot read the timestamp '{column[0]}'.",
        "Use unix time or ISO dates such as 2012-04-03 18:00:09.",
    )


def _parse_either(text: pl.Series, column: pl.Series, where: Where, dates: DateOrder) -> pl.Series:
    """Read dates of which the day or the month comes first, as the whole column shows, or else as `dates` says."""
    first, second = (text.str.extract(_EITHER, group).cast(pl.Int64, strict=False) for group in (1, 3))
    with_dots = text.str.extract(_EITHER, 2)[0] == "."
    day, month = bool((first > 12).any()), bool((second > 12).any())
    if dates == "auto" and day == month and not with_dots:
        row = int((first != second).fill_null(False).arg_max() or 0)
        raise DataError(
            f"{where(row)}: is the first number of '{column[row]}' the day or the month? The file does not tell.",
            "Set data.dates=day-first or data.dates=month-first.",
        )
    is_day_first = dates == "day-first" or (dates == "auto" and (day or (with_dots and not month)))
    order = "${3}-${1}" if is_day_first else "${1}-${3}"
    iso = text.str.replace(_EITHER, "${4}-" + order + "${5}")
    for pattern in ("%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M"):
        if _try(iso.head(1), pattern)[0] is not None:
            return _complete(_try(iso, pattern), column, where)
    raise DataError(
        f"{where(0)}: cannot read the timestamp '{column[0]}'.", "Use ISO dates such as 2012-04-03 18:00:09."
    )


def _try(text: pl.Series, pattern: str) -> pl.Series:
    if pattern.endswith(("%Y-%m-%d", "%Y/%m/%d")):
        return text.str.to_date(pattern, strict=False)
    if pattern.endswith("Z") or "z" not in pattern:
        return text.str.to_datetime(pattern, time_unit="us", strict=False)
    return (
        text.str.to_datetime(pattern, time_unit="us", strict=False)
        .dt.convert_time_zone("UTC")
        .dt.replace_time_zone(None)
    )


def _complete(parsed: pl.Series, column: pl.Series, where: Where) -> pl.Series:
    bad = parsed.is_null()
    if bad.any():
        row = int(bad.arg_true()[0])
        raise DataError(
            f"{where(row)}: cannot read the timestamp '{column[row]}' like the first one, '{column[0]}'.",
            "Write all timestamps in one form: unix time, or ISO dates such as 2012-04-03 18:00:09.",
        )
    return parsed


def _no_holes(column: pl.Series, where: Where) -> None:
    holes = column.is_null()
    if column.dtype.is_float():
        holes = holes | column.is_nan().fill_null(True) | column.is_infinite().fill_null(True)
    if holes.any():
        row = int(holes.arg_true()[0])
        raise DataError(
            f"{where(row)}: the timestamp is missing ({int(holes.sum())} such rows).",
            "Drop these rows or the whole column.",
        )


def _not_negative(seconds: NDArray[np.int64], where: Where) -> NDArray[np.int64]:
    if len(seconds) and seconds.min() < 0:
        row = int(seconds.argmin())
        raise DataError(f"{where(row)}: the date lies before 1970 ({seconds[row]} seconds).", "Check the year.")
    return seconds
