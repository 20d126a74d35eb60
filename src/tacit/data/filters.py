"""Filters of a log, in one fixed order: threshold, duplicates, what is known, items, users, core.

Duplicates may also go last, when the others have counted them: papers on places filter visits, then keep pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tacit.data.dataset import Dataset, Step
from tacit.data.ordering import order_by
from tacit.errors import DataError
from tacit.types import Array, Config, Interactions


class FilterConfig(Config):
    """Which rows of the log are kept."""

    min_rating: float | None = Field(None, description="keep only rows with at least this rating (binarisation)")
    duplicates: Literal["latest", "keep", "latest-after"] = Field(
        "latest",
        description="repeated rows of a user and an item: keep the latest, or all of them; latest-after: keep the "
        "latest, after the other filters have counted all",
    )
    described: bool = Field(
        False,
        description="keep only items that have statements in the graph if it is loaded, or else a category",
    )
    min_per_item: int = Field(0, ge=0, description="keep items with interactions of at least this many users")
    min_per_user: int = Field(0, ge=0, description="keep users with at least this many rows")
    core: int = Field(0, ge=0, description="k of the k-core: repeat both filters until they remove no user and no item")


def apply_filters(dataset: Dataset, config: FilterConfig) -> Dataset:
    """Return the dataset with its filters applied; users and items that lost everything leave the vocabularies."""
    log, given = dataset.interactions, dataset.given
    kept = np.arange(len(log))
    steps = [_step("as read", log)]
    for what, rows in _filters(dataset, kept, given, config):
        before, kept = len(kept), rows
        if len(kept) < before:
            steps.append(_step(what, log.take(kept)))
        if len(kept) == 0:
            raise DataError(
                f"The filters of '{dataset.name}' remove every row: {_describe_steps(steps)}.",
                "Lower the limits of the filters, or use a larger dataset.",
            )
    return compact(dataset, kept, tuple(steps))


def _filters(
    dataset: Dataset, kept: NDArray[np.int64], given: NDArray[np.int8] | None, config: FilterConfig
) -> Iterator[tuple[str, NDArray[np.int64]]]:
    log = dataset.interactions
    if config.min_rating is not None:
        if log.values is None:
            raise DataError(
                "data.min_rating needs ratings, but the data has none.", "Leave it out, or name the column of ratings."
            )
        kept = kept[log.values >= np.float32(config.min_rating)]
        yield f"min_rating={config.min_rating:g}", kept
    if config.duplicates == "latest":
        kept = latest(log, kept, given)
        yield "duplicates=latest", kept
    if config.described:
        kept = kept[_is_described(dataset)[log.items[kept]]]
        yield "described", kept
    if config.min_per_item > 1:
        kept = kept[_users_per_item(log, kept)[log.items[kept]] >= config.min_per_item]
        yield f"min_per_item={config.min_per_item}", kept
    if config.min_per_user > 1:
        kept = kept[_rows_per_user(log, kept)[log.users[kept]] >= config.min_per_user]
        yield f"min_per_user={config.min_per_user}", kept
    if config.core > 1:
        kept = _core(log, kept, config.core)
        yield f"core={config.core}", kept
    if config.duplicates == "latest-after":
        yield "duplicates=latest-after", latest(log, kept, given)


def _is_described(dataset: Dataset) -> NDArray[np.bool_]:
    """Return which items [n_items] something is known about."""
    graph, categories = dataset.catalog.graph, dataset.catalog.categories
    if graph is not None:
        is_head = np.zeros(len(graph.entities) + 1, bool)  # the last one is that of items without an entity
        is_head[graph.heads] = True
        return np.asarray(is_head[graph.item_entity])
    if categories is not None:
        return np.asarray(np.diff(categories.ptr) > 0)
    raise DataError(
        f"data.described is set, but nothing is known about the items of '{dataset.name}'.",
        "Set data.graph=true if it has a knowledge graph, or leave data.described out.",
    )


def latest(log: Interactions, rows: NDArray[np.int64], given: NDArray[np.int8] | None) -> NDArray[np.int64]:
    """Return the rows without repeats of (user, item): the latest stays, at equal times the highest rated.

    Without times the last row stays. Rows of different parts of a ready split are never merged.
    """
    pairs = _number_pairs(log, rows, given)
    pairs.sort()  # much cheaper than argsort, and most logs have no repeats
    same = pairs[1:] == pairs[:-1]
    if not same.any():
        return rows
    pairs = _number_pairs(log, rows, given)
    order = np.argsort(pairs)
    repeated = np.zeros(len(order), bool)
    repeated[1:] |= same
    repeated[:-1] |= same
    again = np.sort(order[repeated])  # only these are compared in full
    keys: list[Array] = [pairs[again]]
    if log.times is not None:
        keys.append(log.times[rows[again]])
        if log.values is not None:
            keys.append(log.values[rows[again]])
    again = again[order_by(*keys)]
    last = np.ones(len(again), bool)
    last[:-1] = pairs[again[1:]] != pairs[again[:-1]]
    keep = np.ones(len(rows), bool)
    keep[again[~last]] = False
    return rows[keep]


def _number_pairs(log: Interactions, rows: NDArray[np.int64], given: NDArray[np.int8] | None) -> NDArray[np.int64]:
    """Return one number for the user, the item and the ready part of each row, without a second array as long."""
    whole = len(rows) == len(log)  # rows ascend, so these are all of them
    pairs = (log.users if whole else log.users[rows]).astype(np.int64)
    pairs *= len(log.item_ids)
    pairs += log.items if whole else log.items[rows]
    if given is not None:
        pairs *= 3
        pairs += given if whole else given[rows]
    return pairs


def _core(log: Interactions, kept: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    while True:
        before = len(kept)
        kept = kept[_rows_per_user(log, kept)[log.users[kept]] >= k]
        kept = kept[_users_per_item(log, kept)[log.items[kept]] >= k]
        if len(kept) == before:
            return kept


def _rows_per_user(log: Interactions, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.bincount(log.users[rows], minlength=len(log.user_ids))


def _users_per_item(log: Interactions, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    pairs = log.users[rows].astype(np.int64) * len(log.item_ids) + log.items[rows]
    pairs.sort()
    distinct = np.ones(len(pairs), bool)
    distinct[1:] = pairs[1:] != pairs[:-1]
    return np.bincount(pairs[distinct] % len(log.item_ids), minlength=len(log.item_ids))


def compact(dataset: Dataset, rows: NDArray[np.int64], steps: tuple[Step, ...]) -> Dataset:
    """Return the dataset of some rows, with only the users and items that occur in them."""
    log = dataset.interactions if len(rows) == len(dataset) else dataset.interactions.take(rows)
    has_user = np.bincount(log.users, minlength=len(log.user_ids)) > 0
    has_item = np.bincount(log.items, minlength=len(log.item_ids)) > 0
    users, items = log.users, log.items
    user_ids, catalog = log.user_ids, dataset.catalog
    if not has_user.all():
        users = (np.cumsum(has_user, dtype=np.int32) - np.int32(1))[users]
        user_ids = user_ids.take(np.flatnonzero(has_user))
    if not has_item.all():
        items = (np.cumsum(has_item, dtype=np.int32) - np.int32(1))[items]
        catalog = catalog.take(np.flatnonzero(has_item))
    given = None if dataset.given is None else dataset.given[rows]
    log = Interactions(users, items, log.values, log.times, user_ids, catalog.item_ids)
    return replace(dataset, interactions=log, catalog=catalog, given=given, steps=steps)


def _step(what: str, log: Interactions) -> Step:
    users = int((np.bincount(log.users, minlength=1) > 0).sum())
    return Step(what, len(log), users, int((np.bincount(log.items, minlength=1) > 0).sum()))


def _describe_steps(steps: list[Step]) -> str:
    return " -> ".join(f"{s.what} {s.rows} rows, {s.users} users, {s.items} items" for s in steps)
