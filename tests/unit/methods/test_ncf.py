"""GMF, MLP and NeuMF learnt in one place, on worlds whose right answer is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tacit.errors import ConfigError, DivergedError, MethodError
from tacit.kernels.losses import LOSSES
from tacit.methods.base import build, options
from tacit.random import Key
from tacit.testing import two_tastes
from tacit.types import Catalog, Clients, Vocabulary, offsets

EVERY = pytest.mark.parametrize("name", ["gmf", "mlp", "neumf"])


def _learn(name, clients, catalog, key=None, **given):
    method = build(name, options(name, given))
    for model in method.fit(clients, catalog, key or Key(1)):
        last = model
    return method, last


@EVERY
@pytest.mark.parametrize("loss", LOSSES)
def test_two_tastes_are_learnt(name, loss):
    clients, catalog = two_tastes(60, 20)
    given = {"epochs": 25, "learning_rate": 0.01, "batch_size": 64, "init_scale": 0.1, "loss": loss}
    method, model = _learn(name, clients, catalog, **given)
    scores = method.score(model.shared, model.private, clients)
    unseen = clients.matrix().toarray() == 0
    own = (np.arange(20) % 2)[None, :] == (clients.ids % 2)[:, None]
    gaps = [scores[c, unseen[c] & own[c]].mean() - scores[c, unseen[c] & ~own[c]].mean() for c in range(len(clients))]
    assert np.mean(np.array(gaps) > 0) >= 0.9, "people who are not recommended what they like"
    assert np.mean(gaps) > 1
    reasons = method.explain(model.shared, {"users": model.private["users"][:1]}, clients.take([0]), 1)
    assert all(r.kind == "history" and r.about in clients.of(0) for r in reasons)


def test_explanations_name_items_of_the_same_taste():
    clients, catalog = two_tastes(60, 20)
    method, model = _learn("gmf", clients, catalog, epochs=40, learning_rate=0.02, batch_size=64)
    mixed = Clients(np.array([0]), np.array([0, 4]), np.array([0, 2, 5, 7], np.int32), 20)
    assert {r.about for r in method.explain(model.shared, model.private, mixed, 12)[:2]} == {0, 2}
    assert {r.about for r in method.explain(model.shared, model.private, mixed, 13)[:2]} == {5, 7}


@EVERY
def test_model_is_yielded_after_every_epoch_and_changes_with_the_key_only(name):
    clients, catalog = two_tastes(60, 20)
    method = build(name, options(name, {"epochs": 3}))
    first = [model.copy() for model in method.fit(clients, catalog, Key(4))]
    again = [model.copy() for model in method.fit(clients, catalog, Key(4))]
    other = [model.copy() for model in method.fit(clients, catalog, Key(5))]
    assert len(first) == 3
    for part, array in first[-1].shared.items():
        np.testing.assert_array_equal(array, again[-1].shared[part])
    np.testing.assert_array_equal(first[-1].private["users"], again[-1].private["users"])
    assert not np.array_equal(first[0].shared["items"], first[1].shared["items"])
    assert not np.array_equal(first[-1].shared["items"], other[-1].shared["items"])


def test_what_is_to_be_avoided_is_learnt_less_against():
    clients, catalog = two_tastes(60, 20)
    heldout = np.array([(clients.of(c)[0] + 2) % 20 for c in range(len(clients))], np.int32)
    avoid = Clients(clients.ids, np.arange(len(clients) + 1), heldout, 20)
    given = {"epochs": 60, "learning_rate": 0.02, "batch_size": 64, "factors": 16}
    gaps = []
    for cohort in (clients, replace(clients, avoid=avoid)):
        method, model = _learn("gmf", cohort, catalog, **given)
        scores = method.score(model.shared, model.private, cohort)
        gaps.append(scores[np.arange(len(clients)), heldout].mean())
    assert gaps[1] > gaps[0] + 0.5, "the leak that 'avoid' reproduces must show"


@pytest.mark.parametrize("loss", ["bpr", "softmax"])
def test_who_has_everything_has_nothing_to_compare(loss):
    ptr, items = offsets(np.array([6, 2, 6])), np.concatenate([np.arange(6), [1, 4], np.arange(6)]).astype(np.int32)
    clients, catalog = Clients(np.arange(3), ptr, items, 6), Catalog(Vocabulary(np.arange(6)))
    _, model = _learn("gmf", clients, catalog, epochs=3, loss=loss)
    start = build("gmf").shape.init_private(clients.ids, Key(1).child("init"), 0.01)["users"]
    moved = (model.private["users"] != start).any(axis=1)
    assert moved.tolist() == [False, True, False]


def test_alone_only_touched_rows_move():
    clients, _ = two_tastes(60, 20)
    catalog = Catalog(Vocabulary(np.arange(5000)))
    one = replace(clients.take([3]), n_items=5000)
    method = build("gmf", options("gmf", {"epochs": 2}))
    start = method.shape.init_shared(5000, Key(1).child("init"), 0.01)["items"]
    _, model = _learn("gmf", one, catalog, epochs=2)
    moved = (model.shared["items"] != start).any(axis=1)
    assert moved[one.items].all()
    assert moved.sum() <= 5 + 2 * 5 * 4


def test_divergence_is_an_error_with_a_hint():
    clients, catalog = two_tastes(60, 20)
    with pytest.raises(DivergedError, match=r"epoch 1 .*smaller learning_rate"):
        _learn("neumf", clients, catalog, learning_rate=1e30, batch_size=16)


def test_nothing_to_learn_from_is_an_error():
    _, catalog = two_tastes(60, 20)
    empty = Clients(np.array([0]), np.array([0, 0]), np.empty(0, np.int32), 20)
    with pytest.raises(MethodError, match="nothing to learn"):
        _learn("gmf", empty, catalog)


def test_nothing_to_compare_is_an_error():
    everything = Clients(np.array([0]), np.array([0, 3]), np.arange(3, dtype=np.int32), 3)
    with pytest.raises(MethodError, match="loss=bpr"):
        _learn("gmf", everything, Catalog(Vocabulary(np.arange(3))), loss="bpr")


def test_options_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match=r"layers\.1"):
        options("mlp", {"layers": (8, 0)})
    with pytest.raises(ConfigError, match="negatives"):
        options("gmf", {"negatives": 0})
    with pytest.raises(ConfigError, match="Did you mean 'factors'"):
        options("neumf", {"factor": 3})


def test_someone_without_history_is_carried_along():
    clients, catalog = two_tastes(4, 20)
    ptr = np.array([*clients.ptr, clients.ptr[-1]])
    cohort = Clients(np.arange(5), ptr, clients.items, 20)
    method, model = _learn("neumf", cohort, catalog, epochs=2)
    assert np.isfinite(method.score(model.shared, model.private, cohort)).all()
