"""Check-ins: Foursquare TSMC2014 (one city) and TIST2015 (the world), Gowalla (the world)."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from tacit.data.archive import Member, require_member
from tacit.data.dataset import Tables
from tacit.data.formats.lines import columns
from tacit.errors import DataError

NYC = (40.4774, 40.9176, -74.2591, -73.7004)
"""South, north, west and east of New York City, in degrees."""

_UTC = "%a %b %d %H:%M:%S %z %Y"


def tsmc2014(source: Member) -> Tables:
    """Read a city of TSMC2014: user, venue, category id, category, lat, lon, offset, UTC time; ISO-8859-1."""
    kinds = {"user": (0, pl.Int64), "item": (1, pl.String), "category": (3, pl.String)}
    frame = columns(
        source,
        {**kinds, "lat": (4, pl.Float64), "lon": (5, pl.Float64), "timestamp": (7, pl.String)},
        8,
        encoding="iso-8859-1",
    )
    return _with_venues(_parse_times(frame, source), {"user": "column 1", "item": "column 2", "timestamp": "column 8"})


def tist2015(folder: Path, country: str) -> Tables:
    """Read one country of TIST2015: its venues from the POI file, then their check-ins, block by block."""
    venues = require_member(folder, "dataset_TIST2015_POIs.txt")
    kinds = {"item": (0, pl.String), "lat": (1, pl.Float64), "lon": (2, pl.Float64), "category": (3, pl.String)}
    blocks = [
        columns(venues, {**kinds, "country": (4, pl.String)}, 5, block=block).filter(
            pl.col("country").str.strip_chars() == country
        )
        for block in venues.blocks()
    ]
    items = pl.concat(blocks).drop("country")
    if items.height == 0:
        raise DataError(f"{venues}: no venue lies in the country '{country}'.")
    checkins = require_member(folder, "dataset_TIST2015_Checkins.txt")
    wanted = {"user": (0, pl.Int64), "item": (1, pl.String), "timestamp": (2, pl.String)}
    logs = [
        _parse_times(columns(checkins, wanted, 4, block=block).join(items, on="item", how="semi"), checkins)
        for block in checkins.blocks()
    ]
    names = {"user": "column 1", "item": "column 2", "timestamp": "column 3"}
    return Tables(pl.concat(logs), items, columns=names)


def gowalla(folder: Path, box: tuple[float, float, float, float] = NYC) -> Tables:
    """Read Gowalla's check-ins inside a box: user, ISO time, lat, lon, location."""
    source = require_member(folder, "loc-gowalla_totalCheckins.txt")
    south, north, west, east = box
    kinds = {"user": (0, pl.Int64), "timestamp": (1, pl.String), "lat": (2, pl.Float64), "lon": (3, pl.Float64)}
    logs = [
        columns(source, {**kinds, "item": (4, pl.Int64)}, 5, block=block).filter(
            pl.col("lat").is_between(south, north) & pl.col("lon").is_between(west, east)
        )
        for block in source.blocks()
    ]
    names = {"user": "column 1", "timestamp": "column 2", "item": "column 5"}
    return _with_venues(pl.concat(logs), names)


def _parse_times(frame: pl.DataFrame, source: Member) -> pl.DataFrame:
    """Read times like 'Tue Apr 03 18:00:09 +0000 2012'."""
    times = frame["timestamp"].str.strip_chars().str.to_datetime(_UTC, time_unit="us", strict=False)
    if times.null_count():
        row = int(times.is_null().arg_true()[0])
        raise DataError(f"{source}: cannot read the time '{frame['timestamp'][row]}' of a check-in.")
    return frame.with_columns(timestamp=times.dt.epoch("s"))


def _with_venues(frame: pl.DataFrame, names: dict[str, str]) -> Tables:
    facts = [name for name in ("category", "lat", "lon") if name in frame.columns]
    items = frame.group_by("item").agg(
        *(pl.col(name).median() if name in ("lat", "lon") else pl.col(name).min() for name in facts)
    )
    return Tables(frame.drop(facts), items, columns=names)
