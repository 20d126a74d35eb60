"""Small products with samples side by side, against numpy."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from tacit.kernels.llvm.tiles import (
    LANES,
    add_whole,
    columns_to_rows,
    layers_down,
    layers_gradient,
    layers_up,
    rows_to_columns,
)

N, STRIDE, FIRST = 2 * LANES, 3 * LANES, 2


@pytest.mark.parametrize("sizes", [(12, 48, 24, 12, 6), (3, 7, 5), (1, 1)], ids=str)
def test_layers_go_up_and_down_as_numpy_has_it(sizes):
    rng = np.random.default_rng(0)
    weights = [rng.normal(0, 0.5, pair).astype(np.float32) for pair in pairwise(sizes)]
    biases = [rng.normal(0, 0.5, b).astype(np.float32) for b in sizes[1:]]
    theta = np.concatenate([part.ravel() for pair in zip(weights, biases, strict=True) for part in pair])
    acts = np.full((FIRST + sum(sizes), STRIDE), 7, np.float32)
    back, grad = acts.copy(), np.empty_like(theta)
    x = rng.normal(size=(sizes[0], N)).astype(np.float32)
    acts[FIRST : FIRST + sizes[0], :N] = x
    layers_up(theta, np.array(sizes), acts.reshape(-1), FIRST, STRIDE, N)
    units = [x]
    for w, b in zip(weights, biases, strict=True):
        units.append(np.maximum(w.T @ units[-1] + b[:, None], 0))
    np.testing.assert_allclose(acts[FIRST:, :N], np.concatenate(units), rtol=1e-4, atol=1e-5)
    assert np.all(acts[:FIRST] == 7), "rows before the first were written to"
    assert np.all(acts[:, N:] == 7), "columns behind the last sample were written to"

    d = np.where(units[-1] > 0, rng.normal(size=units[-1].shape), 0).astype(np.float32)
    back[-sizes[-1] :, :N] = d
    layers_down(theta, np.array(sizes), acts.reshape(-1), back.reshape(-1), FIRST, STRIDE, N)
    layers_gradient(acts.reshape(-1), back.reshape(-1), np.array(sizes), grad, FIRST, STRIDE, N)
    expected = []
    for k in range(len(weights) - 1, -1, -1):
        expected[:0] = [(units[k] @ d.T).ravel(), d.sum(axis=1)]
        d = weights[k] @ d * (units[k] > 0 if k else 1)
        at = FIRST + sum(sizes[:k])
        np.testing.assert_allclose(back[at : at + sizes[k], :N], d, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(grad, np.concatenate(expected), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("width", [1, 4, 7, 12])
def test_rows_become_columns_and_come_back(width):
    table = np.arange(20 * width, dtype=np.float32)
    rows = np.random.default_rng(1).permutation(20)[:8]
    columns = np.zeros((width, 9), np.float32)
    rows_to_columns(table, (rows * width).astype(np.uint64), width, columns.reshape(-1), 9, 8)
    assert np.array_equal(columns[:, :8], table.reshape(20, width)[rows].T)
    lines = np.zeros(8 * width, np.float32)
    columns_to_rows(columns.reshape(-1), 9, width, lines, 8)
    assert np.array_equal(lines.reshape(8, width), table.reshape(20, width)[rows])


@pytest.mark.parametrize("width", [3, 4, 13])
def test_whole_numbers_are_added_exactly(width):
    steps = np.concatenate([[9.0], (-1.0) ** np.arange(width) * (2**24 - np.arange(width))]).astype(np.float32)
    sums = np.full(width + 2, 2**40, np.int64)
    add_whole(steps, 1, sums, 1, width)
    assert np.array_equal(sums[1:-1] - 2**40, steps[1:].astype(np.int64))
    assert sums[0] == sums[-1] == 2**40
