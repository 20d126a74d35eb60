"""dp-svd: messages of length 1, shares of the budget, and what the server makes of noise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.methods.base import build_federated, options
from tacit.methods.parts.denoising import decompose, find_directions, find_posterior, public_features
from tacit.methods.parts.sum_plan import DONE, SumPlan
from tacit.protocols.federated import UpdatePath, device_round, server_round
from tacit.random import Key
from tacit.testing import make_clients, two_tastes
from tacit.types import Catalog, Clients, Model, Vocabulary
from tacit.updates import Ring, Total
from tacit.wire.federation import LARGEST_LEARNT

KEY = Key(5).child("learn")


def message_lengths(shared: dict, clients: Clients) -> np.ndarray:
    """Return how long what each client adds to the next sum is, without any stage."""
    method = build_federated("dp-svd", options("dp-svd", {"factors": 6}))
    path = UpdatePath(method, (), Ring())
    message = device_round(path, Model(method.spec.received(shared), {}), clients, KEY, 0).message
    assert message is not None
    squares = np.zeros(len(clients))
    for ptr, _, numbers in message.tables.values():
        owner = np.repeat(np.arange(len(clients)), np.diff(ptr))
        squares += np.bincount(owner, np.square(numbers / 2.0**20).sum(axis=1), minlength=len(clients))
    return np.sqrt(squares)


def rounds_of(clients: Clients, catalog: Catalog, noise: float, n: int) -> list[dict]:
    """Return the shared model before each of the first n sums, learnt with noise of this size."""
    method = build_federated("dp-svd", options("dp-svd", {"factors": 6}))
    path, rng = UpdatePath(method, (), Ring()), np.random.default_rng(0)
    shared, found = dict(method.init(clients, catalog, KEY).shared), []
    for number in range(n):
        found.append(shared)
        total = Total.zero(method.shapes(shared))
        device_round(path, Model(method.spec.received(shared), {}), clients, KEY, number, total)
        if noise:
            drawn = {k: np.rint(rng.normal(0, noise * 2**20, v.shape)).astype(np.int64) for k, v in total.sums.items()}
            total = Total({k: v + drawn[k] for k, v in total.sums.items()}, total.counts, total.n_clients, noise)
        shared = dict(server_round(path, shared, total))
    return found


@pytest.mark.parametrize("noise", [0.0, 0.5, 5.0])
def test_every_message_is_one_long_in_every_sum(noise: float) -> None:
    """Whatever the history and the model: at most 1, and nearly 1, so that no signal is given away."""
    clients, catalog = two_tastes()
    for shared in rounds_of(clients, catalog, noise, 6):
        if SumPlan.read(shared["plan"]).step != DONE:
            lengths = message_lengths(shared, clients)
            assert lengths.max() < 1 + 1e-4
            assert lengths.min() > 0.9


@settings(max_examples=30)
@given(st.lists(st.lists(st.integers(0, 11), max_size=12, unique=True), min_size=1, max_size=5))
def test_strange_histories_are_no_longer_than_one(histories: list[list[int]]) -> None:
    catalog = Catalog(Vocabulary(np.arange(12)))
    some = make_clients([[0, 1, 2, 3], [2, 3, 4, 5], [6, 7, 8], [9, 10, 11, 0]] * 3, 12)
    for shared in rounds_of(some, catalog, 0.3, 5):
        assert message_lengths(shared, make_clients(histories, 12)).max(initial=0.0) < 1 + 1e-4


@pytest.mark.parametrize("noise", [0.0, 0.05, 1.0, 30.0])
def test_shares_of_all_sums_never_exceed_the_budget(noise: float) -> None:
    clients, catalog = two_tastes()
    plans = [SumPlan.read(shared["plan"]) for shared in rounds_of(clients, catalog, noise, 8)]
    assert sum(plan.share for plan in plans) <= 1.0
    assert plans[-1].step == DONE
    assert plans[-1].share == 0.0


def test_noise_alone_has_no_directions() -> None:
    noise = np.random.default_rng(1).standard_normal((400, 30))
    assert (find_directions(noise, is_exact=False).agreement > 0).sum() <= 1


def test_a_strong_direction_is_found_and_believed() -> None:
    rng = np.random.default_rng(2)
    u, v = np.linalg.qr(rng.standard_normal((400, 1)))[0], np.linalg.qr(rng.standard_normal((30, 1)))[0]
    found = find_directions(200 * u @ v.T + rng.standard_normal((400, 30)), is_exact=False)
    assert found.agreement[0] > 0.95
    assert found.values[0] == pytest.approx(200, rel=0.05)
    assert abs(float(found.vectors[:, 0] @ u[:, 0])) ** 2 == pytest.approx(found.agreement[0], abs=0.03)


def test_the_posterior_is_nearer_to_the_truth_than_the_sums_and_features_help() -> None:
    rng = np.random.default_rng(3)
    features = np.column_stack([np.ones(300), rng.integers(0, 2, (300, 3))]).astype(float)
    u = features @ rng.standard_normal((4, 4)) + 0.3 * rng.standard_normal((300, 4))
    true = u @ rng.standard_normal((4, 20)) * 0.5
    seen = true + rng.standard_normal(true.shape)
    plain = find_posterior(seen, np.ones(300), 4, np.zeros((300, 0)))
    helped = find_posterior(seen, np.ones(300), 4, features)
    errors = [float(np.square(guess - true).mean()) for guess in (seen, plain, helped)]
    assert errors[2] < errors[1] < errors[0]


def test_decompositions_are_settled_in_sign() -> None:
    matrix = np.random.default_rng(4).standard_normal((50, 5))
    left, values, right = decompose(matrix)
    assert np.allclose((left * values) @ right.T, matrix)
    again, *_ = decompose(-matrix)
    assert np.allclose(left, again)


def test_public_features_are_categories_and_years() -> None:
    titles = [f"Film {i} ({1990 + i % 3})" for i in range(40)]
    _, catalog = two_tastes(n_items=40)
    found = public_features(Catalog(catalog.item_ids, titles, catalog.categories))
    assert found.shape == (40, 1 + 3 + 3)
    assert (found[:, 0] == 1).all()
    assert public_features(Catalog(catalog.item_ids)).shape == (40, 0)


def test_what_devices_receive_does_not_grow_with_the_number_of_clients() -> None:
    """A federation refuses a model beyond a thousand: counts of a hundred thousand clients stay with the server."""
    method = build_federated("dp-svd", options("dp-svd", {"factors": 6}))
    clients, catalog = two_tastes()
    path, n_clients = UpdatePath(method, (), Ring()), 100_000
    shared = dict(method.init(clients, catalog, KEY).shared)
    for number in range(4):
        total = Total.zero(method.shapes(shared))
        device_round(path, Model(method.spec.received(shared), {}), clients, KEY, number, total)
        many = {name: sums * (n_clients // len(clients)) for name, sums in total.sums.items()}
        shared = dict(server_round(path, shared, Total(many, total.counts, n_clients, 30.0)))
        largest = {name: float(np.abs(shared[name]).max(initial=0.0)) for name in method.spec.downloads}
        assert max(largest.values()) < LARGEST_LEARNT, largest
    assert shared["counts"].max() > LARGEST_LEARNT
    assert np.array_equal(np.argsort(shared["counts"]), np.argsort(shared["ranking"]))


def test_a_width_that_a_lying_server_made_up_is_never_negative() -> None:
    """A negative width would make a kernel write beyond its array."""
    assert SumPlan.read(np.array([2.0, -1.0, 0.1, 0.0, 0.3])).width == 0
