"""Sums of outer products over histories: what linear methods need of a cohort, in whole numbers of the ring."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True, error_model="numpy")
def person_sums(ptr, items, weights, table, sums):
    """sums[c] = sum of weights[i] table[i] over the history of client c, item by item."""
    for c in range(len(sums)):
        sums[c] = 0
        for e in range(ptr[c], ptr[c + 1]):
            item = items[e]
            for d in range(table.shape[1]):
                sums[c, d] += weights[item] * table[item, d]


@njit(cache=True, nogil=True, error_model="numpy")
def item_rows(ptr, items, weights, people, scale, rows):
    """rows[e] = weights[i] people[c] for entry e = (c, i) of the histories, rounded to the grid."""
    unit = np.float32(1.0) / scale
    for c in range(len(people)):
        for e in range(ptr[c], ptr[c + 1]):
            weight = weights[items[e]] * scale
            for d in range(people.shape[1]):
                rows[e, d] = np.rint(weight * people[c, d]) * unit


@njit(cache=True, nogil=True, error_model="numpy")
def add_item_rows(ptr, items, weights, people, scale, kept, sums, counts):
    """Add the rows of `item_rows` that are kept to sums [n_items, D], as whole numbers, and count them."""
    for c in range(len(people)):
        for e in range(ptr[c], ptr[c + 1]):
            if not kept[e]:
                continue
            item = items[e]
            counts[item] += 1
            weight = weights[item] * scale
            for d in range(people.shape[1]):
                sums[item, d] += np.int64(np.rint(weight * people[c, d]))
