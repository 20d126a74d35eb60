"""A log of one's own: CSV, TSV, JSON lines, Parquet, RecBole files (gzipped or zipped too), and data frames."""

from __future__ import annotations

import csv
import gzip
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import polars as pl

from tacit.data.clock import Where
from tacit.data.columns import find_columns, is_header
from tacit.data.dataset import Tables
from tacit.data.packed import first_line, read_json_lines, unzip_table
from tacit.data.row_warnings import find_rated, warn_of_spaces, warn_of_unrated
from tacit.errors import DataError

TEXT = (".csv", ".tsv", ".txt", ".dat", ".data", ".tab", ".inter", ".item", ".user", ".rating", ".ratings")
"""Endings of text files; each may be followed by .gz."""

JSON_LINES = (".jsonl", ".ndjson")
_SAMPLE = 200
_ITEM_FACTS = ("title", "category", "lat", "lon")
_COMMA = re.compile(r"-?[0-9]+,[0-9]+")


@dataclass(frozen=True)
class TextLayout:
    """How a text file is written: its separator, header and columns, found from its first lines."""

    path: Path
    separator: str  # '::' is possible
    quoted: bool
    has_header: bool
    names: tuple[str, ...]
    sample: tuple[tuple[str, ...], ...]
    encoding: str
    decimal_comma: bool = False  # 4,5 is four and a half

    def number(self, field: str) -> str:
        """Return a field as a number is usually written."""
        return field.replace(",", ".") if self.decimal_comma else field

    def rows(self, lines: Iterable[str]) -> Iterator[list[str]]:
        """Yield the fields of each row, header included, as the fast reader would see them."""
        if self.separator == "::":
            for line in lines:
                yield line.rstrip("\r\n").split("::")
        else:
            yield from csv.reader(
                lines, delimiter=self.separator, quoting=csv.QUOTE_MINIMAL if self.quoted else csv.QUOTE_NONE
            )


def suffix(path: Path) -> str:
    """Return the ending of a file without .gz, in lower case."""
    name = path.name.lower().removesuffix(".gz")
    return Path(name).suffix


def is_readable(path: Path) -> bool:
    """Return whether the ending of a file is one we read."""
    return suffix(path) in (*TEXT, *JSON_LINES, ".parquet")


def read_file(path: Path, mapping: Mapping[str, str]) -> tuple[Tables, Where]:
    """Read one file of one's own into labelled columns, and say where each row stands in it."""
    if not path.is_file():
        raise DataError(f"There is no file {path}.", "Check the path.")
    if suffix(path) == ".zip":
        with unzip_table(path, is_readable) as inside:
            return read_file(inside, mapping)
    if suffix(path) == ".parquet":
        return read_parquet([path], path, mapping)
    if suffix(path) in JSON_LINES:
        try:
            frame = read_json_lines(path)
        except (pl.exceptions.PolarsError, OSError, EOFError) as error:
            raise DataError(f"{path}: cannot be read as JSON lines ({first_line(error)}).") from None
        return from_frame(frame, mapping, path.name), lambda row: f"{path.name}, row {row + 1}"
    if suffix(path) not in TEXT:
        raise DataError(
            f"{path}: files ending in '{suffix(path)}' are not known.",
            f"Known: {', '.join((*TEXT, *JSON_LINES, '.parquet'))}; text also with .gz, and any of them in a .zip.",
        )
    layout = sniff(path, mapping)
    roles = find_columns(layout.names, mapping, path.name)
    layout = replace(layout, decimal_comma=_has_decimal_comma(layout, roles))
    frame = _read_text(layout, roles)
    first = 2 if layout.has_header else 1
    blank = (frame["user"].is_null() & frame["item"].is_null()).arg_true()
    lines = (
        np.arange(first, frame.height + first)
        if len(blank) == 0
        else np.delete(np.arange(first, frame.height + first), blank.to_numpy())
    )
    if len(blank):
        frame = frame.filter(pl.col("user").is_not_null() | pl.col("item").is_not_null())
    rated = find_rated(frame, path.name)
    kept, warnings = frame, list[str]()
    if not rated.all():
        lines, unrated, kept = lines[rated], lines[~rated], frame.filter(pl.Series(rated))
        warnings = [warn_of_unrated(len(unrated), f" (the first is line {unrated[0]})")]
    frame = kept

    def where(row: int) -> str:
        return f"{path.name}, line {lines[row]}"

    if frame.height == 0:
        raise DataError(f"{path}: there is a header but not a single row.", "It needs rows of user, item.")
    return _tables(frame, {role: layout.names[at] for role, at in roles.items()}, warnings), where


