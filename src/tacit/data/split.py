"""The split: what a method may learn from, and what is held out. Only `tacit.evaluation` opens the latter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil, floor
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tacit.data.dataset import Dataset
from tacit.data.draws import ragged_bits
from tacit.data.ordering import order_by
from tacit.data.periods import (
    TEST,
    TRAIN,
    UNUSED,
    VALIDATION,
    Period,
    keep_next,
    notes_on_time,
    split_at_moment,
    split_last_session,
)
from tacit.data.split_config import SplitConfig
from tacit.errors import ConfigError, DataError
from tacit.heldout import Heldout
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Interactions, Vocabulary, offsets

_CODES = {"validation": VALIDATION, "test": TEST}


@dataclass(frozen=True)
class Split:
    """A dataset parted for one experiment. All parts hold the same users in the same order."""

    train: Clients
    validation: Heldout | None
    test: Heldout
    catalog: Catalog
    user_ids: Vocabulary
    sampling: Literal["clean", "legacy"]
    counts: Mapping[str, int]
    notes: tuple[str, ...] = ()  # what a reader of its figures should know
    cold: Mapping[str, NDArray[np.int32]] = field(default_factory=dict)  # part -> items drawn to have no training row


def split(dataset: Dataset, config: SplitConfig, key: Key) -> Split:
    """Part each user's rows into train, validation and test."""
    if not isinstance(dataset, Dataset):
        raise DataError(f"A dataset is split, not a {type(dataset).__name__}.", "Load it first: tacit.load(...).")
    parts, notes = assign(dataset, config, key), tuple[str, ...]()
    cold = draw_cold_items(dataset.n_items, config, key)
    for part, items in cold.items():
        parts = np.where(np.isin(dataset.interactions.items, items) & (parts != UNUSED), _CODES[part], parts)
    if config.kind == "global-time" and config.new_users == "leave-out":
        log = dataset.interactions
        has_history = np.bincount(log.users[parts == TRAIN], minlength=len(log.user_ids)) > 0
        is_new = (parts != TRAIN) & (parts != UNUSED) & ~has_history[log.users]
        if is_new.any():
            parts = np.where(is_new, UNUSED, parts)
            n_new = len(np.unique(log.users[is_new]))
            notes = (f"{n_new:,} users ({int(is_new.sum()):,} rows) are new after the moment and were not tested.",)
    if not (parts == TEST).any():
        longest = int(np.bincount(dataset.interactions.users).max())
        raise DataError(
            f"No user in '{dataset.name}' has enough rows to hold one out: the longest history has {longest} rows, "
            f"split.kind is {config.kind} with test={config.test:g}.",
            "Raise split.test, or take split.kind=leave-last-out.",
        )
    if not (parts == TRAIN).any():
        raise DataError(f"The split of '{dataset.name}' leaves nothing to train on.", "Lower split.test.")
    found = _build(dataset, parts, config)
    return replace(found, notes=(*dataset.warnings, *notes, *found.notes), cold=cold)


def draw_cold_items(n_items: int, config: SplitConfig, key: Key) -> dict[str, NDArray[np.int32]]:
    """Return the items whose rows are all held out, by the part that holds them; those of the test come first.

    They are drawn by the key alone, so a search on the validation part does not change which items the test has.
    """
    n_cold = int(Fraction(repr(config.cold_items)) * n_items)
    if config.cold_items and not n_cold:
        raise ConfigError(
            f"split.cold_items={config.cold_items:g} of {n_items} items is less than one item.", "Raise it."
        )
    if not n_cold:
        return {}
    order = np.argsort(key.child("cold items").bits(np.arange(n_items), 1)[:, 0], kind="stable").astype(np.int32)
    wanted = ("test", "validation") if config.validation else ("test",)
    return {part: np.sort(order[at * n_cold : (at + 1) * n_cold]) for at, part in enumerate(wanted)}


def assign(dataset: Dataset, config: SplitConfig, key: Key) -> NDArray[np.int8]:
    """Return 0 (train), 1 (validation), 2 (test) or 3 (not used) for each row of the log."""
    if config.kind == "given":
        return _given_split(dataset, config)
    log = dataset.interactions
    if config.together:
        pairs = log.users.astype(np.int64) * len(log.item_ids) + log.items
        _, first, of_row = np.unique(pairs, return_index=True, return_inverse=True)
        once = replace(dataset, interactions=log.take(first))
        of_pair: NDArray[np.int8] = assign(once, config.model_copy(update={"together": False}), key)
        return of_pair[of_row]
    n = np.bincount(log.users, minlength=len(log.user_ids))
    if config.kind == "global-time":
        period = Period(config.test, config.date, config.windows, config.window)
        parts = split_at_moment(log, period, _validation_share(config), dataset.name)
        return parts if config.targets == "all" else keep_next(log, parts, _age(log, n, config, dataset.name, key))
    rank = _age(log, n, config, dataset.name, Key(config.draw).child("folds") if config.kind == "k-fold" else key)
    if config.kind == "k-fold":
        return _fold(dataset, n, rank, config)
    if config.kind == "last-session":
        parts = split_last_session(log, rank, config.gap, _whole_validation(config))
        return parts if config.targets == "all" else keep_next(log, parts, rank)
    if config.kind == "leave-last-out":
        validation = _whole_validation(config)
        _long_enough(dataset, config.kind, n, 3 if validation else 2)
        n_test = np.ones_like(n)
        n_validation = n_test * int(validation)
    else:
        n_test = _share(config.test, n, config.rounding == "up")
        n_validation = _share(_validation_share(config), n - n_test, config.rounding == "up")
    parts = np.full(len(log), TRAIN, np.int8)
    parts[rank < (n_test + n_validation)[log.users]] = VALIDATION
    parts[rank < n_test[log.users]] = TEST
    return parts if config.targets == "all" else keep_next(log, parts, rank)


