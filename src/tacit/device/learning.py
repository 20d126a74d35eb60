"""Learning on a device: the very round of the simulator, with a cohort of one."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.device.history import History
from tacit.device.membership import Membership
from tacit.device.settings import Sharing
from tacit.errors import ConsentError, DivergedError
from tacit.protocols.federated import device_round
from tacit.random import Key
from tacit.runtimes.learning import one_blas_thread
from tacit.runtimes.wire import Request
from tacit.types import Array, Clients
from tacit.updates import Outgoing


@dataclass(frozen=True)
class Learnt:
    """What a round made: a message, and her new private part."""

    message: Outgoing
    private: dict[str, Array]


def learn_alone(
    member: Membership, sharing: Sharing, request: Request, history: History, key: Key, lane: int
) -> Learnt:
    """Learn from her own history what a request asks for, and seal it as she decided; nothing is kept or sent."""
    catalog, federation = member.catalog, member.federation
    clients = history.clients(lane, catalog)
    if not len(clients.items):
        raise ConsentError("There is nothing to learn from: the history is empty.", "Add to it first.")
    last = member.answer()
    counts = last is not None and last.round == request.counted
    before = (member.learnt() if counts else member.private()) or first_private(member, clients, key)
    stages = (sharing.stage(lane, catalog), *federation.stages)
    with one_blas_thread():
        message, moved = device_round(
            federation.built, stages, federation.ring, request.shared, before, clients, key, request.round
        )
    if len(message.withheld):
        raise DivergedError("What was learnt does not fit the ring; nothing is sent.", "The model has run away.")
    return Learnt(message, dict(moved))


def first_private(member: Membership, clients: Clients, key: Key) -> dict[str, Array]:
    """Return her part of the model before her first round."""
    return dict(member.federation.built.init(clients, member.catalog, key.child("init")).private)
