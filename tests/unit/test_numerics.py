"""Products of long tables in blocks of rows, and BLAS held to one thread."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from tacit.methods.fed_svd import largest_angle
from tacit.methods.parts.sums import orthonormal, to_float64
from tacit.numerics import BLOCK_ROWS, inner_product, map_blocks, multiply_table, one_blas_thread, server_threads
from tacit.updates import Ring

RNG = np.random.default_rng(4)
TABLE, OTHER, MATRIX = (RNG.normal(size=shape) for shape in ((2 * BLOCK_ROWS + 9, 7), (2 * BLOCK_ROWS + 9, 5), (7, 7)))
WORKS: dict[str, Callable[[], object]] = {
    "inner": lambda: inner_product(TABLE, OTHER),
    "rows": lambda: multiply_table(TABLE, MATRIX),
    "basis": lambda: orthonormal(TABLE, 1e-9),
    "sums": lambda: to_float64((1e6 * TABLE).astype(np.int64), Ring()),
    "angle": lambda: largest_angle(orthonormal(TABLE, 1e-9), orthonormal(OTHER, 1e-9)),
}


@pytest.mark.parametrize("name", WORKS)
def test_the_number_of_threads_changes_no_bit(name: str) -> None:
    with one_blas_thread():
        one = np.asarray(WORKS[name]())
        with server_threads(3):
            assert np.asarray(WORKS[name]()).tobytes() == one.tobytes()


def test_products_are_those_of_numpy() -> None:
    np.testing.assert_allclose(inner_product(TABLE, OTHER), TABLE.T @ OTHER, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(multiply_table(TABLE, MATRIX), TABLE @ MATRIX, rtol=1e-12, atol=1e-12)
    assert inner_product(TABLE[:0], OTHER[:0]).tolist() == np.zeros((7, 5)).tolist()
    assert multiply_table(TABLE[:0], MATRIX).shape == (0, 7)


@pytest.mark.parametrize("n_rows", [0, 1, BLOCK_ROWS, BLOCK_ROWS + 1, 5 * BLOCK_ROWS])
def test_blocks_are_all_rows_in_order(n_rows: int) -> None:
    for threads in (1, 4):
        with server_threads(threads):
            found = map_blocks(lambda rows: list(range(n_rows))[rows], n_rows)
        assert [row for block in found for row in block] == list(range(n_rows))


def test_blas_has_one_thread_within_and_its_own_number_after() -> None:
    def threads() -> list[int]:
        return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]

    before = threads()
    for _ in range(2):
        with one_blas_thread():
            assert set(threads()) == {1}
        assert threads() == before
