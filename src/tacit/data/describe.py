"""describe: what one wants to know of a dataset before using it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from tacit.data.dataset import PARTS, Dataset


def describe(dataset: Dataset) -> dict[str, Any]:
    """Return counts, sizes of histories, time span, what the columns were taken for, and what to watch out for."""
    log, catalog = dataset.interactions, dataset.catalog
    per_user = np.bincount(log.users, minlength=dataset.n_users)
    per_item = np.bincount(log.items, minlength=dataset.n_items)
    cells = dataset.n_users * dataset.n_items
    about: dict[str, Any] = {
        "name": dataset.name,
        "origin": dataset.origin,
        "users": dataset.n_users,
        "items": dataset.n_items,
        "interactions": len(dataset),
        "density": len(dataset) / cells,
        "per_person": _spread(per_user),
        "per_item": _spread(per_item),
        "ratings": None if log.values is None else [float(log.values.min()), float(log.values.max())],
        "time_span": None if log.times is None else [_day(int(log.times.min())), _day(int(log.times.max()))],
        "columns": dict(dataset.columns),
        "titles": catalog.titles is not None,
        "categories": None if catalog.categories is None else len(catalog.categories.names),
        "coordinates": catalog.coordinates is not None,
        "graph": None if catalog.graph is None else len(catalog.graph),
        "vectors": None if catalog.vectors is None else catalog.vectors.shape[1],
        "given_split": None,
        "steps": [{"what": s.what, "rows": s.rows, "users": s.users, "items": s.items} for s in dataset.steps],
    }
    if dataset.given is not None:
        sizes = np.bincount(dataset.given, minlength=len(PARTS))
        about["given_split"] = {part: int(size) for part, size in zip(PARTS, sizes, strict=True)}
    about["warnings"] = list(dataset.warnings) + _worries(dataset, per_user)
    return about


def describe_in_words(about: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what `describe` found as rows for users: (what, how much)."""
    split, times, ratings = about["given_split"], about["time_span"], about["ratings"]
    known = [
        "titles" if about["titles"] else "",
        f"{about['categories']:,} categories" if about["categories"] else "",
        "coordinates" if about["coordinates"] else "",
        f"a graph of {about['graph']:,} statements" if about["graph"] else "",
    ]
    steps = [f"{s['what']}: {s['rows']:,} rows, {s['users']:,} users, {s['items']:,} items" for s in about["steps"]]
    rows = [
        ("where it is from", about["origin"]),
        ("users", f"{about['users']:,}"),
        ("items", f"{about['items']:,}"),
        ("interactions", f"{about['interactions']:,}, {100 * about['density']:.3g} % of all pairs"),
        ("per user", _spread_in_words(about["per_person"])),
        ("per item", _spread_in_words(about["per_item"])),
        ("ratings", "none" if ratings is None else f"{ratings[0]:g} to {ratings[1]:g}"),
        ("times", "none" if times is None else f"{times[0]} to {times[1]}"),
        ("columns", "\n".join(f"{role}: {column}" for role, column in about["columns"].items())),
        ("known of items", ", ".join(filter(None, known)) or "their ids only"),
        ("its own split", "" if split is None else ", ".join(f"{part} {size:,}" for part, size in split.items())),
        ("steps", "\n".join(steps)),
        ("watch out", "\n".join(about["warnings"])),
    ]
    return [(what, text) for what, text in rows if text]


def _spread_in_words(spread: Mapping[str, float]) -> str:
    return f"{spread['min']:,} to {spread['max']:,}, median {spread['median']:,g}, mean {spread['mean']:,.1f}"


def _spread(counts: np.ndarray[Any, np.dtype[np.int64]]) -> dict[str, float]:
    return {
        "min": int(counts.min()),
        "median": float(np.median(counts)),
        "mean": float(counts.mean()),
        "max": int(counts.max()),
    }


def _day(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")


def _worries(dataset: Dataset, per_user: np.ndarray[Any, np.dtype[np.int64]]) -> list[str]:
    log, worries = dataset.interactions, []
    lonely = int((per_user < 2).sum())
    if lonely:
        worries.append(f"{lonely} of {dataset.n_users} users have a single row: nothing of theirs can be held out.")
    if log.times is None:
        worries.append(
            "No timestamps: temporal splits and leave-last-out need them. If a column has times, name it: "
            "--set 'data.columns.timestamp=NAME'."
        )
    else:
        if len(np.unique(log.times[:1000])) == 1 and len(log) > 1:
            worries.append("The first timestamps are all equal: is this column the time?")
        if int((log.times < 0).sum()):
            worries.append(f"{int((log.times < 0).sum())} rows are dated before 1970.")
    if dataset.n_users > 1 and dataset.n_items == 1:
        worries.append("There is a single item: are the columns taken for the right things?")
    pairs = log.users.astype(np.int64) * dataset.n_items + log.items
    pairs.sort()  # np.unique hashes, which takes a hundred times as long on twenty million rows
    repeats = int(np.count_nonzero(pairs[1:] == pairs[:-1]))
    if repeats:
        worries.append(f"{repeats} rows repeat a pair of user and item.")
    return worries
