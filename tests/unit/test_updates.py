"""The ring and the sum: exact on its grid, and loud outside of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import DivergedError
from tacit.updates import Message, Release, Ring, Rows, Total, Update


@given(st.lists(st.integers(-(2**24), 2**24), min_size=1, max_size=30), st.integers(4, 23))
def test_numbers_on_the_grid_come_back_as_they_were(steps: list[int], fraction: int) -> None:
    ring = Ring(fraction=fraction)
    values = np.array(steps, np.float32) / ring.scale
    numbers = ring.encode(values)
    assert np.array_equal(numbers, steps)
    assert np.array_equal(ring.decode(numbers), values)


@pytest.mark.parametrize("value", [16.5, -17.0, np.inf, np.nan])
def test_a_value_that_does_not_fit_is_an_error_with_a_hint(value: float) -> None:
    with pytest.raises(DivergedError, match=r"does not fit the ring, which holds 16.*method.learning_rate"):
        Ring().encode(np.array([[0.0, value]], np.float32))


def test_the_largest_value_fits() -> None:
    assert Ring().encode(np.array([16.0, -16.0], np.float32)).tolist() == [2**24, -(2**24)]
    assert Ring().encode(np.zeros((0, 3), np.float32)).shape == (0, 3)


def test_a_sum_beyond_32_bits_is_refused_there_and_allowed_in_64() -> None:
    for sum_ in (2**31, -(2**31)):
        with pytest.raises(DivergedError, match=r"32 bits.*runtime.ring.bits=64"):
            Ring(bits=32).check(np.array([[1, sum_]]))
        Ring(bits=64).check(np.array([[1, sum_]]))
    Ring(bits=32).check(np.array([2**31 - 1, 1 - 2**31]))


def message(clients: list[int], ids: list[int], numbers: list[list[int]]) -> Message:
    ptr = np.linspace(0, len(ids), len(clients) + 1).astype(np.int64)
    nothing = np.zeros(len(clients), np.int64)
    rows = ptr, np.array(ids, np.int32), np.array(numbers)
    return Message(np.array(clients), {"items": rows}, Release(nothing, nothing, nothing))


def test_rows_that_occur_twice_are_added_twice() -> None:
    zero = Total.zero({"items": (3, 2)})
    total = zero.received(message([4], [1, 1, 2], [[1, 2], [10, 20], [5, 5]]))
    assert total.sums["items"].tolist() == [[0, 0], [11, 22], [5, 5]]
    assert total.counts["items"].tolist() == [0, 2, 1]
    assert total.n_clients == 1
    assert not zero.sums["items"].any(), "a sum that was given stays as it was"


def test_an_update_is_narrowed_to_some_clients_in_their_order() -> None:
    rows = Rows(np.array([0, 2, 2, 3]), np.array([7, 8, 9], np.int32), np.array([[1.0], [2.0], [3.0]], np.float32))
    update = Update(np.array([50, 60, 70]), {"items": rows}, {"items": np.array([True, False, True])})
    taken = update.take(np.array([2, 0]))
    assert taken.clients.tolist() == [70, 50]
    assert taken.tables["items"].ptr.tolist() == [0, 1, 3]
    assert taken.tables["items"].ids.tolist() == [9, 7, 8]
    assert taken.sensitive["items"].tolist() == [True, True, False]
