"""The half step of ALS against the normal equations of the whole weighted problem."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from tacit.kernels.als import solve_rows


@pytest.mark.parametrize("factors", [1, 5, 16])
def test_rows_solve_the_weighted_least_squares_of_all_cells(factors: int) -> None:
    rng = np.random.default_rng(factors)
    x = (rng.random((12, 30)) < 0.3).astype(np.float32)
    x[4] = 0
    y = rng.normal(size=(30, factors)).astype(np.float32)
    alpha, reg = 3.0, 0.7
    rows = sparse.csr_matrix(x)
    gram = (y.T @ y + reg * np.eye(factors)).astype(np.float32)
    before = gram.copy(), y.copy()
    solved = solve_rows(rows.indptr, rows.indices, y, gram, np.float32(alpha))
    for r in range(12):
        confidence = np.diag(1 + alpha * x[r])
        expected = np.linalg.solve(y.T @ confidence @ y + reg * np.eye(factors), y.T @ confidence @ x[r])
        np.testing.assert_allclose(solved[r], expected, atol=2e-5)
    assert np.array_equal(before[0], gram), "the shared Gramian was changed"
    assert np.array_equal(before[1], y)
