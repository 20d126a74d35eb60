"""The simulation that a real network is compared with: PEPPER with staggered clocks, from the same first model.

All peers of a real network start from one public model, which follows from the network's seed. How good a network
becomes depends on it: on MovieLens 100K, sixty simulated peers reach 0.47 from one first model and 0.58 from another.
A simulation that draws a first model of its own is no measure of a real network.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tacit.lab.event_driven import NetworkConfig, gossip_event_driven
from tacit.methods.base import options
from tacit.methods.pepper import Pepper, PepperConfig
from tacit.protocols.gossip import first_models
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Model
from tacit.wire.network import PeerNetwork


class StartedPepper(Pepper):
    """PEPPER whose peers start from the first model of a real network; the rest of chance is a simulation's own."""

    def __init__(self, config: PepperConfig, network: PeerNetwork) -> None:
        super().__init__(config)
        self.network = network

    def init(self, clients: Clients, catalog: Catalog, key: Key) -> Model:
        """Return the first models."""
        return first_models(Pepper(self.config), clients, catalog, self.network.key, key)


def start_pepper(network: PeerNetwork, periods: int) -> StartedPepper:
    """Return the method of a network, for a simulation of so many periods."""
    given: dict[str, Any] = {**network.options, "epochs": periods}
    config = options("pepper", given)
    assert isinstance(config, PepperConfig)
    return StartedPepper(config, network)


def simulate_peers(network: PeerNetwork, clients: Clients, catalog: Catalog, periods: int, seed: int) -> Array:
    """Return the scores after as many periods of an event-driven simulation."""
    method = start_pepper(network, periods)
    calm = NetworkConfig(staggered=True, one_vote=True)
    *_, last = gossip_event_driven(method, clients, catalog, Key(seed), calm)
    return np.asarray(method.score(last.shared, last.private, clients))


def learn_alone(network: PeerNetwork, clients: Clients, catalog: Catalog, periods: int, seed: int) -> Array:
    """Return the scores of the same peers if they never meet."""
    method = start_pepper(network, periods)
    model = method.init(clients, catalog, Key(seed))
    models = dict(model.private)
    own = method.own(model.shared, models, clients)
    for _ in range(periods):
        models = dict(method.learn(models, own))
    return np.asarray(method.score(model.shared, models, clients))
