"""One round of a federated method: what each client would send, and the sum of a cohort added at once."""

from __future__ import annotations

from collections.abc import Mapping

from tacit.methods.base import Federated
from tacit.protocols.federated import UpdatePath, device_round
from tacit.random import Key
from tacit.types import Array, Clients, Model
from tacit.updates import Ring, Total, Update


def learn_once(
    method: Federated, model: Model, clients: Clients, key: Key, ring: Ring | None = None
) -> tuple[Update, Mapping[str, Array]]:
    """Return what clients send in round 0, read as numbers, and their new private part."""
    ring = ring or Ring()
    given = device_round(UpdatePath(method, (), ring), model, clients, key, 0)
    assert given.message is not None
    return given.message.read(ring), given.private


def add_once(method: Federated, model: Model, clients: Clients, key: Key, ring: Ring | None = None) -> Total:
    """Return the sum of what clients send in round 0, without any message."""
    total = Total.zero(method.shapes(model.shared))
    device_round(UpdatePath(method, (), ring or Ring()), model, clients, key, 0, total)
    return total
