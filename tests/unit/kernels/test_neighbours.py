"""Nearest rows and sums over them against brute force on dense matrices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from tacit.kernels import neighbours as kernel


def similarity(kind: int, a: np.ndarray, b: np.ndarray) -> float:
    """From the vectors themselves, as the textbooks write it."""
    if not a.any() or not b.any():
        return 0.0
    if kind == kernel.COSINE:
        return a @ b / (np.linalg.norm(a) * np.linalg.norm(b))
    if kind == kernel.JACCARD:
        return np.logical_and(a, b).sum() / np.logical_or(a, b).sum()
    if kind == kernel.DICE:
        return 2 * np.logical_and(a, b).sum() / (a.sum() + b.sum())
    return 0.0 if a.std() == 0 or b.std() == 0 else np.corrcoef(a, b)[0, 1]


def brute(x: np.ndarray, k: int, kind: int, shrink: float) -> np.ndarray:
    """Similarities [R, R] with all but the k best of each row zeroed; rows that share nothing are no neighbours."""
    n = len(x)
    kept = np.zeros((n, n))
    for q in range(n):
        found = []
        for r in range(n):
            common = float(x[q] @ x[r])
            if r != q and common > 0:
                value = np.float32(similarity(kind, x[q], x[r]) * common / (common + shrink))
                found.append((-value, r))
        for value, r in sorted(found)[:k]:
            kept[q, r] = max(-value, 0.0)
    return kept


def compact(x: np.ndarray, k: int, kind: int, shrink: float) -> tuple[np.ndarray, np.ndarray]:
    rows, columns = sparse.csr_matrix(x), sparse.csc_matrix(x)
    sizes = np.diff(rows.indptr)
    skip = np.arange(len(x))
    return kernel.nearest_rows(rows.indptr, rows.indices, columns.indptr, columns.indices, sizes, skip, k, kind, shrink)


@pytest.mark.parametrize("kind", [kernel.COSINE, kernel.JACCARD, kernel.DICE, kernel.PEARSON])
@pytest.mark.parametrize("shrink", [0.0, 3.0])
def test_nearest_are_those_of_brute_force(kind: int, shrink: float) -> None:
    x = (np.random.default_rng(0).random((40, 25)) < 0.3).astype(np.float32)
    x[7] = 0
    found, values = compact(x, 6, kind, shrink)
    dense = np.zeros((40, 40))
    for q in range(40):
        kept = found[q] >= 0
        dense[q, found[q][kept]] = values[q][kept]
        assert (np.diff(values[q][kept]) <= 0).all(), "neighbours are not best first"
    # equal similarities in exact numbers may round apart, so the k values are compared and not who has them
    expected = brute(x, 6, kind, shrink)
    np.testing.assert_allclose(np.sort(dense, axis=1), np.sort(expected, axis=1), atol=1e-6)
    assert (found[7] == -1).all()


@pytest.mark.slow
@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 9))
def test_sums_are_matrix_products(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    x = (rng.random((rng.integers(1, 12), rng.integers(1, 9))) < 0.4).astype(np.float32)
    rows = sparse.csr_matrix(x)
    found, values = compact(x, k, kernel.COSINE, 0.0)
    weights = np.zeros((len(x), len(x)), np.float32)
    for q, t in zip(*np.nonzero(found >= 0), strict=True):
        weights[q, found[q, t]] = values[q, t]
    sums = kernel.sum_of_neighbours(found, values, rows.indptr, rows.indices, x.shape[1])
    np.testing.assert_allclose(sums, weights @ x, atol=1e-5)
    right = sparse.random(x.shape[1], 5, 0.5, "csr", np.float32, rng=rng)
    ours = kernel.sum_of_rows(rows.indptr, rows.indices, right.indptr, right.indices, right.data, 5)
    np.testing.assert_allclose(ours, x @ right.toarray(), atol=1e-5)
    assert np.array_equal(kernel.count_pairs(rows.indptr, rows.indices, x.shape[1]), x.T.astype(float) @ x)


def test_at_equal_similarity_the_smaller_row_is_nearer() -> None:
    x = np.ones((6, 3), np.float32)
    found, _ = compact(x, 2, kernel.COSINE, 0.0)
    assert found.tolist() == [[1, 2], [0, 2], [0, 1], [0, 1], [0, 1], [0, 1]]