def read_parquet(files: Sequence[Path], source: Path, mapping: Mapping[str, str]) -> tuple[Tables, Where]:
    """Read the needed columns of Parquet files, row group by row group; others are never decoded.

    Folders between `source` and a file that are called `column=value` (Hive) are columns, too.
    """
    try:
        has_columns = any("=" in part for file in files for part in file.relative_to(source).parts[:-1])
        lazy = pl.scan_parquet(list(files), hive_partitioning=has_columns, glob=False)
        tables = from_frame(lazy, mapping, source.name)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(f"{source}: cannot be read as Parquet ({first_line(error)}).") from None
    return tables, lambda row: f"{source.name}, row {row + 1}"


def sniff(path: Path, mapping: Mapping[str, str]) -> TextLayout:
    """Find separator, header and column names from the first lines of a text file."""
    encoding = "utf-8-sig"  # spreadsheets begin a file with a byte order mark
    try:
        head = _head(path, encoding)
    except UnicodeDecodeError:
        encoding = "iso-8859-1"
        head = _head(path, encoding)
    if not head:
        raise DataError(f"{path}: the file is empty.", "It needs rows of user, item[, rating, timestamp].")
    separator = _separator(path, head[0])
    layout = TextLayout(path, separator, separator in ",;" or head[0].startswith('"'), True, (), (), encoding)
    try:
        rows = [tuple(row) for row in layout.rows(line + "\n" for line in head) if row]
    except csv.Error as error:
        raise DataError(f"{path}: cannot be read as a table ({error}).", "Check its quotes.") from None
    if not rows:
        raise DataError(f"{path}: there are only blank lines.", "It needs rows of user, item[, rating, timestamp].")
    first = tuple(field.strip() for field in rows[0])
    numbered = tuple(str(i + 1) for i in range(len(first)))
    by_number = bool(mapping) and all(name in numbered for name in mapping.values()) and not is_header(first)
    has_header = not by_number and (is_header(first) or any(name in first for name in mapping.values()))
    if not has_header and not by_number:
        names = _guess(first, rows)
        if names is None and not any(_is_number(field) for field in first):
            has_header = True  # words that we do not know: the caller lists them
        elif names is None:
            raise DataError(
                f"{path.name}, line 1: no header, and {len(first)} columns with unknown meaning: {rows[0]}.",
                "Say which is which, by number: data.columns={user: 1, item: 2}.",
            )
        else:
            return TextLayout(path, separator, layout.quoted, False, names, tuple(rows), encoding)
    names = first if has_header else numbered
    sample = tuple(rows[1:] if has_header else rows)
    return TextLayout(path, separator, layout.quoted, has_header, names, sample, encoding)


def _has_decimal_comma(layout: TextLayout, roles: Mapping[str, int]) -> bool:
    """Return whether ratings or coordinates are written with a comma, which then is no separator."""
    if layout.separator == ",":
        return False
    numbers = [at for role, at in roles.items() if role in ("rating", "lat", "lon")]
    fields = [row[at].strip() for row in layout.sample for at in numbers if at < len(row)]
    return any(_COMMA.fullmatch(field) for field in fields) and not any("." in field for field in fields)


def _head(path: Path, encoding: str) -> list[str]:
    try:
        with _open(path, encoding) as handle:
            return [line.rstrip("\r\n") for line in itertools.islice(handle, _SAMPLE)]
    except (OSError, EOFError) as error:
        if isinstance(error, UnicodeError):
            raise
        raise DataError(f"{path}: cannot be read ({first_line(error)}).") from None


def _open(path: Path, encoding: str) -> TextIO:
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rt", encoding=encoding, newline="")
    return path.open(encoding=encoding, newline="")


def _separator(path: Path, line: str) -> str:
    if suffix(path) in (".tsv", ".tab", ".inter", ".item", ".user"):
        return "\t"
    for separator in ("::", "\t", ";", ",", "|"):
        if separator in line:
            return separator
    return " " if " " in line.strip() else ","


def _guess(first: tuple[str, ...], rows: list[tuple[str, ...]]) -> tuple[str, ...] | None:
    """Name the columns of a file without a header: user, item[, rating][, timestamp]."""
    if not 2 <= len(first) <= 4 or not any(_is_number(field) for field in first):
        return None
    if len(first) == 2:
        return ("user", "item")
    if not _is_number(first[2]):
        return None
    stamps = all(_is_number(row[-1]) and float(row[-1]) >= 1e8 for row in rows if len(row) == len(first))
    if len(first) == 3:
        return ("user", "item", "timestamp" if stamps else "rating")
    return ("user", "item", "rating", "timestamp") if stamps else None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_id(text: str) -> bool:
    text = text.strip()
    return text.isascii() and text.isdigit() and len(text) < 19 and (text == "0" or text[0] != "0")


