"""Peers as processes, killed and started again: the verdict of `tools/peer_network.py` on a small network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("zenoh")
import peer_network
from helpers.peer_network import RealNetwork
from peer_simulation import start_pepper
from tacit.random import Key
from tacit.testing import two_tastes


@pytest.mark.fuzz
def test_a_small_network_withstands_churn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TACIT_DATA", raising=False)
    monkeypatch.setattr(peer_network, "AWAY", 1.0)
    monkeypatch.setattr(peer_network, "KILLED", 2.0)  # so that some are killed in a few seconds
    found = peer_network.measure_churn(tmp_path, 5, 0.1, 1.5)
    assert found["killed and started again"] > 0
    assert found["passed"], found


def test_a_simulation_starts_from_the_first_model_of_the_real_network(tmp_path: Path) -> None:
    real = RealNetwork(tmp_path, "pepper", {"view": 2}, two_tastes(n_clients=3))
    try:
        first = start_pepper(real.network, 5).init(real.clients, real.catalog, Key(99)).private
        models = real.models()
        for name in real.network.built.common:
            assert np.array_equal(first[name], models[name])
        assert not np.array_equal(first["users"], models["users"])  # what is a peer's own is drawn by each seed
    finally:
        real.close()


def test_peers_on_a_virtual_clock_send_merge_and_learn(tmp_path: Path) -> None:
    clients, catalog = two_tastes(4, 60)
    network = peer_network.Processes(tmp_path, clients, catalog, peer_network.found_network(catalog, 10.0))
    seen = peer_network.learn_virtually(network, 2)
    assert seen["models"] == "24 of 24 acknowledged"
    states = network.states()
    assert [state["ticks"] for state in states] == [2] * 4
    assert sum(state["received"] for state in states) == 24


def test_the_hit_rate_is_that_of_random_scores_and_of_perfect_ones() -> None:
    clients = two_tastes(4, 200)[0]
    held = [np.setdiff1d(np.arange(at % 2, 200, 2), clients.of(at)) for at in range(4)]
    scores = np.zeros((4, 200))
    assert peer_network.hit_rate(scores, clients, held).mean() == pytest.approx(0.0, abs=1e-6)  # the middle of 100
    for at, items in enumerate(held):
        scores[at, items] = 1.0
    assert peer_network.hit_rate(scores, clients, held).mean() == pytest.approx(1.0)


def test_parts_and_dead_ids_are_counted() -> None:
    views = {0: [1, 4], 1: [0], 2: [3], 3: [2]}  # the fourth is dead
    assert peer_network.count_parts(views, 5) == 2

    class Network:
        up = dict.fromkeys(range(4))

    assert peer_network.share_dead(Network(), views) == pytest.approx(1 / 5)  # type: ignore[arg-type]
