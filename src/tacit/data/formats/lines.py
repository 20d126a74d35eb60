"""Lines of an official file as columns, with the line named when one cannot be read."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import polars as pl

from tacit.data.archive import Member
from tacit.errors import DataError


def columns(
    source: Member,
    wanted: Mapping[str, tuple[int, Any]],
    width: int,
    separator: str = "\t",
    header: bool = False,
    encoding: str = "utf8",
    block: tuple[int, bytes] | None = None,
) -> pl.DataFrame:
    """Return some columns, name -> (position, type), of a file with `width` columns, or of one block of it.

    '::' is a separator too.
    """
    step = len(separator)
    schema: dict[str, Any] = {f"column_{i + 1}": pl.String for i in range(width * step - (step - 1))}
    names = {name: f"column_{position * step + 1}" for name, (position, _) in wanted.items()}
    schema |= {names[name]: kind for name, (_, kind) in wanted.items()}
    before, raw = (0, source.read()) if block is None else block
    if not raw.strip():
        raise DataError(f"{source}: the file is empty.", "Fetch it again.")
    try:
        frame = pl.read_csv(
            io.BytesIO(raw),
            has_header=False,
            skip_lines=int(header),
            separator=separator[0],
            quote_char=None,
            columns=list(names.values()),
            schema=schema,
            encoding=encoding,
        ).select(pl.col(column).alias(name) for name, column in names.items())
    except (pl.exceptions.PolarsError, UnicodeError) as error:
        _find_wrong_line(source, raw, before, wanted, width, separator, header)
        raise DataError(f"{source}: cannot be read ({str(error).splitlines()[0]}).") from None
    if any(frame[name].null_count() for name, (_, kind) in wanted.items() if kind != pl.String):
        _find_wrong_line(source, raw, before, wanted, width, separator, header)
        frame = frame.drop_nulls()  # blank lines only
    return frame


def _find_wrong_line(
    source: Member,
    raw: bytes,
    before: int,
    wanted: Mapping[str, tuple[int, Any]],
    width: int,
    separator: str,
    header: bool,
) -> None:
    for number, line in enumerate(raw.decode("iso-8859-1").split("\n"), start=before + 1):
        line = line.rstrip("\r")
        fields = line.split(separator)
        if (number == 1 and header) or not line.strip():
            continue
        if len(fields) < width:
            raise DataError(f"{source}, line {number}: {width} columns expected, {len(fields)} seen: '{line[:80]}'.")
        for name, (position, kind) in wanted.items():
            if kind == pl.String:
                continue
            try:
                float(fields[position])
            except ValueError:
                raise DataError(
                    f"{source}, line {number}: cannot read the {name} '{fields[position]}' as a number.",
                    "The file is damaged: fetch it again.",
                ) from None
