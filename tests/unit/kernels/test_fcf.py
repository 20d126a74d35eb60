"""The kernels of FCF against the gradient of its loss, and the sums against the rows."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.kernels.fcf import sum_for_all, weigh_all, weigh_positives
from tacit.kernels.update_sink import add_outer
from tacit.random import Key

SCALE, ALPHA = np.float32(2**20), np.float32(3.0)


def world(n: int, n_items: int = 17, factors: int = 5) -> tuple[np.ndarray, np.ndarray]:
    return Key(1).normal(np.arange(n), factors, 0.4), Key(2).normal(np.arange(n_items), factors, 0.4)


def written(people: np.ndarray, items: np.ndarray) -> np.ndarray:
    """The whole numbers of a row for every client and item, [C, n_items, F]."""
    weights = np.empty((len(people), len(items)), np.float32)
    weigh_all(people, np.ascontiguousarray(items.T), weights)
    return np.rint(weights[:, :, None] * people[:, None, :] * SCALE).astype(np.int64)


def test_both_kinds_of_rows_together_are_the_gradient_of_the_weighted_loss() -> None:
    people, items = world(3)
    histories = [[1, 4, 16], [0], [2, 3, 5, 7]]
    ptr, positives = np.array([0, 3, 4, 8]), np.concatenate(histories).astype(np.int32)
    weights = np.empty(8, np.float32)
    weigh_positives(people, ptr, positives, items, ALPHA, weights)
    every, corrections = (
        written(people, items),
        np.rint(weights[:, None] * people[np.repeat([0, 1, 2], [3, 1, 4])] * SCALE),
    )
    for c, history in enumerate(histories):
        took = np.isin(np.arange(17), history)
        errors = np.where(took, 1 + ALPHA, 1.0) * (took - items @ people[c])  # c_j (r_j - x . y_j)
        found = every[c].copy()
        found[history] += corrections[ptr[c] : ptr[c + 1]].astype(np.int64)
        np.testing.assert_allclose(found / SCALE, errors[:, None] * people[c], atol=3e-6)

    kept, sums, counts = (
        np.array([1, 0, 1, 1, 0, 1, 1, 1], np.uint8),
        np.zeros((17, 5), np.int64),
        np.zeros(17, np.int64),
    )
    add_outer(ptr, positives, kept, weights, False, people, np.ones(3, np.bool_), SCALE, sums, counts)
    expected = np.zeros((17, 5), np.int64)
    np.add.at(expected, positives[kept > 0], corrections[kept > 0].astype(np.int64))
    assert np.array_equal(sums, expected)
    assert np.array_equal(counts, np.bincount(positives[kept > 0], minlength=17))


@pytest.mark.parametrize("n", [1, 127, 128, 300])
def test_sums_at_once_are_the_sums_of_the_rows_written_out(n: int) -> None:
    people, items = world(n)
    numbers = written(people, items)
    totals = np.zeros((5, 17), np.int64)
    largest = sum_for_all(people, np.ascontiguousarray(items.T), SCALE, totals)
    assert np.array_equal(totals.T, numbers.sum(axis=0))
    assert largest == np.abs(numbers).max()
