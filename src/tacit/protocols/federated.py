"""A federated round is two functions, and every runtime calls these two. A device is a cohort of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

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
    """Learn from one's own history in round `number`; return what may leave and the private part that stays."""
    update, private = method.learn(shared, private, clients, ring, key.child("learn", number))
    return seal(update, stages, ring, key.child("seal", number)), private


def server_round(method: Federated, ring: Ring, shared: Shared, inbox: Iterable[Outgoing]) -> Shared:
    """Add what arrived, in whatever order, and move the shared model."""
    total = Total.zero({name: shared[name].shape for name in method.tables})
    for message in inbox:
        total.add(message)
    for sums in total.sums.values():
        ring.check(sums)
    return method.apply(shared, total, ring)
