"""A federated round is two functions, and every runtime calls these two. A device is a cohort of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tacit.methods.base import Federated
from tacit.privacy.outbound import Stage, seal
from tacit.random import Key
from tacit.types import Array, Clients
from tacit.updates import Outgoing, Ring, Total

Shared = Mapping[str, Array]
Private = Mapping[str, Array]


def device_round(
    method: Federated,
    stages: Sequence[Stage],
    ring: Ring,
    shared: Shared,
    private: Private,
    clients: Clients,
    key: Key,
    number: int,
) -> tuple[Outgoing, Private]:
    """Learn from one's own history in round `number`; return what may leave and the private part that stays.

    Whoever learnt something that the ring cannot hold sends nothing and stays as she was.
    """
    update, learnt = method.learn(shared, private, clients, ring, key.child("learn", number))
    message = seal(update, stages, ring, key.child("seal", number))
    if not len(message.withheld):
        return message, learnt
    kept = np.isin(clients.ids, message.withheld)
    return message, {name: np.where(_along(kept, array), private[name], array) for name, array in learnt.items()}


def server_round(method: Federated, ring: Ring, shared: Shared, inbox: Iterable[Outgoing]) -> Shared:
    """Add what arrived, in whatever order, and move the shared model."""
    total = Total.zero({name: shared[name].shape for name in method.tables})
    for message in inbox:
        total.add(message)
    return applied(method, ring, shared, total)


def applied(method: Federated, ring: Ring, shared: Shared, total: Total) -> Shared:
    """Move the shared model by a sum, unless it wrapped around; nobody's sum moves nothing."""
    for sums in total.sums.values():
        if len(sums) > 1:  # one row, of dense layers, travels in 64 bits whatever the ring
            ring.check(sums)
    return method.apply(shared, total, ring) if total.n_clients else shared


def _along(mask: Array, array: Array) -> Array:
    """Shape a mask over clients so that it broadcasts over an array whose first axis they are."""
    return mask.reshape(-1, *[1] * (array.ndim - 1))
