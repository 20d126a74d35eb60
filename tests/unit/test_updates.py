"""The ring and the sum: exact on its grid, and an error outside of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import DivergedError
from tacit.updates import Message, PlannedRows, Release, Ring, Total


@given(st.lists(st.integers(-(2**24), 2**24), min_size=1, max_size=30), st.integers(4, 23))
def test_numbers_on_the_grid_come_back_as_they_were(steps: list[int], fraction: int) -> None:
    ring = Ring(fraction=fraction)
    values = np.array(steps, np.float32) / ring.scale
    numbers = ring.encode(values)
    assert np.array_equal(numbers, steps)
    assert np.array_equal(ring.decode(numbers), values)


@pytest.mark.parametrize("value", [16.5, -17.0, np.inf, np.nan])
def test_a_value_that_does_not_fit_is_an_error_with_a_hint(value: float) -> None:
    with pytest.raises(DivergedError, match=r"does not fit the ring, whose largest value is 16.*method.learning_rate"):
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
    total = Total.zero({"items": (3, 2)})
    total.add(message([4], [1, 1, 2], [[1, 2], [10, 20], [5, 5]]))
    assert total.sums["items"].tolist() == [[0, 0], [11, 22], [5, 5]]
    assert total.counts["items"].tolist() == [0, 2, 1]
    assert total.n_clients == 1
    assert not total.zero_like().sums["items"].any()


def test_a_message_is_read_as_the_numbers_it_holds() -> None:
    ring, sent = Ring(fraction=4), message([50, 60], [7, 8], [[16, -8], [1, 40]])
    sent = replace(sent, sensitive={"items": np.array([True, False])})
    update = sent.read(ring)
    assert update.clients.tolist() == [50, 60]
    assert update.tables["items"].ptr.tolist() == [0, 1, 2]
    assert update.tables["items"].ids.tolist() == [7, 8]
    assert update.tables["items"].values.tolist() == [[1.0, -0.5], [0.0625, 2.5]]
    assert update.sensitive["items"].tolist() == [True, False]


PLANNED = PlannedRows(
    "items",
    np.array([0, 2, 2, 3]),
    np.array([7, 8, 9], np.int32),
    np.array([True, False, True]),
    kept=np.array([1, 0, 1], np.uint8),
)


def test_planned_rows_are_cut_to_a_range_of_clients() -> None:
    last = PLANNED.cut(slice(1, 3))
    assert last.ptr.tolist() == [0, 0, 1]
    assert last.ids is not None
    assert last.ids.tolist() == [9]
    assert last.marks().tolist() == [True]
    assert last.kept is not None
    assert last.kept.tolist() == [1]
    every = PlannedRows("items", np.arange(4) * 5, None, False).cut(slice(0, 2))
    assert every.n_rows == 10
    assert every.ids is None
    assert every.kept is None
    assert not every.marks().any()


def test_planned_rows_say_how_many_of_each_client_may_leave() -> None:
    assert PLANNED.n_rows == 3
    assert PLANNED.kept_sizes().tolist() == [1, 0, 1]
    assert replace(PLANNED, kept=None).kept_sizes().tolist() == [2, 0, 1]
    assert replace(PLANNED, sensitive=True).marks().tolist() == [True] * 3
