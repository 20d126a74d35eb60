"""Kernels that turn random words into noise, beside whole-array arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.kernels.noise import GUIDE_BITS, find_cells, place_in_blocks, write_guide

RNG = np.random.default_rng(3)
TOP = np.uint64(2**64 - 1)
BOUNDS = {
    "even": np.arange(1, 9, dtype=np.uint64) << np.uint64(60),
    "crowded": np.sort(RNG.integers(0, 2**40, 300, np.uint64)),  # many cells under one entry of the guide
    "at both ends": np.array([0, 0, 1, TOP - np.uint64(1), TOP], np.uint64),
    "one": np.array([2**63], np.uint64),
    "none": np.zeros(0, np.uint64),
}


@pytest.mark.parametrize("high", BOUNDS.values(), ids=BOUNDS)
def test_cells_are_those_of_a_binary_search(high: np.ndarray) -> None:
    near = (high[:, None] + np.array([-1, 0, 1]).astype(np.uint64)).ravel()  # wraps around at both ends
    words = np.concatenate([RNG.integers(0, 2**64, 1000, np.uint64), near, np.array([0, TOP], np.uint64)])
    guide, cells = np.empty(1 << GUIDE_BITS, np.int64), np.empty(len(words), np.int64)
    write_guide(high, guide)
    n_equal = find_cells(high, guide, words, cells)
    assert np.array_equal(cells, np.searchsorted(high, words))
    assert n_equal == np.isin(words, high).sum()


@pytest.mark.parametrize("width_bits", [0, 1, 7, 32])
def test_numbers_of_blocks(width_bits: int) -> None:
    cells, words = RNG.integers(0, 40, 500), RNG.integers(0, 2**64, 500, np.uint64)
    surely_below = RNG.integers(0, 2**31, 40)
    steps, is_accepted = cells.copy(), np.empty(500, np.bool_)
    place_in_blocks(words, -20, width_bits, surely_below, steps, is_accepted)
    place = (words % np.uint64(1 << width_bits)).astype(np.int64)
    assert np.array_equal(steps, (cells - 20) * (1 << width_bits) + place)
    assert np.array_equal(is_accepted, (words >> np.uint64(33)).astype(np.int64) < surely_below[cells])
