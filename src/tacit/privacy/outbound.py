"""The way out: an Update becomes Outgoing by passing its stages, and in no other way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tacit.random import Key
from tacit.updates import Outgoing, Release, Ring, Update

ID_BYTES = 4


class Stage(Protocol):
    """One step on the way out."""

    @property
    def reveals(self) -> str:
        """What the reader of what is sent learns."""
        ...

    def on_device(self, update: Update, key: Key) -> Update:
        """Return what remains of the update after this stage."""
        ...


def seal(update: Update, stages: Sequence[Stage], ring: Ring, key: Key) -> Outgoing:
    """Pass an update through its stages and write it in whole numbers; what the ring cannot hold is withheld."""
    for number, stage in enumerate(stages):
        update = stage.on_device(update, key.child(number))
    fit = ring.holds(_largest(update))
    withheld = update.clients[~fit]
    if len(withheld):
        update = update.take(np.flatnonzero(fit))
    positives = np.zeros(len(update.clients), np.int64)
    negatives = np.zeros(len(update.clients), np.int64)
    size = np.zeros(len(update.clients), np.int64)
    tables = {}
    for name, rows in update.tables.items():
        n_rows = np.diff(rows.ptr)
        owner = np.repeat(np.arange(len(n_rows)), n_rows)
        marked = np.bincount(owner, weights=update.sensitive[name], minlength=len(n_rows)).astype(np.int64)
        positives += marked
        negatives += n_rows - marked
        size += n_rows * row_bytes(rows.values.shape[1], ring)
        tables[name] = (rows.ptr, rows.ids, ring.encode(rows.values))
    return Outgoing(update.clients, tables, Release(positives, negatives, size), update.sensitive, withheld)


def _largest(update: Update) -> NDArray[np.float64]:
    """Return the largest number in what each client would send, NaN where one is none."""
    largest = np.zeros(len(update.clients))
    for rows in update.tables.values():
        n_rows = np.diff(rows.ptr)
        there = n_rows > 0
        if there.any():
            each = np.abs(rows.values).max(axis=1)
            largest[there] = np.maximum(largest[there], np.maximum.reduceat(each, rows.ptr[:-1][there]))
    return largest


def row_bytes(width: int, ring: Ring) -> int:
    """Return how many bytes a row takes on the wire: its id and its numbers."""
    return ID_BYTES + width * ring.bits // 8