def _read_text(layout: TextLayout, roles: Mapping[str, int]) -> pl.DataFrame:
    """Read the needed columns fast; on any trouble read them as text, and find the line that is wrong."""
    types: dict[str, Any] = {}
    for role, at in roles.items():
        seen = [row[at] for row in layout.sample if at < len(row)]
        if role in ("user", "item"):
            types[role] = pl.Int64 if seen and all(map(_is_id, seen)) else pl.String
        elif role == "timestamp":
            whole = all(field.strip().lstrip("-").isdigit() for field in seen)
            types[role] = pl.Int64 if whole else pl.Float64 if all(map(_is_number, seen)) else pl.String
        else:
            types[role] = {"rating": pl.Float32, "lat": pl.Float64, "lon": pl.Float64}.get(role, pl.String)
    frame = _try_read(layout, roles, types)
    if frame is None and (types["user"] != pl.String or types["item"] != pl.String):
        frame = _try_read(layout, roles, {**types, "user": pl.String, "item": pl.String})
    if frame is None or any(frame[role].null_count() for role in roles if role not in (*_ITEM_FACTS, "rating")):
        _find_wrong_line(layout, roles)
    return _read_slowly(layout, roles) if frame is None else frame


def _try_read(layout: TextLayout, roles: Mapping[str, int], types: Mapping[str, Any]) -> pl.DataFrame | None:
    """Return the wanted columns, or None if a row does not fit their types or their number."""
    step = 2 if layout.separator == "::" else 1  # read with ':' as separator, '::' leaves every other column empty
    wanted = {role: f"column_{at * step + 1}" for role, at in roles.items()}
    width = len(layout.names) * step - (step - 1)
    schema: dict[str, Any] = {f"column_{i + 1}": pl.String for i in range(width)}
    schema |= {column: types[role] for role, column in wanted.items()}
    # Rows that are too long are noticed only when all columns are read; unneeded columns may hold long texts.
    chosen = None if step == 2 or len(wanted) == width else list(wanted.values())
    try:
        frame = pl.read_csv(
            layout.path,
            has_header=False,
            skip_lines=1 if layout.has_header else 0,
            separator=layout.separator[0],
            quote_char='"' if layout.quoted else None,
            columns=chosen,
            schema=schema,
            decimal_comma=layout.decimal_comma,
            encoding="utf8" if layout.encoding == "utf-8-sig" else layout.encoding,
        )
    except pl.exceptions.NoDataError:
        return pl.DataFrame(schema={role: types[role] for role in wanted})
    except (pl.exceptions.PolarsError, OSError, UnicodeError):
        return None
    return frame.select(pl.col(column).alias(role) for role, column in wanted.items())


def _read_slowly(layout: TextLayout, roles: Mapping[str, int]) -> pl.DataFrame:
    """Read every row as text: for files without a wrong line that the fast reader does not take all the same."""
    with _open(layout.path, layout.encoding) as handle:
        rows: list[list[str | None]] = [[*row] or [None] * len(layout.names) for row in layout.rows(handle)]
    rows = rows[int(layout.has_header) :]
    frame = pl.DataFrame({role: [row[at] for row in rows] for role, at in roles.items()})
    numbers = [role for role in ("lat", "lon") if role in roles]
    if "rating" in roles:
        frame = frame.with_columns(pl.col("rating").cast(pl.String).str.strip_chars().replace("", None))
    if layout.decimal_comma:
        commas = [role for role in ("rating", "lat", "lon") if role in roles]
        frame = frame.with_columns(pl.col(commas).cast(pl.String).str.replace_all(",", ".", literal=True))
    return frame.cast(pl.String).with_columns(pl.col(numbers).cast(pl.Float64, strict=False))


def _find_wrong_line(layout: TextLayout, roles: Mapping[str, int]) -> None:
    """Read the file row by row and raise an error that names the first row that cannot be read."""
    numeric = {"rating", "lat", "lon"}
    stamp = roles.get("timestamp")
    if stamp is not None and all(_is_number(row[stamp]) for row in layout.sample[:1] if stamp < len(row)):
        numeric.add("timestamp")
    try:
        with _open(layout.path, layout.encoding) as handle:
            line = 0
            for number, row in enumerate(layout.rows(handle)):
                line = number + 1
                if (number == 0 and layout.has_header) or not row:
                    continue
                _check_row(layout, roles, numeric, row, line)
    except UnicodeDecodeError as error:
        raise DataError(f"{layout.path.name}, after line {line}: not UTF-8 text ({error.reason}).") from None
    except csv.Error as error:
        raise DataError(f"{layout.path.name}, line {line + 1}: {error}.") from None


