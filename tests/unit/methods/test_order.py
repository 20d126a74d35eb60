"""Methods that know order, against naive loops over the steps of each history; and histories without an order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit.errors import DataError
from tacit.lab.simulation import simulate
from tacit.lab.training import PassOptions, passes
from tacit.methods.base import build, entry, methods, names, options
from tacit.methods.parts.order import ages, newest_rows, recent_matrix
from tacit.protocols.federated import UpdatePath
from tacit.random import Key
from tacit.testing import make_clients, two_tastes
from tacit.types import Catalog, Clients, Model, Vocabulary
from tacit.updates import Ring

KEY = Key(5)
HISTORIES = [[3, 1, 4, 0, 5], [2], [], [4, 1, 0], [5, 3, 2, 1, 0, 4], [6, 1]]
N_ITEMS = 8
CATALOG = Catalog(Vocabulary(np.arange(N_ITEMS)))


def fit(name: str, clients: Clients, **given: Any) -> tuple[Any, Model]:
    method = build(name, options(name, given))
    for model in method.fit(clients, CATALOG, KEY):
        last = model
    return method, last


def naive_steps(decay: float, target: float, v: float) -> tuple[np.ndarray, np.ndarray]:
    """Return S'S and S'T by writing out every source and every target."""
    gram, cross = np.zeros((N_ITEMS, N_ITEMS)), np.zeros((N_ITEMS, N_ITEMS))
    for history in HISTORIES:
        for t in range(len(history) - 1):
            s, after = np.zeros(N_ITEMS), np.zeros(N_ITEMS)
            for j in range(t + 1):
                s[history[j]] = np.exp(-(t - j) / decay)
            for k in range(t + 1, len(history)):
                after[history[k]] = np.exp(-(k - t - 1) / target) if target else float(k == t + 1)
            share = len(history) ** -v
            gram += share * np.outer(s, s)
            cross += share * np.outer(s, after)
    return gram, cross


@pytest.mark.parametrize(("decay", "target", "v"), [(3.0, 1.0, 0.0), (2.0, 2.0, 0.5), (5.0, 0.0, 0.0), (0.5, 8.0, 1.0)])
def test_slist_is_the_regression_of_all_steps(decay: float, target: float, v: float) -> None:
    gram, cross = naive_steps(decay, target, v)
    clients = make_clients(HISTORIES, N_ITEMS)
    method, model = fit("slist", clients, decay=decay, target_decay=target, reg=2.0, user_weight=v)
    weights = np.linalg.solve(gram + 2.0 * np.eye(N_ITEMS), cross)
    sources = np.zeros((len(HISTORIES), N_ITEMS))
    for c, history in enumerate(HISTORIES):
        for age, item in enumerate(history[::-1]):
            sources[c, item] = np.exp(-age / decay)
    np.testing.assert_allclose(method.score(model.shared, {}, clients), sources @ weights, rtol=1e-4, atol=1e-6)


def test_markov_counts_what_came_right_after() -> None:
    clients = make_clients([[0, 1, 2], [3, 0, 1], [0, 2], []], N_ITEMS)
    method, model = fit("markov", clients, smoothing=4.0)
    popularity = np.array([3, 2, 2, 1, 0, 0, 0, 0]) / 8
    steps = np.zeros(N_ITEMS)
    steps[[1, 2]] = [2, 1]  # after item 0
    new = make_clients([[5, 0], []], N_ITEMS, ids=[-1, -1])
    found = method.score(model.shared, {}, new)
    np.testing.assert_allclose(found[0], (steps + 4 * popularity) / (3 + 4), rtol=1e-6)
    np.testing.assert_allclose(found[1], popularity, rtol=1e-6)


def test_sessions_end_at_a_gap() -> None:
    """Items 0, 1 and 2, 3 are of one history, two days apart: only together with a long gap do they meet."""
    day = 86_400
    clients = Clients(
        np.array([0]), np.array([0, 4]), np.arange(4, dtype=np.int32), N_ITEMS, times=np.array([0, 60, day, day + 60])
    )
    asks = make_clients([[0]], N_ITEMS, ids=[-1])
    for gap, reached in ((60.0, [1]), (2 * 24 * 60.0, [1, 2, 3])):
        method, model = fit("session-knn", clients, gap=gap)
        scores = method.score(model.shared, {}, asks)[0]
        assert np.flatnonzero(scores).tolist() == [0, *reached]


def test_sessions_of_one_item_have_no_neighbours() -> None:
    """Every item a day after the one before: no session says what goes with what, so no other item has a score."""
    n, day = 4, 86_400
    times = np.tile(np.arange(n) * day, 2)
    items = np.array([0, 1, 2, 3, 1, 2, 4, 5], np.int32)
    clients = Clients(np.array([0, 1]), np.array([0, n, 2 * n]), items, N_ITEMS, times=times)
    method, model = fit("session-knn", clients, gap=60.0)
    found = method.score(model.shared, {}, clients)
    assert not found[clients.matrix().toarray() == 0].any()


def test_fed_slist_learns_nothing_from_histories_of_one_item_and_scores_them() -> None:
    method = build("fed-slist", options("fed-slist", {"factors": 4, "epochs": 1}))
    lonely = make_clients([[1], [], [3]], N_ITEMS)
    several = make_clients([*HISTORIES, [1], []], N_ITEMS)
    for clients, learns in ((lonely, False), (several, True)):
        model = list(simulate(UpdatePath(method, (), Ring()), clients, CATALOG, KEY))[-1]
        found = method.score(model.shared, {}, lonely)
        assert np.isfinite(found).all()
        assert not found[1].any(), "an empty history"
        assert found.any() == learns


def test_only_the_newest_items_ask_for_sessions() -> None:
    clients = make_clients([[0, 1], [2, 3]], N_ITEMS)
    method, model = fit("session-knn", clients, window=1)
    scores = method.score(model.shared, {}, make_clients([[0, 2]], N_ITEMS, ids=[-1]))[0]
    assert scores[3] > 0
    assert scores[1] == 0


def test_an_item_counts_once_at_its_newest_place() -> None:
    repeats = Clients(
        np.array([0]), np.array([0, 4]), np.array([1, 1, 2, 5], np.int32), N_ITEMS, times=np.array([10, 40, 20, 30])
    )
    once = newest_rows(repeats)
    assert once.items.tolist() == [1, 2, 5]
    assert ages(once).tolist() == [0, 2, 1]
    np.testing.assert_allclose(recent_matrix(repeats, 2.0).toarray()[0, [1, 2, 5]], np.exp([0, -1.0, -0.5]), rtol=1e-6)


ORDERED = ("slist", "markov", "session-knn")


@pytest.mark.parametrize("name", ORDERED)
def test_histories_without_an_order_are_refused(name: str) -> None:
    with pytest.raises(DataError, match="order"):
        fit(name, Clients(np.array([0]), np.array([0, 2]), np.array([1, 2], np.int32), N_ITEMS))


@pytest.mark.parametrize("name", ORDERED)
def test_equal_times_have_the_smaller_item_last_and_the_future_is_later(name: str) -> None:
    """All times equal, and one that is far ahead: the rules of `Clients.in_order`, not an error."""
    items = np.array([1, 2, 5], np.int32)
    for times, places in (([7, 7, 7], [2, 1, 0]), ([7, 2**40, 3], [1, 2, 0])):
        timed = Clients(np.array([0]), np.array([0, 3]), items, N_ITEMS, times=np.array(times))
        placed = Clients(np.array([0]), np.array([0, 3]), items, N_ITEMS, places=np.array(places, np.int32))
        if name == "session-knn":
            timed = Clients(timed.ids, timed.ptr, timed.items, N_ITEMS, places=np.array(places, np.int32))
        found = [fit(name, clients)[1].shared for clients in (timed, placed)]
        for key, array in found[0].items():
            assert np.array_equal(array, found[1][key])


@pytest.mark.parametrize("name", [name for name in names("centralised") if name in ORDERED])
def test_histories_of_one_item_and_of_none_are_scored(name: str) -> None:
    clients = make_clients([[1], [], [3]], N_ITEMS)
    method, model = fit(name, clients)
    assert np.isfinite(method.score(model.shared, {}, clients)).all()


@pytest.mark.parametrize("name", ORDERED)
def test_order_decides(name: str) -> None:
    """The same items in another order are worth other recommendations."""
    clients, _ = two_tastes(n_items=N_ITEMS)
    method, model = fit(name, clients, **({"window": 1} if name == "session-knn" else {}))
    one, other = (make_clients([history], N_ITEMS, ids=[-1]) for history in ([0, 2, 1], [1, 2, 0]))
    assert not np.array_equal(method.score(model.shared, {}, one), method.score(model.shared, {}, other))


RECENT = [name for name in methods() if "recency" in entry(name).config.model_fields]


def test_methods_have_recency() -> None:
    assert {*RECENT} >= {"ease", "als", "item-knn", "fed-ease", "fed-svd", "fed-als"}


@pytest.mark.parametrize("name", RECENT)
def test_recency_weighs_the_history_when_scores_are_made(name: str) -> None:
    """A very long recency is none; a very short one leaves the newest item only. What is learnt stays the same."""
    given = {"factors": 6} if "factors" in entry(name).config.model_fields else {}
    clients, catalog = two_tastes()
    whole, long, short = (
        build(name, options(name, {**given, **more})) for more in ({}, {"recency": 1e9}, {"recency": 0.01})
    )
    for model in passes(whole, clients, catalog, KEY, PassOptions()):
        shared, private = dict(model.shared), dict(model.private)
    usual = whole.score(shared, private, clients)
    np.testing.assert_allclose(long.score(shared, private, clients), usual, rtol=2e-3, atol=2e-4)
    newest = make_clients([[int(clients.take([c]).items[clients.take([c]).in_order[-1]])] for c in range(40)], 24)
    unseen = clients.matrix().toarray() == 0
    found, alone = short.score(shared, private, clients), whole.score(shared, {}, newest)
    np.testing.assert_allclose(found[unseen], alone[unseen], rtol=2e-3, atol=2e-4)
    assert np.abs(found - usual).max() > 1e-3
