"""Chance and popularity."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tacit.methods.base import build
from tacit.random import Key
from tacit.types import Catalog, Clients, Reason, Vocabulary


def catalog(n: int) -> Catalog:
    return Catalog(Vocabulary(np.arange(n)))


def test_popularity_counts_people_and_not_repeats_and_has_no_ties(cohort) -> None:
    clients = cohort([[0, 0, 0, 2], [2], [2, 3]], 5)
    method = build("most-popular")
    model = next(method.fit(clients, catalog(5), Key(0)))
    assert method.score(model.shared, {}, clients).tolist() == [[4, 2, 5, 3, 1]] * 3
    assert model.shared["people"].tolist() == [1, 0, 3, 1, 0]
    assert method.explain(model.shared, {}, clients.take([1]), 2) == [Reason("popularity", 3, 1.0)]


def test_random_is_uniform_and_follows_seed_and_person(crowd: Clients) -> None:
    method, crowd = build("random"), replace(crowd, n_items=500)
    model = next(method.fit(crowd, catalog(500), Key(1)))
    scores = method.score(model.shared, {}, crowd)
    assert scores.shape == (25, 500)
    assert abs(scores.mean() - 0.5) < 0.01
    assert abs(np.corrcoef(scores)[0, 1:]).max() < 0.2, "two people share an order"
    assert np.array_equal(method.score(model.shared, {}, crowd.take([4, 2])), scores[[4, 2]])
    other = next(method.fit(crowd, catalog(500), Key(2)))
    assert not np.array_equal(method.score(other.shared, {}, crowd), scores)
    assert method.explain(model.shared, {}, crowd.take([0]), 3) == []
