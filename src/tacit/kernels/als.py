"""The half step of alternating least squares: every row's best vector while the other side stays."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True, error_model="numpy")
def solve_rows(ptr, columns, fixed, gram, extra):
    """Return [R, F]: for each row the x with (gram + extra sum_c y_c y_c') x = (1 + extra) sum_c y_c.

    `ptr, columns`: a binary matrix by rows; `fixed` [n, F]: the vectors y of its columns; `gram` [F, F]: their
    Gramian plus regularisation, shared by all rows: only the columns a row has are added to it. An empty row is 0.
    """
    n_rows, factors = len(ptr) - 1, fixed.shape[1]
    solved = np.zeros((n_rows, factors), np.float32)
    for r in range(n_rows):
        if ptr[r] == ptr[r + 1]:
            continue
        chosen = fixed[columns[ptr[r] : ptr[r + 1]]]  # [n, F]
        system = gram + extra * np.dot(chosen.T, chosen)
        solved[r] = np.linalg.solve(system, (np.float32(1.0) + extra) * chosen.sum(axis=0))
    return solved
