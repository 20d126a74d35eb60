"""Sums over the steps of histories in order: what linear next-item models need of a cohort.

With items i_0 ... i_(n-1), oldest first, the source after step t is s_t = sum over j <= t of a^(t-j) e(i_j), and its
target sum over k > t of b^(k-t-1) e(i_k). Only steps t < n - 1 have a target.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True, error_model="numpy")
def add_step_pairs(ptr, items, shares, near, ends, far, gram, cross):
    """Add S'S to gram and S'T to cross [n, n] of clients whose items stand in order, each client times its share.

    Two items d steps apart have near[d] = a^d times ends[steps left after the later one] in S'S, and the earlier one
    has far[d] towards the later one in S'T. Pairs beyond the tables are left out.
    """
    for c in range(len(ptr) - 1):
        start, n = ptr[c], ptr[c + 1] - ptr[c]
        for k in range(n):
            later = items[start + k]
            left = shares[c] * ends[min(n - 1 - k, len(ends) - 1)]
            gram[later, later] += left
            for d in range(1, min(k + 1, len(near))):
                earlier = items[start + k - d]
                gram[earlier, later] += left * near[d]
                gram[later, earlier] += left * near[d]
                cross[earlier, later] += shares[c] * far[d]


@njit(cache=True, nogil=True, error_model="numpy")
def step_rows(ptr, items, places, shares, units, a, b, basis, targets, rows):
    """Write for each item of clients, in order, its rows of S'S P, (S'T)'P and (S'T) V side by side, times the share.

    The first is also multiplied by units[0], the others by units[1]. `places` [N]: where the rows of an item go;
    basis P and targets V [n, m]; rows [R, 3 m], or [R, 2 m] without V. Each is a recursion over the steps, forwards or
    backwards, so the cost is that of one pass.
    """
    m = basis.shape[1]
    has_targets = rows.shape[1] > 2 * m
    source, reached = np.empty(m, np.float32), np.empty(m, np.float32)
    for c in range(len(ptr) - 1):
        start, stop = ptr[c], ptr[c + 1]
        near, far = shares[c] * units[0], shares[c] * units[1]
        source[:] = 0
        reached[:] = 0
        for e in range(start, stop):  # forwards: s_t P, and what leads to this item
            row, item = rows[places[e]], items[e]
            for d in range(m):
                reached[d] = b * reached[d] + source[d]
                row[m + d] = far * reached[d]
                source[d] = a * source[d] + basis[item, d]
                row[d] = near * source[d]
        if start == stop:
            continue
        rows[places[stop - 1], :m] = 0  # nothing follows the last step
        for e in range(stop - 3, start - 1, -1):  # backwards: sum over t >= j of a^(t-j) s_t P
            row, after = rows[places[e]], rows[places[e + 1]]
            for d in range(m):
                row[d] += a * after[d]
        if not has_targets:
            continue
        source[:] = 0
        reached[:] = 0
        for e in range(stop - 1, start - 1, -1):  # backwards: where this item leads to
            row, item = rows[places[e]], items[e]
            for d in range(m):
                reached[d] = a * reached[d] + source[d]
                row[2 * m + d] = far * reached[d]
                source[d] = b * source[d] + targets[item, d]
