from __future__ import annotations

import numpy as np
from numba import njit

from tacit.kernels.sampling import GAMMA, lane, mix_word
from tacit.random import Key


@njit
def drawn(word: int, index: int, position: int) -> int:
    state = lane(word, index)
    for _ in range(position + 1):
        state += GAMMA
    return mix_word(state)


def test_a_kernel_draws_what_the_key_draws() -> None:
    key = Key(3).child("learn", 5)
    table = key.bits(np.array([0, 7, 2**40]), 4)
    for row, index in enumerate((0, 7, 2**40)):
        for position in range(4):
            assert drawn(key.word, np.uint64(index), position) == table[row, position]


def test_a_number_on_the_path_is_a_lane() -> None:
    key = Key(11).child("rounds")

    @njit
    def word_of(word: int, index: int) -> int:
        return lane(word, index)

    assert word_of(key.word, np.uint64(42)) == key.child(42).word


def test_paths_do_not_collide() -> None:
    paths = [(), ("a",), ("b",), ("a", "b"), ("ab",), ("a", 1), ("a", 2), (1, "a"), ("a", "1"), (1, 2), (2, 1)]
    words = {int(Key(seed, path).word) for seed in (0, 1) for path in paths}
    assert len(words) == 2 * len(paths)


def test_a_draw_depends_on_its_lane_only() -> None:
    key = Key(0).child("x")
    assert np.array_equal(key.uniform(np.arange(10), 3)[4:7], key.uniform(np.array([4, 5, 6]), 3))
    assert np.array_equal(key.uniform(np.arange(10), 5)[:, :3], key.uniform(np.arange(10), 3))


def test_draws_look_uniform_and_normal() -> None:
    key = Key(1)
    u, z = key.uniform(np.arange(20_000), 5), key.normal(np.arange(20_000), 5)
    assert abs(u.mean() - 0.5) < 0.005
    assert abs(u.var() - 1 / 12) < 0.002
    assert abs(float(z.mean())) < 0.015
    assert abs(float(z.std()) - 1) < 0.01
    lanes = np.corrcoef(u.T)
    assert np.abs(lanes - np.eye(5)).max() < 0.03
