"""What holds for every method by sums when items that no history has get rows from public vectors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tacit.errors import ConfigError, MethodError
from tacit.lab.guarantee import build_privacy
from tacit.lab.simulation import simulate
from tacit.methods.base import build, entry, names, options
from tacit.methods.parts import cold_items
from tacit.methods.parts.cold_items import DRAWS
from tacit.methods.parts.sums import BySums
from tacit.privacy.dp import DPConfig
from tacit.protocols.federated import UpdatePath, device_round
from tacit.protocols.rounds import RoundsConfig
from tacit.random import Key
from tacit.testing import two_tastes
from tacit.types import Array, Catalog, Clients, Model
from tacit.updates import Ring

BY_SUMS = [name for name in names("federated") if issubclass(type(build(name)), BySums)]
CONTENT = {"content": 0.5}  # of fed-svd
WAYS = [*((name, {}) for name in BY_SUMS), ("fed-svd", CONTENT)]
KEY = Key(5).child("learn")
COLD = (4, 9)  # an even and an odd item that no client has
World = tuple[Clients, Catalog]


def made(name: str, cold: Any, **given: Any) -> Any:
    fields = entry(name).config.model_fields
    few = {"factors": 4, "epochs": 3, "sketch": 8} | given
    return build(name, options(name, {k: v for k, v in few.items() if k in fields} | {"cold_items": cold}))


def final(method: Any, there: World) -> Model:
    return list(simulate(UpdatePath(method, (), Ring()), *there, KEY))[-1]


@pytest.fixture(scope="module")
def there() -> World:
    clients, catalog = two_tastes()
    return clients.keep(~np.isin(clients.items, COLD)), catalog


def scores(method: Any, there: World) -> Array:
    found: Array = method.score(final(method, there).shared, {}, there[0])
    return found


def test_there_are_methods_by_sums() -> None:
    assert BY_SUMS == ["fed-als", "fed-ease", "fed-slist", "fed-svd"]


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_items_without_history_are_ranked_high_for_users_whom_they_suit(
    name: str, way: dict[str, float], there: World
) -> None:
    """The vector of an item says its parity, and nothing else is known of it."""
    found, even = scores(made(name, {"reg": 0.1, **way}), there)[:, COLD], there[0].ids % 2 == 0
    assert (found[even, 0] > found[even, 1]).all()
    assert (found[~even, 0] < found[~even, 1]).all()


def test_full_width_gives_such_items_a_row_too(there: World) -> None:
    found = scores(made("fed-slist", {"reg": 0.1}, factors=there[1].n_items), there)[:, COLD]
    even = there[0].ids % 2 == 0
    assert (found[even, 0] > found[even, 1]).all()


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_other_items_keep_their_scores_bit_for_bit(name: str, way: dict[str, float], there: World) -> None:
    without, found = scores(made(name, None), there), scores(made(name, way), there)
    others = np.setdiff1d(np.arange(there[1].n_items), COLD)
    assert np.array_equal(without[:, others], found[:, others])
    assert not without[:, COLD].any()
    assert found[:, COLD].any()


@pytest.mark.parametrize("features", [0, 40])
@pytest.mark.parametrize("name", BY_SUMS)
def test_rows_are_a_ridge_regression_of_those_that_the_method_gives(
    name: str, features: int, there: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are the learnt rows, but for fed-svd. With features there are two regressions, the second on the first's."""
    method = made(name, {"reg": 3.0, "weight": 0.5, "boost": 2.0, "features": features})
    given: list[Array] = []
    give = method.rows_to_map
    monkeypatch.setattr(method, "rows_to_map", lambda *args: given.append(give(*args)) or given[-1])
    shared = final(method, there).shared
    assert np.array_equal(given[-1], method.learnt_rows(shared)) == (name != "fed-svd")
    rows, counts = given[-1], there[0].matrix().getnnz(axis=0)
    known = counts > 0
    weights = np.sqrt(counts[known]) / np.sqrt(counts[known]).mean()
    assert there[1].vectors is not None
    vectors = np.hstack([there[1].vectors, np.ones((len(rows), 1))]).astype(np.float64)
    roots, wanted = np.sqrt(weights)[:, None], rows[known].astype(np.float64)
    if features:
        first = regression(vectors[known], wanted, roots)
        without = np.array(
            [
                vectors[known][at]
                @ regression(*(np.delete(one, at, axis=0) for one in (vectors[known], wanted, roots)))
                for at in range(known.sum())
            ]
        )
        size = np.sqrt(((without - without.mean(axis=0)) ** 2).sum(axis=1).mean())
        predicted = vectors @ first / size
        predicted[known] = without / size
        vectors = np.hstack([random_features(predicted, features), vectors])
    expected = 2.0 * vectors[~known] @ regression(vectors[known], wanted, roots)
    np.testing.assert_allclose(method.scored_rows(shared)[~known], expected, rtol=1e-3, atol=2e-5)


