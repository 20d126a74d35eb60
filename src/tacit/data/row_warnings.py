"""Rows that mean less than they seem to: without a rating among rated ones, and ids that differ by spaces only."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.errors import DataError

SPACES = "only by spaces around"


def find_rated(frame: pl.DataFrame, name: str) -> NDArray[np.bool_]:
    """Return which rows have a rating, where there is a column of ratings; else all of them."""
    if "rating" not in frame.columns or not frame["rating"].null_count():
        return np.ones(frame.height, bool)
    if frame["rating"].null_count() == frame.height:
        raise DataError(f"{name}: no row has a rating.", "Fill the column of ratings, or leave it out.")
    return frame["rating"].is_not_null().to_numpy()


def warn_of_unrated(count: int, first: str = "") -> str:
    """Warn of rows without a rating: it is not known whether they mean a like."""
    what = "rows have no rating and were" if count > 1 else "row has no rating and was"
    return f"{count:,} {what} left out{first}."


def warn_of_spaces(frame: pl.DataFrame) -> list[str]:
    """Warn of ids that differ only by spaces around them: they count as different ids."""
    found = []
    for role in ("user", "item"):
        if frame.schema[role] == pl.String:
            labels = frame[role].unique()
            alike = labels.len() - labels.str.strip_chars().n_unique()
            if alike:
                what = (
                    f"ids differ from others {SPACES} them, and count as others"
                    if alike > 1
                    else f"id differs from another {SPACES} it, and counts as another one"
                )
                found.append(f"{alike:,} {role} {what}. If the spaces mean nothing, set data.strip_ids=true.")
    return found
