"""MultiVAE on worlds whose right answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.errors import DivergedError, MethodError
from tacit.methods.base import build, options
from tacit.random import Key
from tacit.testing import two_tastes
from tacit.types import Clients


def _learn(clients, catalog, **given):
    method = build("multi-vae", options("multi-vae", {"hidden": 16, "latent": 8, "batch_size": 10, **given}))
    for model in method.fit(clients, catalog, Key(1)):
        last = model
    return method, last


@pytest.fixture(scope="module")
def learnt():
    clients, catalog = two_tastes(60, 20)
    return clients, *_learn(clients, catalog, epochs=60, learning_rate=0.01)


def test_two_tastes_are_learnt(learnt):
    clients, method, model = learnt
    scores = method.score(model.shared, model.private, clients)
    unseen = clients.matrix().toarray() == 0
    own = (np.arange(20) % 2)[None, :] == (clients.ids % 2)[:, None]
    for c in range(len(clients)):
        assert scores[c, unseen[c] & own[c]].min() > scores[c, unseen[c] & ~own[c]].max(), f"person {c}"


def test_new_users_are_served_from_their_history(learnt):
    _, method, model = learnt
    made_up_client = Clients(np.array([-1, -1]), np.array([0, 3, 3]), np.array([1, 7, 9], np.int32), 20)
    scores = method.score(model.shared, {}, made_up_client)
    assert scores[0, [3, 5, 11]].min() > scores[0, [2, 4, 12]].max()
    assert np.isfinite(scores[1]).all(), "someone without any history"


def test_explanations_name_items_that_raised_the_score(learnt):
    _, method, model = learnt
    mixed = Clients(np.array([-1]), np.array([0, 4]), np.array([0, 2, 5, 7], np.int32), 20)
    even, odd = method.explain(model.shared, {}, mixed, 12), method.explain(model.shared, {}, mixed, 13)
    assert {r.about for r in even[:2]} == {0, 2}
    assert {r.about for r in odd[:2]} == {5, 7}
    assert sum(r.weight for r in even) == pytest.approx(1)
    single = Clients(np.array([-1]), np.array([0, 1]), np.array([4], np.int32), 20)
    assert [(r.about, r.weight) for r in method.explain(model.shared, {}, single, 12)] == [(4, 1.0)]


def test_same_key_same_bits_and_a_model_after_every_epoch():
    clients, catalog = two_tastes(60, 20)
    method = build("multi-vae", options("multi-vae", {"epochs": 3, "hidden": 16}))
    runs = [[m.copy().shared for m in method.fit(clients, catalog, Key(k))] for k in (1, 1, 2)]
    assert [len(run) for run in runs] == [3, 3, 3]
    for name, array in runs[0][-1].items():
        np.testing.assert_array_equal(array, runs[1][-1][name])
    assert not np.array_equal(runs[0][-1]["items_in"], runs[2][-1]["items_in"])
    assert not np.array_equal(runs[0][0]["items_in"], runs[0][1]["items_in"])


def test_alone_or_beside_someone_without_history_it_learns():
    clients, catalog = two_tastes(60, 20)
    method, model = _learn(clients.take([3]), catalog, epochs=3)
    assert np.isfinite(method.score(model.shared, {}, clients.take([3]))).all()
    gap = Clients(np.arange(3), np.array([0, 2, 2, 4]), np.array([0, 2, 4, 6], np.int32), 20)
    method, model = _learn(gap, catalog, epochs=3)
    assert np.isfinite(method.score(model.shared, {}, gap)).all()


def test_errors_are_clear():
    clients, catalog = two_tastes(60, 20)
    with pytest.raises(DivergedError, match="smaller learning_rate"):
        _learn(clients, catalog, learning_rate=1e30, epochs=3)
    with pytest.raises(MethodError, match="nothing to learn"):
        _learn(Clients(np.array([0]), np.array([0, 0]), np.empty(0, np.int32), 20), catalog)