def regression(inputs: Array, wanted: Array, roots: Array) -> Array:
    """Return a ridge regression with reg 3 and a free constant term, by least squares."""
    width = inputs.shape[1]
    penalty = np.diag([3.0] * (width - 1) + [0.0]) ** 0.5
    left = np.vstack([roots * inputs, penalty])
    found: Array = np.linalg.lstsq(left, np.vstack([roots * wanted, np.zeros((width, wanted.shape[1]))]))[0]
    return found


def random_features(vectors: Array, n_features: int) -> Array:
    """Return cosines, so that the products of two rows approach three times a Gaussian kernel."""
    keys = DRAWS.child("directions"), DRAWS.child("phases")
    directions = np.sqrt(0.6) * keys[0].normal(np.arange(vectors.shape[1]), n_features).astype(np.float64)
    phases = 2.0 * np.pi * keys[1].uniform(np.arange(n_features), 1)[:, 0]
    found: Array = np.cos(vectors @ directions + phases) * np.sqrt(6 / n_features)
    return found


def test_products_of_random_features_approach_a_gaussian_kernel() -> None:
    vectors = np.random.default_rng(1).normal(size=(6, 3)) / 2
    features = random_features(vectors, 8000)
    expected = 3 * np.exp(-0.3 * ((vectors[:, None] - vectors[None]) ** 2).sum(axis=2))
    np.testing.assert_allclose(features @ features.T, expected, atol=0.15)


