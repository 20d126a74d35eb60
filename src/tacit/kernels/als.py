"""The half step of alternating least squares: every row's best vector while the other side is fixed."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "reassoc"})
def _solve(system, right):
    """Solve a symmetric positive system in place by Cholesky: `system` [F, F] is used up, `right` [F] is solved."""
    n = len(right)
    for i in range(n):
        for j in range(i + 1):
            rest = system[i, j]
            for k in range(j):
                rest -= system[i, k] * system[j, k]
            system[i, j] = np.sqrt(rest) if i == j else rest / system[j, j]
    for i in range(n):
        for k in range(i):
            right[i] -= system[i, k] * right[k]
        right[i] /= system[i, i]
    for i in range(n - 1, -1, -1):
        right[i] /= system[i, i]
        for k in range(i):
            right[k] -= system[i, k] * right[i]


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def solve_weighted_rows(ptr, columns, weights, fixed, gram, extra):
    """Return [R, F]: as `solve_rows`, each column of a row counts by its weight [N]; 0 is as if the row lacked it."""
    n_rows, factors = len(ptr) - 1, fixed.shape[1]
    solved = np.zeros((n_rows, factors), np.float32)
    system = np.empty((factors, factors), np.float32)
    for r in range(n_rows):
        if ptr[r] == ptr[r + 1]:
            continue
        system[:] = gram
        for e in range(ptr[r], ptr[r + 1]):
            y, weight = fixed[columns[e]], weights[e]
            for a in range(factors):
                solved[r, a] += (np.float32(1.0) + extra) * weight * y[a]
                for b in range(a + 1):
                    system[a, b] += extra * weight * y[a] * y[b]
        _solve(system, solved[r])
    return solved


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def solve_rows(ptr, columns, fixed, gram, extra):
    """Return [R, F]: for each row the x with (gram + extra sum_c y_c y_c') x = (1 + extra) sum_c y_c.

    `ptr, columns`: a binary matrix by rows; `fixed` [n, F]: the vectors y of its columns; `gram` [F, F]: their Gramian
    plus regularisation. All rows share it, so that only the columns a row has are added. An empty row is 0.
    """
    n_rows, factors = len(ptr) - 1, fixed.shape[1]
    solved = np.zeros((n_rows, factors), np.float32)
    system = np.empty((factors, factors), np.float32)
    y = np.empty((4, factors), np.float32)
    for r in range(n_rows):
        if ptr[r] == ptr[r + 1]:
            continue
        for a in range(factors):  # the lower half is enough
            for b in range(a + 1):
                system[a, b] = gram[a, b]
        for start in range(ptr[r], ptr[r + 1], 4):  # four columns at a time: the system is read and written once
            for s in range(4):
                present = start + s < ptr[r + 1]
                column = columns[start + s] if present else 0
                for a in range(factors):
                    y[s, a] = fixed[column, a] if present else np.float32(0.0)
            for a in range(factors):
                y0, y1, y2, y3 = y[0, a], y[1, a], y[2, a], y[3, a]
                solved[r, a] += (np.float32(1.0) + extra) * ((y0 + y1) + (y2 + y3))
                for b in range(a + 1):
                    system[a, b] += extra * ((y0 * y[0, b] + y1 * y[1, b]) + (y2 * y[2, b] + y3 * y[3, b]))
        _solve(system, solved[r])
    return solved
