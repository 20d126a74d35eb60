"""user-knn and item-knn against dense arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.methods.base import build, options
from tacit.random import Key
from tacit.types import Catalog, Clients, Model, Vocabulary

CATALOG = Catalog(Vocabulary(np.arange(12)))


def cosine(x: np.ndarray) -> np.ndarray:
    lengths = np.sqrt(x.sum(axis=1))
    similar = np.divide(x @ x.T, np.outer(lengths, lengths), out=np.zeros((len(x), len(x))), where=x @ x.T > 0)
    np.fill_diagonal(similar, 0.0)
    return similar


def best(similar: np.ndarray, k: int) -> np.ndarray:
    kept = np.zeros_like(similar)
    for row, values in enumerate(similar):
        order = np.argsort(-values.astype(np.float32), kind="stable")[:k]
        kept[row, order] = values[order]
    return kept


def fitted(name: str, clients: Clients, **given: object) -> tuple[object, Model]:
    method = build(name, options(name, given))
    return method, next(method.fit(clients, CATALOG, Key(0)))


@pytest.mark.parametrize("k", [1, 4, 100])
def test_user_knn_sums_the_neighbours(crowd: Clients, k: int) -> None:
    x = crowd.matrix().toarray().astype(float)
    method, model = fitted("user-knn", crowd, neighbours=k)
    np.testing.assert_allclose(method.score(model.shared, {}, crowd), best(cosine(x), k) @ x, atol=1e-5)


def test_user_knn_leaves_the_user_out_but_not_a_duplicate(crowd: Clients) -> None:
    method, model = fitted("user-knn", crowd, neighbours=1)
    double = Clients(np.array([-1]), crowd.take([3]).ptr, crowd.take([3]).items, 12)
    made_up_client = method.score(model.shared, {}, double)[0]
    assert set(np.flatnonzero(made_up_client)) >= set(crowd.of(3)), (
        "a new user's nearest neighbour is the client with the same history"
    )
    some = crowd.take([20, 3])
    np.testing.assert_array_equal(method.score(model.shared, {}, some), method.score(model.shared, {}, crowd)[[20, 3]])


def test_user_knn_says_how_many_neighbours_did_it(crowd: Clients) -> None:
    x = crowd.matrix().toarray().astype(float)
    method, model = fitted("user-knn", crowd, neighbours=4)
    weights = best(cosine(x), 4)[0]
    item = int(np.argmax(weights @ x))
    (reason,) = method.explain(model.shared, {}, crowd.take([0]), item)
    did = (weights > 0) & (x[:, item] > 0)
    assert (reason.kind, reason.about) == ("people", int(did.sum()))
    assert reason.weight == pytest.approx(weights[did].sum() / weights.sum(), rel=1e-5)
    assert method.explain(model.shared, {}, crowd.take([0]), 11) == []


def test_amplify_is_an_exponent(crowd: Clients) -> None:
    x = crowd.matrix().toarray().astype(float)
    method, model = fitted("user-knn", crowd, neighbours=5, amplify=2.0)
    np.testing.assert_allclose(method.score(model.shared, {}, crowd), best(cosine(x), 5) ** 2 @ x, atol=1e-5)


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("k", [1, 3, 100])
def test_item_knn_sums_the_similarities_of_the_history(crowd: Clients, k: int, normalise: bool) -> None:
    x = crowd.matrix().toarray().astype(float)
    weights = best(cosine(x.T), k)  # [to, from]: each item keeps its own nearest
    if normalise:
        totals = weights.sum(axis=1, keepdims=True)
        weights = np.divide(weights, totals, out=np.zeros_like(weights), where=totals > 0)
    method, model = fitted("item-knn", crowd, neighbours=k, normalise=normalise)
    np.testing.assert_allclose(method.score(model.shared, {}, crowd), x @ weights.T, atol=1e-5)
    item = int(np.argmax(np.where(x[0] == 0, x[0] @ weights.T, -1)))
    found = method.explain(model.shared, {}, crowd.take([0]), item)
    parts = {i: weights[item, i] for i in crowd.of(0) if weights[item, i] > 0}
    assert found
    for reason in found:
        assert reason.weight == pytest.approx(parts[reason.about] / sum(parts.values()), rel=1e-5)


@pytest.mark.parametrize("name", ["user-knn", "item-knn"])
def test_a_single_client_has_no_neighbours(name: str, crowd: Clients) -> None:
    one = crowd.take([2])
    method, model = fitted(name, one)
    scores = method.score(model.shared, {}, one)
    unseen = np.setdiff1d(np.arange(12), one.items)
    assert (scores[0, unseen] == 0).all()