@pytest.mark.parametrize("way", [{}, {"shrinkage": 2.0}, CONTENT], ids=str)
def test_fed_svd_maps_to_regressions_on_the_other_items_of_each_history(
    way: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a ridge regression says of an item from the histories without it, written out."""
    clients, catalog = two_tastes()
    catalog = replace(catalog, vectors=np.random.default_rng(2).normal(size=(catalog.n_items, 3)).astype(np.float32))
    method = made("fed-svd", way, factors=3 if way == CONTENT else catalog.n_items, epochs=40, item_weight=0.5)
    given: list[Array] = []
    give = method.rows_to_map
    monkeypatch.setattr(method, "rows_to_map", lambda *args: given.append(give(*args)) or given[-1])
    shared = final(method, (clients, catalog)).shared
    rows, x = given[-1], clients.matrix().toarray()
    basis, weights = method._directions(shared).astype(np.float64), shared["weights"].astype(np.float64)
    assert catalog.vectors is not None
    content = [way["content"] * catalog.vectors] if "content" in way else []
    each = weights[:, None] * np.hstack([basis, *content])  # what an item adds to the vector of a client
    projected = x @ each
    gram = projected.T @ projected
    others = np.array([sum(projected[u] - each[i] for u in np.flatnonzero(x[:, i])) for i in range(len(each))])
    shrunk = way.get("shrinkage", 0.5) * np.diag(gram)[: basis.shape[1]].mean()
    expected = others @ np.linalg.inv(gram + shrunk * np.eye(len(gram)))
    users = method.project_users(shared, clients).astype(np.float64)
    np.testing.assert_allclose(users @ rows.T, projected @ expected.T, atol=2e-3)


def test_with_content_rows_have_a_number_more_for_each_of_a_vector_and_stay_bounded(there: World) -> None:
    """The table stays orthonormal, on which the bound of what a client sends rests."""
    method = made("fed-svd", CONTENT, item_weight=0.0)
    for model in simulate(UpdatePath(method, (), Ring()), *there, KEY):
        basis = model.shared["basis"].astype(np.float64)
        kept = basis[:, basis.any(axis=0)]
        np.testing.assert_allclose(kept.T @ kept, np.eye(kept.shape[1]), atol=1e-5)
        assert there[1].vectors is not None
        assert basis.shape[1] == 4 + there[1].vectors.shape[1]
    received = Model(method.spec.received(model.shared), {})
    message = device_round(UpdatePath(method, (), Ring()), received, there[0].take([3]), KEY, 1).message
    assert message is not None
    sent = message.read(Ring()).tables["basis"].values
    assert sent.shape[1] == basis.shape[1]
    assert np.linalg.norm(sent) <= method.outer.bound(int(there[0].sizes[3])) + 1e-3


def test_content_is_refused_where_histories_have_weights() -> None:
    with pytest.raises(MethodError, match="user_weight"):
        made("fed-svd", CONTENT, user_weight=0.5)


def test_rows_of_cold_items_are_made_once_for_a_model(there: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for every user that is served; another model, or a catalogue that has grown, has other rows."""
    method = made("fed-svd", {"features": 8})
    models = [one.shared for one in simulate(UpdatePath(method, (), Ring()), *there, KEY)]
    expected = [made("fed-svd", {"features": 8}).score(shared, {}, there[0]) for shared in models]
    counted: list[int] = []
    make = cold_items._features
    monkeypatch.setattr(cold_items, "_features", lambda *args: counted.append(1) or make(*args))
    for shared, scores in zip(models, expected, strict=True):
        for client in range(3):
            np.testing.assert_allclose(method.score(shared, {}, there[0].take([client]))[0], scores[client], rtol=1e-5)
    assert len(counted) == len(models) == 3


@pytest.mark.parametrize("name", BY_SUMS)
def test_devices_send_what_they_send_without_it(name: str, there: World) -> None:
    sent = []
    for cold in (None, {}):
        method = made(name, cold)
        model = Model(method.spec.received(final(method, there).shared), {})
        message = device_round(UpdatePath(method, (), Ring()), model, there[0].take([3]), KEY, 1).message
        assert message is not None
        sent.append(message.tables)
    for table, arrays in sent[0].items():
        assert all(np.array_equal(a, b) for a, b in zip(arrays, sent[1][table], strict=True))


@pytest.mark.parametrize("name", BY_SUMS)
def test_under_noise_the_map_is_computed_from_what_was_released(name: str, there: World) -> None:
    """The same noisy sums, spent budget and rows with and without it; the map repeats from the released sum alone."""
    clients, catalog = there
    found = []
    for cold in (None, {"below": 0.01}):
        method = made(name, cold)
        stage = build_privacy(
            DPConfig(epsilon=4.0, delta=1e-3, bound=1.0), method, clients, catalog, KEY, Ring(), RoundsConfig()
        )
        path = UpdatePath(method, (stage,), Ring())
        found.append((method, path, list(simulate(path, clients, catalog, KEY))[-1].shared))
    (plain, path, without), (method, with_path, shared) = found
    assert path.budget_share(without) == with_path.budget_share(without)
    for array in plain.spec.downloads:
        assert np.array_equal(without[array], shared[array]), "noise, budget or rows changed"
    assert np.array_equal(plain.learnt_rows(without), method.learnt_rows(shared))
    assert {*shared} - {*without} == {"vectors", "cold_map", "known"}


OPTIONS = [{"reg": 1.0}, {"features": 8}, {"weight": 1.0}, {"below": 12.0}, {"boost": 3.0}]


@pytest.mark.parametrize(
    ("name", "option"),
    [
        *((name, option) for name in BY_SUMS for option in OPTIONS),
        ("fed-svd", {"shrinkage": 4.0}),
        ("fed-svd", CONTENT),
    ],
    ids=str,
)
def test_every_option_of_the_map_has_an_effect(name: str, option: dict[str, float], there: World) -> None:
    assert not np.array_equal(scores(made(name, {}), there), scores(made(name, option), there))


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_an_item_that_joins_the_catalogue_has_a_row_at_once(name: str, way: dict[str, float]) -> None:
    """Before any sum that it is part of: as if it had been there, in no history."""
    clients, catalog = two_tastes()
    last = catalog.n_items - 1
    kept = clients.keep(clients.items != last)
    method = made(name, {"reg": 0.1, **way})
    small = catalog.take(np.arange(last))
    before = replace(kept, n_items=last)
    learnt = final(method, (before, small)).shared
    first, after = (method.init(c, k, KEY.child("init")).shared for c, k in ((before, small), (kept, catalog)))
    grown = method.grow(learnt, first, after)
    found = method.score(grown, {}, kept)
    np.testing.assert_allclose(found[:, :last], method.score(learnt, {}, before), rtol=1e-5, atol=1e-6)
    odd = clients.ids % 2 == 1
    assert found[odd, last].min() > found[~odd, last].max()


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_reasons_are_given_for_such_items(name: str, way: dict[str, float], there: World) -> None:
    method = made(name, {"reg": 0.1, **way})
    client = there[0].take([1])
    found = method.explain(final(method, there).shared, {}, client, COLD[1])
    assert found
    assert all(reason.about in client.items for reason in found)


@pytest.mark.parametrize("name", BY_SUMS)
def test_a_catalogue_without_vectors_is_refused(name: str, there: World) -> None:
    with pytest.raises(MethodError, match=r"data\.vectors"):
        made(name, {}).init(there[0], replace(there[1], vectors=None), KEY)


@pytest.mark.parametrize("name", ["ease", "fpl", "most-popular"])
def test_methods_without_such_rows_refuse_the_option(name: str) -> None:
    with pytest.raises(ConfigError):
        options(name, {"cold_items": {}})
