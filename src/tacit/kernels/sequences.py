"""Sums over the steps of histories in order: what linear next-item models need of a cohort.

With items i_0 ... i_(n-1), oldest first, the source after step t is s_t = sum over j <= t of a^(t-j) e(i_j), and its
target sum over k > t of b^(k-t-1) e(i_k). Only steps t < n - 1 have a target.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tacit.kernels.llvm.recursions import make_backward_recursion, make_recursion
from tacit.kernels.sampling import U64

COLUMNS = 16  # of the rows at a time: what they add to stays in the second-level cache up to some thousand items
FEW = 4  # of those that are left


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


def _tile(width):
    """Make the two kernels below for `width` columns from `column` on."""
    forwards, backwards, back = (
        make_recursion(width, True),
        make_recursion(width, False),
        make_backward_recursion(width),
    )

    @njit(nogil=True)
    def find(ptr, items, places, shares, units, a, b, targets, scale, out, column):
        for c in range(U64(ptr.size - 1)):
            start, n = U64(ptr[c]), U64(ptr[c + U64(1)] - ptr[c])
            steps = (a, b, shares[c] * units[1], np.float32(0))
            backwards(items, places, start, n, steps, targets, column, scale, out, column, targets)

    @njit(nogil=True)
    def regress(ptr, items, places, shares, units, a, b, basis, scale, out, column):
        longest = 0
        for c in range(U64(ptr.size - 1)):
            longest = max(longest, ptr[c + U64(1)] - ptr[c])
        kept = np.empty((longest, width), np.float32)
        for c in range(U64(ptr.size - 1)):
            start, n = U64(ptr[c]), U64(ptr[c + U64(1)] - ptr[c])
            if n > U64(0):
                steps = (b, a, shares[c] * units[1], shares[c] * units[0])
                to = U64(basis.shape[1]) + column
                forwards(items, places, start, n, steps, basis, column, scale, out, to, kept)
                back(places, start, n, a, kept, scale, out, column)

    return find, regress


_find, _regress = _tile(COLUMNS)
_find_few, _regress_few = _tile(FEW)
_find_one, _regress_one = _tile(1)


@njit(cache=True, nogil=True, error_model="numpy")
def direction_rows(ptr, items, places, shares, units, a, b, targets, scale, out):
    """For each item of clients, in order, leave its row of (S'T) V: where it leads to, times the share and units[1].

    `places` [N]: where the row of an item goes in `out` [R, m]; targets V [n, m]. A recursion over the steps,
    backwards, so the cost is that of one pass. Rows of float32 are written, rows of whole numbers are added.
    """
    column, width = U64(0), U64(targets.shape[1])
    while column + U64(COLUMNS) <= width:
        _find(ptr, items, places, shares, units, a, b, targets, scale, out, column)
        column += U64(COLUMNS)
    while column + U64(FEW) <= width:
        _find_few(ptr, items, places, shares, units, a, b, targets, scale, out, column)
        column += U64(FEW)
    while column < width:
        _find_one(ptr, items, places, shares, units, a, b, targets, scale, out, column)
        column += U64(1)


@njit(cache=True, nogil=True, error_model="numpy")
def regression_rows(ptr, items, places, shares, units, a, b, basis, scale, out):
    """For each item of clients, in order, leave its rows of S'S P and (S'T)'P side by side, times the share and units.

    `places` [N]: where the row of an item goes in `out` [R, 2 m]; basis P [n, m]. Forwards come s_t P and what leads to
    an item, backwards the sum over t >= j of a^(t-j) s_t P.
    """
    column, width = U64(0), U64(basis.shape[1])
    while column + U64(COLUMNS) <= width:
        _regress(ptr, items, places, shares, units, a, b, basis, scale, out, column)
        column += U64(COLUMNS)
    while column + U64(FEW) <= width:
        _regress_few(ptr, items, places, shares, units, a, b, basis, scale, out, column)
        column += U64(FEW)
    while column < width:
        _regress_one(ptr, items, places, shares, units, a, b, basis, scale, out, column)
        column += U64(1)
