"""FCF on a cohort: the gradient rows of every item from each client's vector, on the grid of the ring.

With x the client's vector and s_j = x . y_j, the gradient row of item j is c_j (r_j - s_j) x, where r_j is 1 and c_j
is 1 + alpha for items of the history, and r_j is 0 and c_j is 1 for the rest. It is split in two: the
value for an item outside the history, and a correction for items of the history:

    every item     - s_j x
    a positive     (1 + alpha (1 - s_j)) x

`items` are transposed, [F, n_items], so that all loops run along the catalogue. The order of every sum is fixed, so a
client alone gives the same bits as in a cohort.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tacit.kernels.llvm.rounding import round_to_even

_SAFE = 127  # numbers of at most 2^24 that 32 bits can add up
_BLOCK = 256  # items whose sums stay in the nearest cache


@njit(inline="always")
def _similarities(x, items, s):
    for j in range(len(s)):
        s[j] = np.float32(0.0)
    for f in range(len(x)):
        for j in range(len(s)):
            s[j] += x[f] * items[f, j]


@njit(cache=True, nogil=True, error_model="numpy")
def weigh_all(users, items, weights):
    """Fill `weights` [C, n_items] with what every item multiplies the client's vector by: - x . y_j."""
    for c in range(len(users)):
        _similarities(users[c], items, weights[c])
        for j in range(items.shape[1]):
            weights[c, j] = -weights[c, j]


@njit(inline="always")
def _weight(x, y, alpha):
    s = np.float32(0.0)
    for f in range(len(x)):
        s += x[f] * y[f]
    return np.float32(1.0) + alpha * (np.float32(1.0) - s)


@njit(cache=True, nogil=True, error_model="numpy")
def weigh_positives(users, ptr, positives, items, alpha, weights):
    """Fill `weights` [N] with what the corrections multiply the client's vector by; `items` are [n_items, F] here."""
    for c in range(len(users)):
        for r in range(ptr[c], ptr[c + 1]):
            weights[r] = _weight(users[c], items[positives[r]], alpha)


@njit(cache=True, nogil=True, error_model="numpy")
def sum_for_all(users, items, scale, totals):
    """Add the rows of every item to `totals` [F, n_items], whole numbers; return the largest of them.

    `clients` must be finite.
    """
    factors, n_items = items.shape
    s, near = np.empty(_BLOCK, np.float32), np.zeros((factors, _BLOCK), np.int32)
    largest = np.float32(0.0)
    for first in range(0, n_items, _BLOCK):
        block = items[:, first : first + _BLOCK].copy()  # loops over a part of an array stay scalar
        width = block.shape[1]
        for start in range(0, len(users), _SAFE):
            near[:] = 0
            for c in range(start, min(len(users), start + _SAFE)):
                _similarities(users[c], block, s[:width])
                most, widest = np.float32(0.0), np.float32(0.0)
                for j in range(width):
                    most = max(most, abs(s[j]))
                for f in range(factors):
                    step = scale * users[c, f]
                    widest = max(widest, abs(step))
                    for j in range(width):
                        near[f, j] -= np.int32(round_to_even(step * s[j]))
                largest = max(largest, round_to_even(widest * most))
            for f in range(factors):
                for j in range(width):
                    totals[f, first + j] += near[f, j]
    return largest
