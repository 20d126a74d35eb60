"""Rows in order of several columns: the order that sorting by columns of any kind gives, also of equal rows."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.data.ordering import _order_columns, order_by

KINDS = ("int32", "int64", "huge", "uint64", "float32", "bool", "int8", "constant")


def column(kind: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return a column with ties, and with the ends of its type."""
    if kind == "constant":
        return np.full(n, 7)
    if kind == "huge":
        return rng.choice(np.array([np.iinfo(np.int64).min, -1, 0, 5, np.iinfo(np.int64).max]), n)
    if kind == "uint64":
        return rng.choice(np.array([0, 1, 2**63, 2**64 - 1], np.uint64), n)
    if kind == "float32":
        return rng.choice(np.array([-np.inf, -2.5, -1e-40, -0.0, 0.0, 1e-40, 0.5, 3.4e38, np.inf], np.float32), n)
    if kind == "bool":
        return rng.random(n) < 0.5
    return rng.integers(-20, 100, n).astype(kind)


@pytest.mark.parametrize("seed", range(40))
def test_packed_numbers_give_the_order_of_columns(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, kinds = int(rng.integers(0, 400)), rng.choice(KINDS, int(rng.integers(1, 6)))
    keys = [column(str(kind), n, rng) for kind in kinds]
    down = [bool(one) for one in rng.random(len(keys)) < 0.5]
    assert order_by(*keys, descending=down).tolist() == _order_columns(keys, down).tolist()


def test_columns_that_are_no_numbers_are_ordered_too() -> None:
    names, nan = np.array(["b", "a", "b"], object), np.array([np.nan, 1, 0], np.float32)
    assert order_by(names, np.array([1, 1, 0])).tolist() == [1, 2, 0]
    assert order_by(nan).tolist() == _order_columns([nan], [False]).tolist()
