"""The largest of each group, and who reaches a bound, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from tacit.kernels.llvm.groups import LANES, lowest_bit, raise_groups, reaching


@njit
def _raised(keys, tops):
    raise_groups(keys, tops)


@njit
def _reached(numbers, start, least):
    return reaching(numbers, start, least)


@njit
def _lowest(word):
    return lowest_bit(word)


@pytest.mark.parametrize(("n_groups", "n_rows"), [(64, 1), (64, 3), (256, 2), (192, 5)])
def test_the_largest_of_each_group(n_groups: int, n_rows: int) -> None:
    keys = np.random.default_rng(n_groups).integers(-(2**31), 2**31, n_groups * n_rows).astype(np.int32)
    tops = np.zeros(n_groups, np.int32)
    _raised(keys, tops)
    assert np.array_equal(tops, keys.reshape(n_rows, n_groups).max(axis=0))


@pytest.mark.parametrize("least", [-(2**31), -5, 0, 7, 2**31 - 1])
def test_which_numbers_reach_a_bound(least: int) -> None:
    numbers = np.random.default_rng(1).integers(-10, 10, 2 * LANES).astype(np.int32)
    numbers[[0, 70]] = 2**31 - 1, -(2**31)
    for start in (0, LANES):
        bits = int(_reached(numbers, start, np.int32(least)))
        assert [bits >> b & 1 for b in range(LANES)] == (numbers[start : start + LANES] >= least).tolist()


def test_the_lowest_bit() -> None:
    assert [_lowest(np.uint64(word)) for word in (1, 6, 2**40, 2**63, 2**64 - 1)] == [0, 1, 40, 63, 0]