def _check_row(layout: TextLayout, roles: Mapping[str, int], numeric: set[str], row: list[str], line: int) -> None:
    where = f"{layout.path.name}, line {line}"
    if len(row) != len(layout.names):
        raise DataError(
            f"{where}: {len(layout.names)} columns expected, {len(row)} seen: {row[:8]}.", "Correct this row."
        )
    for role, at in roles.items():
        field = layout.number(row[at].strip()) if role in numeric else row[at].strip()
        if role in ("user", "item") and not field:
            raise DataError(f"{where}: the {role} is missing in {row[:8]}.", "Correct or remove this row.")
        if role == "rating" and not field:
            continue  # the row is left out, and a warning says so
        if role in numeric and role not in _ITEM_FACTS and not (_is_number(field) and np.isfinite(float(field))):
            raise DataError(f"{where}: cannot read the {role} '{row[at]}' as a number.", "Correct or remove this row.")
        if role in numeric and role in _ITEM_FACTS and field and not _is_number(field):
            raise DataError(f"{where}: cannot read the {role} '{row[at]}' as a number.", "Correct or remove this row.")


def from_frame(frame: Any, mapping: Mapping[str, str], name: str = "the frame") -> Tables:
    """Take a pandas or polars frame as labelled columns; of a lazy one only the needed columns are read."""
    is_lazy = isinstance(frame, pl.LazyFrame)
    names = [str(column) for column in (frame.collect_schema().names() if is_lazy else frame.columns)]
    roles = find_columns(names, mapping, name)
    if isinstance(frame, pl.DataFrame | pl.LazyFrame):
        table = frame.lazy().select(pl.col(names[at]).alias(role) for role, at in roles.items()).collect()
    else:
        table = pl.DataFrame([_from_pandas(frame.iloc[:, at], role) for role, at in roles.items()])
    if table.height == 0:
        raise DataError(f"{name}: there are columns but not a single row.", "It needs rows of user, item.")
    rated, warnings = find_rated(table, name), list[str]()
    if not rated.all():
        warnings = [warn_of_unrated(int((~rated).sum()))]
        table = table.filter(pl.Series(rated))
    return _tables(table, {role: names[at] for role, at in roles.items()}, warnings)


def is_frame(source: object) -> bool:
    """Return whether this is a polars or pandas frame, without importing pandas."""
    kind = type(source)
    return isinstance(source, pl.DataFrame | pl.LazyFrame) or (
        kind.__name__ == "DataFrame" and kind.__module__.split(".")[0] == "pandas"
    )


def _from_pandas(column: Any, role: str) -> pl.Series:
    if getattr(column.dtype, "tz", None) is not None:
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    is_missing, values = column.isna().to_numpy(), column.to_numpy()
    if values.dtype.kind in "biufM":
        known = values.astype("datetime64[us]") if values.dtype.kind == "M" else values
        return pl.Series(role, known, nan_to_null=role == "rating")  # NaN is how pandas writes what is missing
    whole = all(isinstance(value, int | np.integer) for value in values[:_SAMPLE])
    clean = [
        None if missing else (value if whole else str(value))
        for value, missing in zip(values.tolist(), is_missing.tolist(), strict=True)
    ]
    return pl.Series(role, clean, dtype=pl.Int64 if whole else pl.String, strict=False)


def _tables(frame: pl.DataFrame, columns: dict[str, str], warnings: Sequence[str] = ()) -> Tables:
    """Part the columns into the log and what they say about items."""
    facts = [role for role in _ITEM_FACTS if role in frame.columns]
    items = None
    if facts:
        text = [role for role in facts if frame.schema[role] == pl.String]
        numbers = [role for role in ("lat", "lon") if role in facts and role not in text]
        rest = [pl.col(role).cast(pl.String) for role in facts if role not in text and role not in numbers]
        # min and median do not depend on the order of the rows
        known = (
            frame.lazy()
            .with_columns(rest)
            .group_by("item")
            .agg(
                *(pl.col(role).min() for role in facts if role not in numbers and role != "category"),
                *(pl.col(role).median() for role in numbers),
                *([pl.col("category").str.split("|").explode().unique().drop_nulls()] if "category" in facts else []),
            )
        )
        items = known.collect()
    return Tables(frame.drop(facts), items, columns=columns, warnings=(*warnings, *warn_of_spaces(frame)))
