"""Sums of outer products over histories: what linear methods need of a cohort, in whole numbers of the ring."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True, error_model="numpy")
def client_sums(ptr, items, weights, table, sums):
    """sums[c] = sum of weights[i] table[i] over the history of client c, item by item."""
    for c in range(len(sums)):
        sums[c] = 0
        for e in range(ptr[c], ptr[c + 1]):
            item = items[e]
            for d in range(table.shape[1]):
                sums[c, d] += weights[item] * table[item, d]


@njit(cache=True, nogil=True, error_model="numpy")
def normal_rows(users, shares, scales, scale, rows):
    """rows[c] = the upper triangle of s p p' times scales[0], then s p times scales[1], rounded to the grid.

    p = clients[c] [F], s = shares[c]; rows [C, F (F + 1) / 2 + F].
    """
    unit = np.float32(1.0) / scale
    for c in range(len(users)):
        at = 0
        for a in range(users.shape[1]):
            first = users[c, a] * shares[c]
            for b in range(a, users.shape[1]):
                rows[c, at] = np.rint(first * users[c, b] * scales[0] * scale) * unit
                at += 1
        for a in range(users.shape[1]):
            rows[c, at] = np.rint(users[c, a] * shares[c] * scales[1] * scale) * unit
            at += 1
