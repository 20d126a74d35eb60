"""FPL's sums where rows and clients are clipped: what `rows_of_pairs`, `clip_rows` and `add_rows` make, without calls.

A client's factor is known after its last triple. Its rows wait for it in room of sixteen clients, as whole numbers,
and are then multiplied and added. The lengths and the factors are those of `kernels.update_sink`, to the last bit:
whole numbers are the values times a power of two, which changes no rounding.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tacit.kernels.llvm.exponential import sigmoid_complement
from tacit.kernels.llvm.rowsum import add_row
from tacit.kernels.llvm.rowvec import prefetch
from tacit.kernels.llvm.triples import preference, step_and_measure
from tacit.kernels.sampling import U64
from tacit.kernels.update_sink import lengthen, shorten

TOGETHER = 16  # clients that go side by side
_GROUP, _PAIRS = U64(TOGETHER), U64(2 * TOGETHER)
_NEAR = 2**20  # bytes of a table that need not be asked for ahead
_AHEAD = U64(8)  # triples


@njit(inline="always")
def _square_in_sum(targets, negatives, of_rows, k, unsent, of_items):
    """`square_sums` for one client; `of_items` [n_items + 1] are zeros before and after."""
    total = np.float64(0)
    for t in range(U64(targets.size)):
        if U64(targets[t]) != unsent:
            total += lengthen(of_rows[t, k], of_items, U64(targets[t]))
    for t in range(U64(targets.size)):
        total += lengthen(of_rows[t, k + _GROUP], of_items, U64(negatives[t]))
    for t in range(U64(targets.size)):
        of_items[U64(targets[t])] = of_items[U64(negatives[t])] = 0.0
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def sum_of_clipped_pairs(
    users, moved, table, positives, negatives, targets, room, totals, cells, scale, rate, reg, limits, in_sum, squares
):
    """Take every client's local steps; clip the rows that it sends and add them to `totals` [n_items + 1, D].

    `limits` [2] are those of a row and of a client, which with `in_sum` is that of `square_sums`. `room` has 2 T
    rows for each of `TOGETHER` clients. `cells` [n_items + 1] are the totals as rows. `squares` [C] become the
    squared lengths of clients, clipped; a client whose length is no number is not added. `targets` are those of
    `count_sent`; the last row of `totals` is of no item. Return the largest squared length of a row, row limit applied.
    """
    zero, one = U64(0), U64(1)
    n_clients, n_triples, unsent = U64(positives.shape[0]), U64(positives.shape[1]), U64(totals.shape[0] - 1)
    shrink, reg_i, reg_j = rate * reg[0], scale * reg[1], scale * reg[2]
    row_limit, client_limit, square_unit = limits[0], limits[1], np.float32(1.0) / (scale * scale)
    is_far = table.nbytes > _NEAR
    z, by = np.zeros(_GROUP, np.float32), np.ones(_PAIRS, np.float32)  # by: of sixteen positives, then of the negatives
    tops = np.zeros(_PAIRS)
    lengths, sums, is_sent = np.zeros(_PAIRS), np.zeros(_PAIRS), np.ones(_PAIRS, np.uint8)
    factors, of_rows = np.empty((n_triples, _PAIRS), np.float32), np.empty((n_triples if in_sum else zero, _PAIRS))
    of_items = np.zeros(unsent + one if in_sum else zero)
    for start in range(zero, n_clients, _GROUP):
        stop = min(n_clients, start + _GROUP)
        sums[:] = 0.0
        for t in range(n_triples):
            for c in range(start, stop):
                z[c - start] = preference(users, c, table, U64(positives[c, t]), U64(negatives[c, t]))
            for k in range(_GROUP):
                z[k] = sigmoid_complement(z[k])
            if is_far and t + one < n_triples:
                for c in range(start, stop):
                    prefetch(table, U64(positives[c, t + one]))
                    prefetch(table, U64(negatives[c, t + one]))
            for c in range(start, stop):
                i, j, sure, k = U64(positives[c, t]), U64(negatives[c, t]), z[c - start], c - start
                at = (k * n_triples + t) * U64(2)
                step, pull = rate * sure, scale * sure
                square_i, square_j = step_and_measure(
                    moved, users, table, c, i, j, step, shrink, pull, reg_i, reg_j, room, at, at + one
                )
                lengths[k], lengths[k + _GROUP] = square_i * square_unit, square_j * square_unit
                is_sent[k] = U64(targets[c, t]) != unsent
            for k in range(_PAIRS):
                by[k], lengths[k] = shorten(lengths[k], row_limit)
            for k in range(_PAIRS):
                sums[k] += lengths[k] if is_sent[k] else 0.0
                tops[k] = lengths[k] if lengths[k] > tops[k] else tops[k]
                factors[t, k] = by[k]
            if in_sum:
                of_rows[t] = lengths
        for c in range(start, stop):
            k = c - start
            square = sums[k] + sums[k + _GROUP]
            if in_sum:
                square = _square_in_sum(targets[c], negatives[c], of_rows, k, unsent, of_items)
            f, square = shorten(square, client_limit)
            squares[c] = square
            if not square < np.inf:
                continue
            for t in range(n_triples):
                a, j, at = U64(targets[c, t]), U64(negatives[c, t]), (k * n_triples + t) * U64(2)
                if is_far and t + _AHEAD < n_triples:
                    prefetch(cells, U64(targets[c, t + _AHEAD]))
                    prefetch(cells, U64(negatives[c, t + _AHEAD]))
                add_row(room, at, factors[t, k] * f, totals, a)
                add_row(room, at + one, -(factors[t, k + _GROUP] * f), totals, j)
    return tops.max()
