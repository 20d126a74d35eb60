"""The cohorts that `tacit.testing` makes are what they are said to be."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from helpers.waiting import LONG
from tacit.errors import ConfigError
from tacit.methods.base import Federated, build_federated, methods, register
from tacit.methods.parts.class_check import check_class
from tacit.testing import make_clients, two_tastes
from tacit.types import Config


def test_histories_become_clients_with_sorted_items() -> None:
    avoid = make_clients([[3], [0]], 4)
    clients = make_clients([[2, 0], []], 4, ids=[7, 5], avoid=avoid)
    assert clients.ids.tolist() == [7, 5]
    assert [clients.of(c).tolist() for c in range(2)] == [[0, 2], []]
    assert (clients.n_items, clients.avoid) == (4, avoid)
    assert len(make_clients([], 4)) == 0


@pytest.mark.parametrize(("n_clients", "n_items"), [(40, 24), (7, 11)])
def test_every_client_has_half_of_what_it_likes_and_the_catalogue_knows_the_tastes(
    n_clients: int, n_items: int
) -> None:
    clients, catalog = two_tastes(n_clients, n_items)
    assert len(clients) == n_clients
    assert catalog.n_items == clients.n_items == n_items
    for client in range(n_clients):
        liked = np.arange(client % 2, n_items, 2)
        own = clients.of(client)
        assert set(own) < set(liked)
        assert len(own) == len(liked) // 2
    assert catalog.categories is not None
    assert catalog.graph is not None
    for item in range(n_items):
        assert catalog.item_ids[item] == item + 100
        assert ("odd" if item % 2 else "even") in catalog.categories.of(item)
    tails = catalog.graph.tails[catalog.graph.relations == 0]
    assert [catalog.graph.entities[int(tail)] for tail in tails] == [("even", "odd")[i % 2] for i in range(n_items)]


def test_a_seed_gives_one_cohort() -> None:
    first, again, other = (two_tastes(seed=seed)[0].items for seed in (3, 3, 4))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.slow
def test_it_needs_no_package_that_only_tests_need() -> None:
    code = "import sys, tacit.testing; sys.exit(bool({'pytest', 'hypothesis'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], timeout=LONG).returncode == 0


def test_a_part_that_takes_its_arguments_in_another_order_is_refused() -> None:
    class Swapped(type(build_federated("fed-gmf"))):  # type: ignore[misc]
        """Takes the key before the plan."""

        def learn(self, model, clients, key, plan, sink):  # type: ignore[no-untyped-def]
            return super().learn(model, clients, plan, sink, key)

    class Short(type(build_federated("fed-gmf"))):  # type: ignore[misc]
        """Does not take the key."""

        def plan(self, model, clients):  # type: ignore[no-untyped-def]
            return None

    class More(type(build_federated("fed-gmf"))):  # type: ignore[misc]
        """Can take more."""

        def plan(self, model, clients, key, more=None):  # type: ignore[no-untyped-def]
            return super().plan(model, clients, key)

    check_class("more", More, (Federated,))
    for wrong, part in ((Swapped, "learn"), (Short, "plan")):
        with pytest.raises(ConfigError, match=part):
            register("swapped", Config)(wrong)
    assert "swapped" not in methods()
