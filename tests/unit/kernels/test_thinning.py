"""The coins that thin out a history."""

from __future__ import annotations

import numpy as np

from tacit.kernels.thinning import thin
from tacit.random import Key


def test_coins_are_those_of_the_key():
    ids, ptr = np.array([4, 9, 2]), np.array([0, 3, 3, 8])
    values = np.arange(1, 9, dtype=np.float32)
    key = Key(11).child("dropout")
    uniform = key.uniform(ids, 5)
    coins = np.concatenate([uniform[0, :3], uniform[2, :5]])
    expected = np.where(coins < 0.4, values / np.float32(0.4), 0)
    np.testing.assert_array_equal(thin(ids, ptr, values, 0.4, key.word), expected)
    np.testing.assert_array_equal(values, np.arange(1, 9), err_msg="the input changed")


def test_all_stays_where_nothing_is_dropped():
    values = np.ones(50, np.float32)
    np.testing.assert_array_equal(thin(np.arange(1), np.array([0, 50]), values, 1.0, Key(1).word), values)


def test_the_expected_history_is_the_whole_one():
    values = np.ones(20_000, np.float32)
    thinned = thin(np.arange(1), np.array([0, 20_000]), values, 0.25, Key(3).word)
    assert abs(thinned.mean() - 1) < 5 * np.sqrt(3 / 20_000)
    assert set(np.unique(thinned)) == {0.0, 4.0}
