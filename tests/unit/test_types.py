"""Clients that no kernel could read are refused when they are made."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from tacit.errors import DataError
from tacit.types import Clients


@pytest.mark.parametrize("items", [[0, 4], [-2, 1]])
def test_items_beyond_the_catalogue_are_refused(items: list[int]) -> None:
    with pytest.raises(DataError):
        Clients(np.array([7]), np.array([0, 2]), np.array(items, np.int32), 4)


@pytest.mark.parametrize("ptr", [[0, 1], [1, 2, 3], [0, 1, 2], [0, 1, 4]])
def test_offsets_that_do_not_cover_the_histories_are_refused(ptr: list[int]) -> None:
    with pytest.raises(DataError):
        Clients(np.arange(2), np.array(ptr), np.array([0, 1, 2], np.int32), 4)


def test_items_outside_the_catalogue_and_empty_cohorts_are_clients() -> None:
    assert Clients(np.arange(1), np.array([0, 2]), np.array([-1, 3], np.int32), 4).sizes.tolist() == [2]
    assert len(Clients(np.empty(0, np.int64), np.zeros(1, np.int64), np.empty(0, np.int32), 0)) == 0


def test_taking_a_few_clients_makes_nothing_of_the_size_of_all() -> None:
    """Evaluations and rounds take some clients at a time: a pass over all of them for each would be quadratic."""
    n_clients = 100_000
    clients = Clients(np.arange(n_clients), np.arange(n_clients + 1), np.zeros(n_clients, np.int32), 1)
    clients.take([0])
    tracemalloc.start()
    try:
        assert clients.take([7, 99_999]).ids.tolist() == [7, 99_999]
        assert tracemalloc.get_traced_memory()[1] < n_clients
    finally:
        tracemalloc.stop()
