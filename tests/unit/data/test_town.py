"""The generated town: repeatable, skewed, and worth learning."""

from __future__ import annotations

import importlib
import tracemalloc

import numpy as np
import pytest

from tacit.data import SplitConfig, load, split, town
from tacit.random import Key


def test_the_same_seed_gives_the_same_town_and_another_does_not():
    one, two, other = town(50, 40, 10, seed=3), town(50, 40, 10, seed=3), town(50, 40, 10, seed=4)
    assert one.interactions.items.tolist() == two.interactions.items.tolist()
    assert one.interactions.times.tolist() == two.interactions.times.tolist()
    assert one.interactions.items.tolist() != other.interactions.items.tolist()


def test_a_person_does_the_same_whoever_else_lives_there(monkeypatch):
    few, many = town(30, 40, 10), town(60, 40, 10)
    n = len(few)
    assert many.interactions.items[:n].tolist() == few.interactions.items.tolist()
    monkeypatch.setattr(importlib.import_module("tacit.data.town"), "_CHUNK", 7)
    assert town(60, 40, 10).interactions.items.tolist() == many.interactions.items.tolist()


def test_people_and_places_look_like_a_town():
    data = load("town", graph=True)
    log, catalog = data.interactions, data.catalog
    assert (data.n_users, data.n_items) == (1000, 800)
    assert 30 < len(data) / data.n_users < 45
    assert np.isfinite(catalog.coordinates).all()
    assert len(set(catalog.titles)) == 800
    assert all(len(catalog.categories.of(item)) == 1 for item in range(0, 800, 50))
    assert catalog.title(0).startswith(catalog.categories.of(0)[0])
    assert set(log.values.tolist()) == {1.0, 2.0, 3.0, 4.0, 5.0}
    span = log.times.max() - log.times.min()
    assert 350 * 86_400 < span < 366 * 86_400
    raw = load("town", duplicates="keep")
    assert len(raw) > 1.3 * len(data)  # people return
    popularity = np.sort(np.bincount(log.items))[::-1]
    assert 0.25 < popularity[:80].sum() / popularity.sum() < 0.45  # a tenth of the places


def test_the_graph_says_in_words_what_the_places_are():
    graph = load("town", graph=True).catalog.graph
    assert (graph.item_entity >= 0).all()
    assert set(graph.relation_names) == {"category", "neighbourhood", "price", "owner", "kind", "side of town", "home"}
    place = graph.item_entity[0]
    facts = {graph.relation_names[r]: graph.entities[t] for r, t in zip(
        graph.relations[graph.heads == place], graph.tails[graph.heads == place], strict=True)}  # fmt: skip
    title = load("town").catalog.title(0)
    assert facts["category"] in title
    assert facts["neighbourhood"] in title
    assert load("town").catalog.graph is None


def test_size_is_an_option():
    data = load("town", users=20, places=2000, visits=12, seed=5)
    assert data.n_users == 20
    assert data.n_items < 240  # only places that were visited are in the catalogue


def test_tastes_can_be_learnt_but_not_too_well():
    """Random < most popular < EASE, by clear but human margins (recall@10)."""
    parted = split(load("town"), SplitConfig(), Key(0))
    truth, _ = parted.test.open()
    history = parted.train.matrix().toarray()
    wanted = truth.matrix().toarray() > 0

    def recall(scores):
        scores = np.where(history > 0, -np.inf, scores)
        top = np.argpartition(-scores, 10, axis=1)[:, :10]
        return float((np.take_along_axis(wanted, top, 1).sum(1) / np.maximum(wanted.sum(1), 1)).mean())

    gram = (history.T @ history).astype(np.float64)
    inverse = np.linalg.inv(gram + 300 * np.eye(len(gram)))
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0)
    chance = recall(Key(1).uniform(np.arange(len(history)), history.shape[1]))
    popular = recall(np.tile(history.sum(0), (len(history), 1)))
    ease = recall(history @ weights)
    assert chance < 0.03
    assert 4 * chance < popular < 0.2
    assert 1.4 * popular < ease < 0.4


@pytest.mark.slow
def test_a_larger_town_needs_memory_for_its_log_not_for_people_times_places():
    tracemalloc.start()
    data = town(20_000, 10_000, 5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 90_000 < len(data) < 110_000
    assert peak < 20_000 * 10_000 * 2  # bytes; a table of people and places would take 1,600 MB in float64
