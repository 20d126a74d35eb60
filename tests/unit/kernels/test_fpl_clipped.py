"""FPL's clipped sums against rows that are written out, clipped and added by the kernels of the update sink."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.kernels.fpl import count_sent, rows_of_pairs
from tacit.kernels.fpl_clipped import TOGETHER, sum_of_clipped_pairs
from tacit.kernels.llvm.rowvec import rows_of
from tacit.kernels.llvm.triples import empty_rows, pad_rows
from tacit.kernels.update_sink import add_rows, clip_clients, clip_rows, multiply_rows, square_sums
from tacit.privacy.update_sink import Limits

N_ITEMS, STEPS, WIDTH = 30, 5, 11
SCALE, RATE, REG = np.float32(2**20), np.float32(0.05), np.array([0.01, 0.02, 0.03], np.float32)


def written_out(
    p: np.ndarray, q: np.ndarray, pairs: np.ndarray, is_sent: np.ndarray, limits: Limits
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sums, squared lengths and the moved vectors, by the way that messages take."""
    n, moved, table = len(p), pad_rows(p), pad_rows(q)
    rows = np.empty((2 * n * STEPS, table.shape[1]), np.float32)
    rows_of_pairs(rows_of(moved), rows_of(moved), rows_of(table), *pairs, rows_of(rows), SCALE, RATE, REG)
    ptr, squares, by = np.arange(n + 1) * STEPS, np.zeros(n), np.empty(n, np.float32)
    factors, kept = np.ones((2, n * STEPS), np.float32), (is_sent.ravel(), np.zeros(0, np.uint8))
    halves = rows.reshape(2, n * STEPS, -1)
    of_rows = np.empty((2, n * STEPS))
    for half, some, f, of_half in zip(halves, kept, factors, of_rows, strict=True):
        clip_rows(ptr, some, rows_of(half), f, limits[0], squares, of_half)
    if limits.in_sum:
        squares[:] = 0.0
        every = np.concatenate([is_sent.ravel(), np.ones(n * STEPS, np.uint8)])
        ids = pairs.ravel().view(np.int32)
        square_sums(np.array([ptr, ptr + n * STEPS]), ids, every, of_rows.ravel(), np.zeros(N_ITEMS), squares)
    clip_clients(squares, limits[1], by)
    totals = np.zeros((N_ITEMS, table.shape[1]), np.int64)
    for half, some, f, ids in zip(halves, kept, factors, pairs, strict=True):
        multiply_rows(ptr, by, f)
        add_rows(ptr, ids.ravel().view(np.int32), some, rows_of(half), f, np.isfinite(squares), SCALE, totals)
    return totals, squares, moved


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("n", [1, 16, 37])
@pytest.mark.parametrize("limits", [(0.4, 1.0), (0.4, np.inf), (np.inf, 1.0), (8.0, 8.0)])
@pytest.mark.parametrize("in_sum", [False, True])
def test_clipped_sums_are_those_of_rows_written_out(
    kind: type, n: int, limits: tuple[float, float], in_sum: bool
) -> None:
    rng = np.random.default_rng(n)
    p, q = (rng.normal(0, 0.3, (rows, WIDTH)).astype(np.float32) for rows in (n, N_ITEMS))
    p[:, -1] = 1.0
    p[n // 2, 0] = np.nan if n > 1 else 0.0
    pairs = rng.integers(0, N_ITEMS, (2, n, STEPS)).astype(np.uint32)
    is_sent = rng.integers(0, 2, (n, STEPS)).astype(np.uint8)
    expected, squares, moved = written_out(p, q, pairs, is_sent, Limits(*limits, in_sum=in_sum))
    table, again, found = pad_rows(q), pad_rows(p), np.empty(n)
    targets, counts = np.empty_like(pairs[0]), np.zeros((2, N_ITEMS + 1), np.int32)
    count_sent(*pairs, is_sent, targets, counts)
    totals, room = np.zeros((N_ITEMS + 1, table.shape[1]), kind), empty_rows(2 * TOGETHER * STEPS, table.shape[1])
    arrays = rows_of(again), rows_of(again), rows_of(table), *pairs, targets, rows_of(room), totals
    longest = sum_of_clipped_pairs(
        *arrays, rows_of(totals.view(np.float32)), SCALE, RATE, REG, np.array(limits, np.float64), in_sum, found
    )
    np.testing.assert_array_equal(totals[:-1], expected)
    np.testing.assert_array_equal(found, squares)
    np.testing.assert_array_equal(again, moved)
    assert np.isnan(found).sum() == (n > 1)
    assert 0 < longest <= limits[0] ** 2
