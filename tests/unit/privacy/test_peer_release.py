"""What leaves with a peer model: bounded around the first model, noise of the stated width, an end, and the account."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tacit.errors import ConfigError
from tacit.lab.event_driven import GossipRuntime, simulate_gossip
from tacit.methods.base import Gossip, build, options
from tacit.privacy.accounting import epsilon_of_gdp
from tacit.privacy.noise import SimulatedNoise
from tacit.privacy.peer_release import DELTA, PeerRelease
from tacit.protocols.gossip import Peer, send_model
from tacit.random import Key
from tacit.testing import two_tastes
from tacit.updates import PeerModels

FIRST = {"items": np.zeros((1, 8, 500), np.float32), "layers": np.ones((1, 9), np.float32)}


def moved(by: float) -> PeerModels:
    draws = np.random.default_rng(3)
    tables = {name: (table + by * draws.normal(size=table.shape)).astype(np.float32) for name, table in FIRST.items()}
    return PeerModels(np.array([4]), tables, np.array([17]), np.array([2]))


def distance(models: PeerModels) -> float:
    return math.sqrt(sum(float(((models.tables[name] - FIRST[name]) ** 2).sum()) for name in FIRST))


def test_a_model_is_bounded_around_the_first_one_and_keeps_its_direction() -> None:
    far, near = moved(1.0), moved(1e-4)
    shaped = PeerRelease(0.5).shape(far, FIRST, None)
    assert distance(shaped) == pytest.approx(0.5, rel=1e-5)
    assert np.corrcoef(shaped.tables["items"].ravel(), far.tables["items"].ravel())[0, 1] > 0.999999
    assert shaped.samples[0] == 17
    for name, table in PeerRelease(0.5).shape(near, FIRST, None).tables.items():
        np.testing.assert_allclose(table, near.tables[name], atol=1e-7)


@pytest.mark.parametrize("by", [0.0, 1.0])
def test_noise_has_its_width_whatever_the_history(by: float) -> None:
    shaped = PeerRelease(0.5, 2.0, 10).shape(moved(by), FIRST, SimulatedNoise(Key(1)))
    noise = shaped.tables["items"] - FIRST["items"]
    assert noise.std() == pytest.approx(1.0, rel=0.05)
    assert shaped.samples[0] == 0  # how much a user has is not told


def test_two_histories_differ_by_as_much_as_is_accounted() -> None:
    there, back = moved(1.0), moved(-1.0)
    release = PeerRelease(0.5, 5.0, 30)
    unlike = [PeerRelease(release.bound).shape(model, FIRST, None) for model in (there, back)]
    apart = math.sqrt(sum(float(((unlike[0].tables[n] - unlike[1].tables[n]) ** 2).sum()) for n in FIRST))
    assert apart == pytest.approx(2 * release.bound, rel=1e-5)  # the worst case is reached
    accounted = release.noise * release.bound / release.event(1, 4009).noise_multiplier
    assert apart <= accounted * (1 + 1e-5)


def test_the_account_is_that_of_so_many_gaussian_releases() -> None:
    release = PeerRelease(0.5, 5.0, 30)
    assert release.epsilon(30, 4009) == pytest.approx(epsilon_of_gdp(2 * math.sqrt(30) / 5, DELTA), rel=1e-6)
    assert release.epsilon(0, 4009) == 0
    assert release.epsilon(1, 4009) < release.epsilon(30, 4009)
    assert PeerRelease(0.5).epsilon(1, 4009) == math.inf


def test_noise_without_bound_or_end_or_beside_revealing_arrays_is_refused() -> None:
    noisy = {"send_noise": 1.0, "send_bound": 1.0, "send_periods": 5}
    for name, given in (
        ("model-age", {"send_noise": 1.0}),
        ("model-age", {"send_noise": 1.0, "send_bound": 1.0}),
        ("model-age", {"send_noise": 1e-9, "send_bound": 1.0, "send_periods": 5}),
        ("dec-fedavg", noisy),  # sends how many samples it has
        ("dec-reptile", noisy),
        ("pepper", noisy),  # chooses receivers by what their models were worth
    ):
        with pytest.raises(ConfigError):
            build(name, options(name, given))
    for name, given in (("model-age", noisy), ("pepper", {**noisy, "alpha": 0.0})):
        assert isinstance(build(name, options(name, given)), Gossip)


def test_a_peer_sends_as_often_as_it_may_and_goes_on_learning() -> None:
    clients, catalog = two_tastes(n_clients=4)
    method = build("model-age", options("model-age", {"send_periods": 2, "epochs": 4, "view": 2}))
    assert isinstance(method, Gossip)
    first = dict(method.init(clients.take([0]), catalog, Key(1)).private)
    peer = Peer(0, first, method.own({}, first, clients.take([0])), [1, 2])
    assert [send_model(method, peer) is None for _ in range(4)] == [False, False, True, True]
    ages = [model.private["age"].copy() for model in simulate_gossip(method, clients, catalog, Key(1), GossipRuntime())]
    assert len(ages) == 4
    assert (ages[-1] > ages[-2]).all()


def test_the_simulation_with_noise_repeats_and_differs_from_the_one_without() -> None:
    clients, catalog = two_tastes(n_clients=4)

    def learn(given: dict[str, float]) -> np.ndarray:
        method = build("model-age", options("model-age", {"epochs": 3, "view": 2, **given}))
        assert isinstance(method, Gossip)
        *_, last = simulate_gossip(method, clients, catalog, Key(1), GossipRuntime())
        return np.asarray(last.private["items"])

    noisy = {"send_noise": 0.1, "send_bound": 1.0, "send_periods": 3}
    assert np.array_equal(learn(noisy), learn(noisy))
    assert not np.array_equal(learn(noisy), learn({}))
