"""What holds for every registered federated method when its catalogue grows: what was learnt keeps its meaning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tacit.methods.base import Federated, build_federated, entry, names, options
from tacit.protocols.federated import UpdatePath, device_round, server_round
from tacit.random import Key
from tacit.testing import make_clients, two_tastes
from tacit.types import Array, Catalog, Clients, Model
from tacit.updates import Ring, Total

FEDERATED = names("federated")
TUNES_WHEN_IT_SCORES = {"reptile"}  # on negatives that are drawn from all items
KEY = Key(7).child("learn")
OLD = 20


def quick(name: str) -> Federated:
    fields = entry(name).config.model_fields
    few: dict[str, Any] = {"factors": 6, "learning_rate": 0.05}
    return build_federated(name, options(name, {k: v for k, v in few.items() if k in fields}))


def learn(method: Federated, model: Model, clients: Clients, rounds: range) -> Model:
    path, shared, private = UpdatePath(method, (), Ring()), dict(model.shared), dict(model.private)
    for number in rounds:
        total, own = Total.zero(method.shapes(shared)), Model(method.spec.received(shared, clients.ids), private)
        private = dict(device_round(path, own, clients, KEY, number, total).private)
        shared = dict(server_round(path, shared, total))
    return Model(shared, private)


def scores(method: Federated, model: Model, clients: Clients) -> Array:
    return method.score(method.spec.received(model.shared, clients.ids), model.private, clients)


class Grown:
    """A method that learnt with the first items of a catalogue, and its model under the whole."""

    def __init__(self, name: str) -> None:
        self.method = method = quick(name)
        self.later, self.catalog = two_tastes()
        small = self.catalog.take(np.arange(OLD))
        kept = [self.later.of(c)[self.later.of(c) < OLD] for c in range(len(self.later))]
        self.clients = make_clients(kept, OLD)
        self.same = replace(self.clients, n_items=self.catalog.n_items)
        first = method.init(self.clients, small, KEY.child("init"))
        self.before = learn(method, first, self.clients, range(3))
        self.first, self.after = first.shared, method.init(self.same, self.catalog, KEY.child("init"))
        self.model = self.grow(self.first, self.after.shared)

    def grow(self, first: Any, after: Any) -> Model:
        shared = self.method.grow(self.before.shared, first, after)
        return Model(shared, self.method.grow_private(self.before.private, first, after))


@pytest.mark.parametrize("name", FEDERATED)
def test_items_keep_their_scores_when_others_join(name: str) -> None:
    grown = Grown(name)
    found = scores(grown.method, grown.model, grown.same)
    assert found.shape == (len(grown.same), grown.catalog.n_items)
    if name in TUNES_WHEN_IT_SCORES:
        return
    old = scores(grown.method, grown.before, grown.clients)
    if name == "dp-svd":  # items that were not counted come last, behind all others
        assert found[:, OLD:].max() <= found[:, :OLD].min()
    np.testing.assert_allclose(found[:, :OLD], old, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", FEDERATED)
def test_new_items_are_learnt(name: str) -> None:
    """After further rounds with histories that hold them, new items are told apart."""
    grown = Grown(name)
    model = learn(grown.method, grown.model, grown.later, range(3, 9))
    found = scores(grown.method, model, grown.later)
    assert np.isfinite(found).all()
    if name == "dp-svd":  # its plan is done: it learns nothing more
        return
    new = found[:, OLD:]
    assert not np.allclose(new, new[:, :1]), "all new items have one score"


@pytest.mark.parametrize("name", FEDERATED)
def test_nothing_new_changes_nothing(name: str) -> None:
    grown = Grown(name)
    same = grown.grow(grown.first, grown.first)
    for part, learnt in ((same.shared, grown.before.shared), (same.private, grown.before.private)):
        assert part.keys() == learnt.keys()
        for array, was in ((part[key], learnt[key]) for key in part):
            assert np.array_equal(array, was)


def test_features_that_move_are_found_again() -> None:
    """Statements about a new item come before those of old ones: rows and a client's own features follow."""
    method = quick("kgflex")
    clients, catalog = two_tastes()
    order = np.arange(catalog.n_items)[::-1]
    assert catalog.graph is not None
    small = catalog.take(order[:OLD])
    own = [np.flatnonzero(np.isin(order[:OLD], clients.of(c))) for c in range(len(clients))]
    people = make_clients(own, OLD)
    first = method.init(people, small, KEY.child("init")).shared
    model = learn(method, method.init(people, small, KEY.child("init")), people, range(3))
    later = Clients(people.ids, people.ptr, people.items, catalog.n_items)
    after = method.init(later, _in_order(catalog, order), KEY.child("init")).shared
    assert first["names"].tolist() != after["names"].tolist()[: len(first["names"])]
    grown = Model(method.grow(model.shared, first, after), method.grow_private(model.private, first, after))
    found, old = scores(method, grown, later), scores(method, model, people)
    np.testing.assert_allclose(found[:, :OLD], old, rtol=1e-4, atol=1e-6)


def _in_order(catalog: Catalog, order: Array) -> Catalog:
    return catalog.take(order)
