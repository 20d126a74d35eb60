"""Last.fm 2K as HetRec 2011 publishes it: tab separated with a header, line ends of either kind."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from tacit.data.archive import find_member, require_member
from tacit.data.dataset import Tables
from tacit.data.formats.lines import columns


def lastfm_2k(folder: Path, table: str) -> Tables:
    """Read the tag assignments (one row per user, artist and tag) or the listening counts."""
    names = {"user": "userID", "item": "artistID"}
    ids = {"user": (0, pl.Int64), "item": (1, pl.Int64)}
    if table == "listens":
        log = columns(require_member(folder, "user_artists.dat"), {**ids, "rating": (2, pl.Float32)}, 3, header=True)
        names["rating"] = "weight"
    else:
        dates = {"day": (3, pl.Int32), "month": (4, pl.Int32), "year": (5, pl.Int32)}
        log = columns(require_member(folder, "user_taggedartists.dat"), {**ids, **dates}, 6, header=True)
        log = log.select("user", "item", timestamp=pl.date("year", "month", "day"))
        names["timestamp"] = "day, month, year"
    artists = find_member(folder, "artists.dat")
    items = None
    if artists is not None:
        items = columns(artists, {"item": (0, pl.Int64), "title": (1, pl.String)}, 4, header=True)
    return Tables(log, items, columns=names, before_1970=True)
