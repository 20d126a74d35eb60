"""Sums over the steps of histories in order: what linear next-item models need of a cohort.

With items i_0 ... i_(n-1), oldest first, the source after step t is s_t = sum over j <= t of a^(t-j) e(i_j), and its
target sum over k > t of b^(k-t-1) e(i_k). Only steps t < n - 1 have a target.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types
from numba.extending import overload

from tacit.kernels.sampling import U64


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


def leave(out, row, d, value, scale):
    """Write a number of a row to `out` of float32, or add it to `out` of whole numbers of the ring; compiled only."""


@overload(leave, inline="always")
def _leave_by_type(out, row, d, value, scale):
    if isinstance(out.dtype, types.Float):

        def write(out, row, d, value, scale):
            out[row, d] = value

        return write

    def add(out, row, d, value, scale):
        out[row, d] += np.int64(np.rint(value * scale))

    return add


@njit(cache=True, nogil=True, error_model="numpy")
def direction_rows(ptr, items, places, shares, units, a, b, targets, scale, out):
    """For each item of clients, in order, leave its row of (S'T) V: where it leads to, times the share and units[1].

    `places` [N]: where the row of an item goes in `out` [R, m]; targets V [n, m]. A recursion over the steps,
    backwards, so the cost is that of one pass.
    """
    m, one = U64(targets.shape[1]), U64(1)
    ahead, reached = np.empty(m, np.float32), np.empty(m, np.float32)
    for c in range(U64(ptr.size - 1)):
        start, n = U64(ptr[c]), U64(ptr[c + one] - ptr[c])
        far = shares[c] * units[1]
        ahead[:] = 0
        reached[:] = 0
        for back in range(one, n + one):
            e = start + n - back
            row, item = U64(places[e]), U64(items[e])
            for d in range(m):
                r = a * reached[d] + ahead[d]
                reached[d] = r
                leave(out, row, d, far * r, scale)
                ahead[d] = b * ahead[d] + targets[item, d]


@njit(cache=True, nogil=True, error_model="numpy")
def regression_rows(ptr, items, places, shares, units, a, b, basis, scale, out):
    """For each item of clients, in order, leave its rows of S'S P and (S'T)'P side by side, times the share and units.

    `places` [N]: where the row of an item goes in `out` [R, 2 m]; basis P [n, m]. Forwards come s_t P and what leads to
    an item, backwards the sum over t >= j of a^(t-j) s_t P. Each loop has few arrays: then it becomes vectors.
    """
    m, one = U64(basis.shape[1]), U64(1)
    source, reached = np.empty(m, np.float32), np.empty(m, np.float32)
    longest = 0
    for c in range(U64(ptr.size - 1)):
        longest = max(longest, ptr[c + one] - ptr[c])
    steps = np.empty((longest, m), np.float32)
    for c in range(U64(ptr.size - 1)):
        start, n = U64(ptr[c]), U64(ptr[c + one] - ptr[c])
        near, far = shares[c] * units[0], shares[c] * units[1]
        source[:] = 0
        reached[:] = 0
        for t in range(n):
            row, item = U64(places[start + t]), U64(items[start + t])
            for d in range(m):
                r = b * reached[d] + source[d]
                reached[d] = r
                leave(out, row, m + d, far * r, scale)
            for d in range(m):
                s = a * source[d] + basis[item, d]
                source[d] = s
                steps[t, d] = near * s
        reached[:] = 0
        for back in range(one + one, n + one):  # nothing follows the last step
            t = n - back
            row = U64(places[start + t])
            for d in range(m):
                r = a * reached[d] + steps[t, d]
                reached[d] = r
                leave(out, row, d, r, scale)
