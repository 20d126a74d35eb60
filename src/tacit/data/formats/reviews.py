"""Ratings and reviews: Amazon, LibraryThing, Yahoo! Movies, and the linked datasets of SisInf Lab."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from tacit.data.archive import Member, find_member, require_member
from tacit.data.dataset import Tables
from tacit.data.formats.lines import columns
from tacit.errors import DataError

_PAIR = {"user": (0, pl.String), "item": (1, pl.String), "rating": (2, pl.Float32)}
_NAMES = {"user": "column 1", "item": "column 2", "rating": "column 3"}


def amazon(folder: Path, name: str) -> Tables:
    """Read a 'ratings only' file of 2014: user, product, rating, unix time; comma separated, no header."""
    log = columns(require_member(folder, name), {**_PAIR, "timestamp": (3, pl.Int64)}, 4, separator=",")
    return Tables(log, columns={**_NAMES, "timestamp": "column 4"})


def librarything(folder: Path) -> Tables:
    """Read LibraryThing: reviews.txt or reviews.json (one Python dict per line), or UI2.txt (ratings times two)."""
    ratings = find_member(folder, "UI2.txt")
    if ratings is not None:
        kinds = {"user": pl.String, "item": pl.String, "rating": pl.Float32}
        log = pl.DataFrame(list(dict.fromkeys(_ratings(ratings))), schema=kinds, orient="row")
        return Tables(log, columns=_NAMES)
    source = find_member(folder, "reviews.txt") or require_member(folder, "reviews.json")
    log = pl.DataFrame(
        list(_reviews(source)),
        schema={"user": pl.String, "item": pl.String, "rating": pl.Float32, "timestamp": pl.Int64},
        orient="row",
    )
    names = {"user": "user", "item": "work", "rating": "stars", "timestamp": "unixtime"}
    return Tables(log, columns=names, warnings=("Reviews without stars or time are left out.",))


def _ratings(source: Member) -> Iterator[tuple[str, str, float]]:
    """Yield (user, work, stars): the file has a line for each tag, and tags may hold spaces."""
    with source.open() as handle:
        for number, raw in enumerate(handle, start=1):
            fields = raw.decode("utf-8", "replace").split(maxsplit=3)
            if not fields:
                continue
            if len(fields) < 3 or not fields[2].isdigit():
                raise DataError(f"{source}, line {number}: user, work, rating, tag expected, seen {fields}.")
            yield fields[0], fields[1], int(fields[2]) / 2


def _reviews(source: Member) -> Iterator[tuple[str, str, float, int]]:
    with source.open() as handle:
        for number, raw in enumerate(handle, start=1):
            line = raw.decode("utf-8", "replace").strip()
            start = 0 if line.startswith("{") else line.find("] = {") + 4
            if not line or (start == 3 and number == 1):  # reviews.txt begins with 'reviews = {}' or the like
                continue
            try:
                review = ast.literal_eval(line[start:])
                if all(review.get(key) is not None for key in ("user", "work", "stars", "unixtime")):
                    yield str(review["user"]), str(review["work"]), float(review["stars"]), int(review["unixtime"])
            except (ValueError, SyntaxError, AttributeError):
                raise DataError(f"{source}, line {number}: not a review: '{line[:80]}'.") from None


def sisinf_linked(folder: Path) -> Tables:
    """Read trainingset.tsv and testset.tsv (user, item, rating) as SisInf Lab's LinkedDatasets has them."""
    parts = [
        columns(require_member(folder, f"{word}set.tsv"), _PAIR, 3).with_columns(split=pl.lit(part))
        for word, part in (("training", "train"), ("test", "test"))
    ]
    return Tables(pl.concat(parts), columns=_NAMES)


def yahoo_movies(folder: Path) -> Tables:
    """Read Webscope R4: train and test files of user, movie, grade, rating from 1 to 5; tab separated."""
    if find_member(folder, "trainingset.tsv") is not None:
        return sisinf_linked(folder)
    kinds = {**_PAIR, "rating": (3, pl.Float32)}
    parts = [
        columns(require_member(folder, f"ydata-ymovies-user-movie-ratings-{part}-v1_0.txt"), kinds, 4).with_columns(
            split=pl.lit(part)
        )
        for part in ("train", "test")
    ]
    return Tables(pl.concat(parts), columns={**_NAMES, "rating": "column 4"})
