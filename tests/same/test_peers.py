"""Real peers under the schedule of a simulation learn its very bits, for every registered gossip method."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.peer_network import RealNetwork, record, replay, visits
from tacit.lab.event_driven import NetworkConfig
from tacit.methods.base import Gossip, build, methods, options
from tacit.testing import two_tastes
from tacit.types import Catalog, Clients

pytestmark = pytest.mark.slow

GOSSIP = [name for name in methods() if isinstance(build(name), Gossip)]
CALM = NetworkConfig(one_vote=True)
ROUGH = NetworkConfig(one_vote=True, loss=0.2, leaving=0.2, away=1.0, staggered=True)
GIVEN: dict[str, dict[str, Any]] = {
    "gmf": {"batch_size": 16, "renew_every": 2, "view": 2},
    "gmf-receipt": {"learns": "receipt", "moments": "kept", "clip": 1.0, "user_vector": "sent", "view": 2},
    "prme-g": {"model": "prme-g", "view": 2},
}
World = tuple[Clients, Catalog]


@pytest.fixture(scope="module")
def worlds() -> dict[str, World]:
    tastes = two_tastes(n_clients=6)
    return {"gmf": tastes, "gmf-receipt": tastes, "prme-g": visits()}


@pytest.fixture
def made(tmp_path: Path) -> Iterator[list[RealNetwork]]:
    networks: list[RealNetwork] = []
    yield networks
    for network in networks:
        network.close()


def assert_same_bits(folder: Path, name: str, kind: str, world: World, network: NetworkConfig, epochs: int) -> Any:
    given = GIVEN[kind]
    simulated = record(build(name, options(name, {**given, "epochs": epochs})), world, network)
    real = RealNetwork(folder, name, given, world)
    try:
        real.start_views()
        replay(real, simulated.steps)
        for array_name, array in real.models().items():
            expected = np.concatenate([peer.models[array_name] for peer in simulated.peers])
            assert np.array_equal(array, expected, equal_nan=True), f"'{array_name}' differs"
        for at, peer in real.peers.items():
            assert peer.file.state.view == simulated.peers[at].view
            assert peer.file.state.judged == simulated.peers[at].judged
            assert peer.file.state.ticks == simulated.peers[at].ticks
            assert peer.file.state.refused == simulated.peers[at].refused
    finally:
        real.close()
    return simulated


@pytest.mark.parametrize("name", GOSSIP)
@pytest.mark.parametrize("kind", GIVEN)
def test_real_peers_learn_the_bits_of_a_calm_simulation(
    name: str, kind: str, worlds: dict[str, World], tmp_path: Path
) -> None:
    simulated = assert_same_bits(tmp_path, name, kind, worlds[kind], CALM, 3)
    assert any(step.what == "deliver" for step in simulated.steps)


@pytest.mark.parametrize("name", GOSSIP)
def test_real_peers_learn_the_bits_of_a_network_with_losses_and_restarts(
    name: str, worlds: dict[str, World], tmp_path: Path
) -> None:
    simulated = assert_same_bits(tmp_path, name, "gmf", worlds["gmf"], ROUGH, 6)
    assert {"lose", "crash", "leave", "return"} <= {step.what for step in simulated.steps}