def _fold(dataset: Dataset, n: NDArray[np.int64], rank: NDArray[np.int64], config: SplitConfig) -> NDArray[np.int8]:
    """Hold out every k-th of each user's rows in random order; every user is tested in every fold."""
    if config.fold == 0:
        raise ConfigError(
            "A run tests one fold, and split.fold is 0.",
            f"Set split.fold to 1 ... {config.folds}, or use a comparison, which goes through all of them.",
        )
    _long_enough(dataset, config.kind, n, config.folds)
    first, users = config.fold - 1, dataset.interactions.users
    tested_before = np.maximum(0, -(-(rank - first) // config.folds))  # of the same user, with a smaller rank
    n_validation = _share(_validation_share(config), n - -(-(n - first) // config.folds), config.rounding == "up")
    parts = np.full(len(rank), TRAIN)
    parts[rank - tested_before < n_validation[users]] = VALIDATION
    parts[rank % config.folds == first] = TEST
    return parts


def _whole_validation(config: SplitConfig) -> bool:
    """Return whether a validation part is wanted, where it has no share."""
    if not isinstance(config.validation, bool):
        what = "single rows" if config.kind == "leave-last-out" else "whole sessions"
        raise ConfigError(
            f"split.validation={config.validation} is a share, but {config.kind} holds out {what}.",
            "Set split.validation to true or false.",
        )
    return config.validation


def _validation_share(config: SplitConfig) -> float:
    """Return the share of train that is the validation part."""
    ratio = config.test if config.validation is True else float(config.validation)
    if not 0 <= ratio < 1:
        raise ConfigError(f"split.validation must be true, false or a share below 1, seen {config.validation}.")
    return ratio


def _share(ratio: float, n: NDArray[np.int64], up: bool) -> NDArray[np.int64]:
    """ratio * n, rounded down or up, in exact decimal arithmetic, so that 0.29 of 100 is 29."""
    exact, whole = Fraction(repr(ratio)), ceil if up else floor
    sizes, at = np.unique(n, return_inverse=True)
    return np.array([whole(exact * size) for size in sizes.tolist()], np.int64)[at]


def _age(log: Interactions, n: NDArray[np.int64], config: SplitConfig, name: str, key: Key) -> NDArray[np.int64]:
    """Return each row's place among its user's rows, 0 = first to be held out."""
    if config.is_by_chance:
        by_item = order_by(log.users, log.items, *_identity(log))
        draws = np.empty(len(log), np.uint64)
        draws[by_item] = ragged_bits(key.child("split"), np.arange(len(n)), n)
        order = order_by(log.users, draws)
    else:
        times = log.times
        if times is None:
            if config.ties != "file-order":
                raise DataError(
                    f"split.kind={config.kind} needs timestamps, but '{name}' has none.",
                    "Take split.kind=random, name the column with data.columns, or set split.ties=file-order "
                    "if the rows are in order of time.",
                )
            times = np.zeros(len(log), np.int64)
        order = _newest_first(log, times, config.ties)
    rank = np.empty(len(log), np.int64)
    rank[order] = np.arange(len(log))
    del order  # arrays of the length of the log are what memory goes to
    rank -= offsets(n)[:-1][log.users]
    return rank


def _newest_first(log: Interactions, times: NDArray[np.int64], ties: str) -> NDArray[np.int64]:
    if ties == "file-order":
        return order_by(log.users, times, np.arange(len(log)), descending=(False, True, True))
    # repeated rows of one item at one time are distinguished by their value
    keys: list[Array] = [log.users, times, log.items, *([] if log.values is None else [log.values])]
    return order_by(*keys, descending=[False, True, ties == "larger-item", False][: len(keys)])


def _places(log: Interactions, ties: str) -> NDArray[np.int32] | None:
    """Return the order of rows, oldest first, where the rule for ties is not that of `Clients` itself."""
    if ties == "smaller-item" or (log.times is None and ties != "file-order"):
        return None
    order = _newest_first(log, np.zeros(len(log), np.int64) if log.times is None else log.times, ties)
    places = np.empty(len(log), np.int32)
    places[order[::-1]] = np.arange(len(log))
    return places


def _identity(log: Interactions) -> tuple[NDArray[np.float32] | NDArray[np.int64], ...]:
    """What distinguishes repeated rows of one item whatever their order in the file."""
    return tuple(column for column in (log.times, log.values) if column is not None)


def _long_enough(dataset: Dataset, kind: str, n: NDArray[np.int64], needed: int) -> None:
    short = int((n < needed).sum())
    if short:
        raise DataError(
            f"{kind} needs at least {needed} rows per user, but {short} of {len(n)} users in "
            f"'{dataset.name}' have fewer.",
            f"Set data.min_per_user={needed}.",
        )


def _given_split(dataset: Dataset, config: SplitConfig) -> NDArray[np.int8]:
    if dataset.given is None:
        raise DataError(
            f"split.kind=given, but '{dataset.name}' came without a split.",
            "Give a folder with train, validation and test files, or a column 'split'.",
        )
    if config.validation is not False and not (dataset.given == VALIDATION).any():
        raise DataError(f"split.validation is set, but the given split of '{dataset.name}' has no validation part.")
    if config.validation is False:
        return np.where(dataset.given == VALIDATION, TRAIN, dataset.given)
    return dataset.given


def _build(dataset: Dataset, parts: NDArray[np.int8], config: SplitConfig) -> Split:
    log, catalog = dataset.interactions, dataset.catalog
    items = log.items
    if config.catalog == "train":
        known = np.zeros(catalog.n_items, bool)
        known[items[parts == TRAIN]] = True
        catalog = catalog.take(np.flatnonzero(known))
        items = np.where(known, np.cumsum(known, dtype=np.int32) - np.int32(1), np.int32(-1))[items]
    log = Interactions(log.users, items, log.values, log.times, log.user_ids, catalog.item_ids)
    places = _places(log, config.ties)
    train = cohort(log, parts == TRAIN, places)
    validation = None
    if (parts == VALIDATION).any():
        validation = Heldout(cohort(log, parts == VALIDATION, places), train)
    rankable = items >= 0
    history = train  # what was seen is what is learnt from, unless there is a validation part
    if validation is not None or not rankable[parts == TRAIN].all():
        seen = (parts == TRAIN) | (parts == VALIDATION)
        history = cohort(log, seen & rankable, places)
    test = Heldout(cohort(log, parts == TEST, places), history)
    if config.negatives == "legacy":
        avoid = cohort(log, ((parts == VALIDATION) | (parts == TEST)) & rankable)
        train = replace(train, avoid=avoid)
    by_time = config.kind in ("temporal", "leave-last-out", "last-session", "global-time")
    notes = notes_on_time(log, parts, config.ties, config.kind == "global-time") if by_time else []
    return Split(train, validation, test, catalog, log.user_ids, config.negatives, _counts(log, parts), tuple(notes))


def cohort(log: Interactions, rows: NDArray[np.bool_], places: NDArray[np.int32] | None = None) -> Clients:
    """Return every user's history among some rows, sorted by item; `places` [N] of the log give their order."""
    at = np.flatnonzero(rows)
    ordered = at[order_by(log.users[at], log.items[at])]
    same = (log.users[ordered[1:]] == log.users[ordered[:-1]]) & (log.items[ordered[1:]] == log.items[ordered[:-1]])
    if same.any():
        ordered = at[order_by(log.users[at], log.items[at], *(column[at] for column in _identity(log)))]
    at = ordered
    return Clients(
        np.arange(len(log.user_ids), dtype=np.int64),
        offsets(np.bincount(log.users[at], minlength=len(log.user_ids))),
        log.items[at],
        len(log.item_ids),
        None if log.values is None else log.values[at],
        None if log.times is None else log.times[at],
        None,
        None if places is None else places[at],
    )


def _counts(log: Interactions, parts: NDArray[np.int8]) -> dict[str, int]:
    n_items = max(len(log.item_ids), 1)
    pairs = log.users.astype(np.int64)
    pairs *= n_items
    pairs += log.items
    is_heldout = (parts == VALIDATION) | (parts == TEST)
    learnt, heldout = pairs[parts == TRAIN], pairs[is_heldout & (log.items >= 0)]
    del pairs
    learnt.sort()
    heldout.sort()  # sorted, they are looked up in the order of memory
    at = np.minimum(np.searchsorted(learnt, heldout), len(learnt) - 1)
    repeated = learnt[at] == heldout
    is_new_user = np.bincount(log.users[parts == TRAIN], minlength=len(log.user_ids)) == 0
    learnt_items = np.append(np.bincount(np.maximum(log.items[parts == TRAIN], 0), minlength=n_items) > 0, False)
    tested = parts == TEST
    return {
        "users": len(log.user_ids),
        "users_tested": len(np.unique(log.users[parts == TEST])),
        "items": len(log.item_ids),
        "train": int((parts == TRAIN).sum()),
        "validation": int((parts == VALIDATION).sum()),
        "test": int((parts == TEST).sum()),
        "not_in_catalog": int((log.items < 0).sum()),
        "heldout_also_in_train": int(repeated.sum()),
        "unused": int((parts == UNUSED).sum()),
        "test_of_new_users": int((tested & is_new_user[log.users]).sum()),
        "test_of_new_items": int((tested & ~learnt_items[log.items]).sum()),
    }
