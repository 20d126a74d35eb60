"""Nearest rows of a sparse binary matrix, and the sums that neighbourhood methods make of them.

Everything is counting: the similarity of two rows follows from how many columns they share and how many each has.
Only rows that share something are ever read, so the cost follows the data and not users times items.
"""

from __future__ import annotations

import numpy as np
from numba import njit

COSINE, JACCARD, DICE, PEARSON = 0, 1, 2, 3


@njit(inline="always")
def _similarity(kind, common, a, b, n):
    """Return the similarity of rows with `a` and `b` ones, `common` of them shared, in a matrix of n columns."""
    if kind == COSINE:
        return common / np.sqrt(a * b)
    if kind == JACCARD:
        return common / (a + b - common)
    if kind == DICE:
        return 2.0 * common / (a + b)
    spread = a * (n - a) * b * (n - b)
    return (n * common - a * b) / np.sqrt(spread) if spread > 0.0 else 0.0


@njit(inline="always")
def _worse(value, row, other_value, other_row):
    """Order of neighbours: the smaller similarity is worse; at equal ones the larger row number."""
    return value < other_value or (value == other_value and row > other_row)


@njit(cache=True, error_model="numpy")
def _sink(values, rows, at, size):
    """Let one entry of a heap that has its worst entry on top sink to its place."""
    while True:
        child = 2 * at + 1
        if child >= size:
            return
        if child + 1 < size and _worse(values[child + 1], rows[child + 1], values[child], rows[child]):
            child += 1
        if not _worse(values[child], rows[child], values[at], rows[at]):
            return
        values[at], values[child] = values[child], values[at]
        rows[at], rows[child] = rows[child], rows[at]
        at = child


@njit(cache=True, error_model="numpy")
def _heapify(values, rows, size):
    """Put the worst entry on top."""
    for at in range(size // 2 - 1, -1, -1):
        _sink(values, rows, at, size)


@njit(cache=True, error_model="numpy")
def _best_first(values, rows, size):
    """Turn a heap into a list, best first."""
    for last in range(size - 1, 0, -1):
        values[0], values[last] = values[last], values[0]
        rows[0], rows[last] = rows[last], rows[0]
        _sink(values, rows, 0, last)


@njit(cache=True, nogil=True, error_model="numpy")
def nearest_rows(ptr, columns, column_ptr, column_rows, sizes, skip, k, kind, shrink):
    """Return the k most similar reference rows of each query row: (rows [Q, k], -1 where there are fewer; values).

    `ptr, columns`: the query matrix [Q, n] by rows; `column_ptr, column_rows`: the reference matrix [R, n] by
    columns; `sizes` [R]: ones per reference row; `skip` [Q]: a reference row that is not to be its neighbour, or -1.
    A similarity is multiplied by common / (common + shrink). Only positive ones count. Best first.
    """
    n_queries, n_rows, n_columns = len(ptr) - 1, len(sizes), len(column_ptr) - 1
    rows = np.full((n_queries, k), -1, np.int32)
    values = np.zeros((n_queries, k), np.float32)
    common = np.zeros(n_rows, np.int32)
    touched = np.empty(n_rows, np.int32)
    for q in range(n_queries):
        n_touched = 0
        for e in range(ptr[q], ptr[q + 1]):
            column = columns[e]
            for f in range(column_ptr[column], column_ptr[column + 1]):
                row = column_rows[f]
                if common[row] == 0:
                    touched[n_touched] = row
                    n_touched += 1
                common[row] += 1
        best, best_rows, size = values[q], rows[q], 0
        own = float(ptr[q + 1] - ptr[q])
        for t in range(n_touched):
            row = touched[t]
            shared = float(common[row])
            common[row] = 0
            if row == skip[q]:
                continue
            value = np.float32(
                _similarity(kind, shared, own, float(sizes[row]), float(n_columns)) * shared / (shared + shrink)
            )
            if value <= 0.0:
                continue
            if size < k:
                best[size], best_rows[size] = value, row
                size += 1
                if size == k:
                    _heapify(best, best_rows, k)
            elif _worse(best[0], best_rows[0], value, row):
                best[0], best_rows[0] = value, row
                _sink(best, best_rows, 0, k)
        if size < k:
            _heapify(best, best_rows, size)
        _best_first(best, best_rows, size)
    return rows, values


@njit(cache=True, nogil=True, error_model="numpy")
def sum_of_neighbours(rows, values, ptr, columns, n_columns):
    """Return [Q, n_columns]: for each query the sum of its neighbours' rows, each times its similarity.

    `rows, values` as `nearest_rows` returns them; `ptr, columns`: the reference matrix by rows.
    """
    sums = np.zeros((len(rows), n_columns), np.float32)
    for q in range(len(rows)):
        for t in range(rows.shape[1]):
            row = rows[q, t]
            if row < 0:
                break
            value = values[q, t]
            for e in range(ptr[row], ptr[row + 1]):
                sums[q, columns[e]] += value
    return sums


@njit(cache=True, nogil=True, error_model="numpy")
def sum_of_rows(ptr, columns, row_ptr, targets, weights, n_targets):
    """Return [Q, n_targets]: for each query the sum of the sparse rows its columns name.

    `ptr, columns`: the query matrix by rows; `row_ptr, targets, weights`: a sparse matrix [n, n_targets] by rows.
    """
    sums = np.zeros((len(ptr) - 1, n_targets), np.float32)
    for q in range(len(ptr) - 1):
        for e in range(ptr[q], ptr[q + 1]):
            row = columns[e]
            for f in range(row_ptr[row], row_ptr[row + 1]):
                sums[q, targets[f]] += weights[f]
    return sums


@njit(cache=True, nogil=True, error_model="numpy")
def count_pairs(ptr, columns, n_columns):
    """Return X'X as float64 [n, n] of a binary matrix X by rows: in how many rows two columns meet."""
    counts = np.zeros((n_columns, n_columns), np.float64)
    for q in range(len(ptr) - 1):
        for e in range(ptr[q], ptr[q + 1]):
            row = counts[columns[e]]
            for f in range(ptr[q], ptr[q + 1]):
                row[columns[f]] += 1.0
    return counts
