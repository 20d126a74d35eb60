"""Does a client have an item? By a bit where clients times items bits are affordable, else by binary search.

Both ways give the same answer, so what is drawn with them does not depend on which one was taken.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tacit.types import Array, Clients, offsets

MOST_BYTES = 256 * 2**20
_WORD, _SHIFT = np.uint64(63), np.uint64(6)


class OwnedItems(NamedTuple):
    """What each client has: bits [C, words], none where they would be too many, and sorted lists without repeats."""

    bits: NDArray[np.uint64]
    ptr: NDArray[np.int64]
    items: NDArray[np.int32]


def pairs_to_learn(clients: Clients, kept_out: OwnedItems) -> NDArray[np.uint32]:
    """Return (row, item) of all that a negative can be drawn beside [n, 2]: a client with every item has none."""
    can_pair = (np.diff(kept_out.ptr) < clients.n_items)[clients.rows]
    return np.column_stack([clients.rows, clients.items])[can_pair].astype(np.uint32)


def owned_items(clients: Clients, most_bytes: int = MOST_BYTES) -> OwnedItems:
    """Return what negatives of each client must not hit: its history, and what `clients.avoid` adds to it."""
    rows, items = clients.rows, clients.items
    if clients.avoid is not None:
        rows, items = _merge(clients, clients.avoid)
    first = np.ones(len(items), np.bool_)
    first[1:] = (rows[1:] != rows[:-1]) | (items[1:] != items[:-1])
    ptr, items = offsets(np.bincount(rows[first], minlength=len(clients))), items[first]
    n_words = (clients.n_items + 63) // 64
    fits = len(clients) * n_words * 8 <= most_bytes
    bits = np.zeros((len(clients), n_words) if fits else (0, 0), np.uint64)
    if fits:
        _mark(bits, ptr, items)
    return OwnedItems(bits, ptr, items)


def _merge(clients: Clients, more: Clients) -> tuple[Array, Array]:
    rows = np.concatenate([clients.rows, more.rows])
    items = np.concatenate([clients.items, more.items])
    known = items >= 0  # held-out items that left the catalogue are -1 and cannot be drawn anyway
    rows, items = rows[known], items[known]
    order = np.lexsort((items, rows))
    return rows[order], items[order]


@njit(cache=True, nogil=True, error_model="numpy")
def _mark(bits, ptr, items):
    for client in range(len(bits)):
        for e in range(ptr[client], ptr[client + 1]):
            item = np.uint64(items[e])
            bits[client, item >> _SHIFT] |= np.uint64(1) << (item & _WORD)


@njit(inline="always")
def word_of(n_words, client, item):
    """Return which word of all bits, counted through, holds a client's bit of an item: to ask for it ahead."""
    return client * n_words + (item >> _SHIFT)


@njit(inline="always")
def has(taken, client, item):
    """Return whether a client (position, unsigned) has an item (unsigned)."""
    if taken.bits.size > 0:
        return (taken.bits[client, item >> _SHIFT] >> (item & _WORD)) & np.uint64(1) != np.uint64(0)
    at, length = np.uint64(taken.ptr[client]), np.uint64(taken.ptr[client + np.uint64(1)] - taken.ptr[client])
    if length == np.uint64(0):
        return False
    while length > np.uint64(1):  # the number of steps follows from the length alone, so nothing is mispredicted
        half = length >> np.uint64(1)
        at += half if np.uint64(taken.items[at + half]) <= item else np.uint64(0)
        length -= half
    return np.uint64(taken.items[at]) == item
