"""MovieLens as GroupLens publishes it: 100K (u.data, u.item) and 1M (`::`)."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from tacit.data.archive import Member, find_member, require_member
from tacit.data.dataset import Tables
from tacit.data.formats.lines import columns
from tacit.errors import DataError

_RATING = {"user": (0, pl.Int64), "item": (1, pl.Int64), "rating": (2, pl.Float32), "timestamp": (3, pl.Int64)}
_NAMES = {"user": "column 1", "item": "column 2", "rating": "column 3", "timestamp": "column 4"}
_GENRES: tuple[str, ...] = (
    "unknown",
    "Action",
    "Adventure",
    "Animation",
    "Children's",
    "Comedy",
    "Crime",
    "Documentary",
    "Drama",
)
_GENRES += ("Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western")


def ml_100k(folder: Path) -> Tables:
    """Read u.data and, where present, u.item."""
    log = columns(require_member(folder, "u.data"), _RATING, 4)
    movies = find_member(folder, "u.item")
    return Tables(log, None if movies is None else movies_100k(movies), columns=_NAMES)


def movies_100k(source: Member) -> pl.DataFrame:
    """Read u.item: id|title|release|video release|IMDb|19 flags of genres."""
    rows = []
    for number, line in enumerate(source.read().decode("iso-8859-1").splitlines(), start=1):
        fields = line.split("|")
        if not line.strip():
            continue
        if len(fields) != 5 + len(_GENRES) or not fields[0].isdigit():
            raise DataError(f"{source}, line {number}: not a movie of MovieLens 100K: '{line[:80]}'.")
        genres = [name for name, flag in zip(_GENRES, fields[5:], strict=True) if flag == "1"]
        rows.append((int(fields[0]), fields[1], genres))
    return pl.DataFrame(
        rows, schema={"item": pl.Int64, "title": pl.String, "category": pl.List(pl.String)}, orient="row"
    )


def ml_1m(folder: Path) -> Tables:
    """Read ratings.dat and, where present, movies.dat."""
    log = columns(require_member(folder, "ratings.dat"), _RATING, 4, separator="::")
    movies = find_member(folder, "movies.dat")
    return Tables(log, None if movies is None else movies_1m(movies), columns=_NAMES)


def movies_1m(source: Member) -> pl.DataFrame:
    """Read movies.dat: id::title::genres joined by |."""
    rows = []
    for number, line in enumerate(source.read().decode("iso-8859-1").splitlines(), start=1):
        fields = line.split("::")
        if not line.strip():
            continue
        if len(fields) != 3 or not fields[0].isdigit():
            raise DataError(f"{source}, line {number}: not a movie of MovieLens 1M: '{line[:80]}'.")
        rows.append((int(fields[0]), fields[1], fields[2]))
    return pl.DataFrame(rows, schema={"item": pl.Int64, "title": pl.String, "category": pl.String}, orient="row")


def users_100k(source: Member) -> pl.DataFrame:
    """Read u.user: id|age|gender|occupation|zip."""
    kinds = {"user": (0, pl.Int64), "age": (1, pl.Int64), "gender": (2, pl.String), "occupation": (3, pl.String)}
    return columns(source, {**kinds, "zip": (4, pl.String)}, 5, separator="|")


def users_1m(source: Member) -> pl.DataFrame:
    """Read users.dat: id::gender::age::occupation::zip."""
    kinds = {"user": (0, pl.Int64), "gender": (1, pl.String), "age": (2, pl.Int64), "occupation": (3, pl.Int64)}
    return columns(source, {**kinds, "zip": (4, pl.String)}, 5, separator="::")
