"""What a peer does: it sends its model to its view, reads what arrives, learns, and chooses peers anew.

A peer is its own arrays, what it has of its user's history, and the peers it knows of. Its functions are given the
peer model that arrived or the peers that a sampling service offers, and nothing else: there is no way from a peer to
another one. Every runtime drives these functions: the simulations of the lab and the peers of the field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit.methods.base import Gossip
from tacit.methods.parts.peers import KnownPeers
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Model
from tacit.updates import PeerModels

if TYPE_CHECKING:
    from tacit.privacy.noise import NoiseSource

STRIKES = 2  # peer models in a row that were not acknowledged, before a peer is given up
TOO_LARGE = 1e3  # no honest model holds such a number
Ids = NDArray[np.int64]


@dataclass
class Peer:
    """One peer. `peers` are its arrays, a cohort of one; `own` is what it has of its client's history."""

    id: int
    models: Mapping[str, Array]
    own: Any
    view: list[int]
    judged: dict[int, np.float32] = field(default_factory=dict)  # sender -> what its last model was worth
    strikes: dict[int, int] = field(default_factory=dict)  # peer -> peer models in a row without an answer
    senders: set[int] = field(default_factory=set)  # whose peer models it has lately read
    ticks: int = 0
    unread: bool = True  # nothing has arrived since it last learnt
    refused: int = 0  # peer models that were no models, or came from a sender that had its vote
    one_vote: bool = False  # whether it reads one peer model of a sender in each period, and no more
    voters: set[int] = field(default_factory=set)  # whose peer models it has read in this period
    first: Mapping[str, Array] = field(default_factory=dict)  # its first model: what it sends is bounded around it
    noise: NoiseSource | None = None  # where the noise on what it sends comes from


def first_models(method: Gossip, clients: Clients, catalog: Catalog, common: Key, own: Key) -> Model:
    """Return the first model of peers: what all start with follows from `common`, the rest from `own`.

    A simulation gives the same key twice. In a real network the first is public, and the second is a device's secret.
    """
    model = method.init(clients, catalog, own)
    if own == common or not method.common:
        return model
    public = method.init(clients, catalog, common).private
    return Model(model.shared, {**model.private, **{name: public[name] for name in method.common}})


def peers_to_offer(method: Gossip) -> int:
    """Return how many candidates a peer is offered when it chooses anew."""
    return int(np.ceil(method.config.view + method.n_best))


def begin_period(
    method: Gossip, state: Peer, offer: Callable[[int, int], Ids], chance: Callable[[int], np.uint64]
) -> PeerModels | None:
    """Begin a period: choose peers anew if it is time, and return what goes to everyone in the view; none: nothing.

    `offer` names so many others, in random order; `chance` is a draw. Both are asked with the number of the period.
    """
    if (state.ticks and state.ticks % method.config.renew_every == 0) or not state.view:
        renew_view(method, state, offer(state.ticks, peers_to_offer(method)), chance(state.ticks))
    return send_model(method, state)


def send_model(method: Gossip, state: Peer) -> PeerModels | None:
    """Return a copy of what the peer sends to everyone in its view; none if it has sent as often as it may."""
    has_sent, release = state.ticks, method.release
    state.ticks += 1
    if release is not None and release.is_over(has_sent):
        return None
    model = method.peer_models(state.models, np.array([state.id]), state.own).take(np.array([0]))
    return model if release is None else release.shape(model, state.first, state.noise)


def receive_model(method: Gossip, state: Peer, peer_model: PeerModels) -> bool:
    """Mix one peer model in, and learn if the peer learns at every receipt. Says whether it was a model at all."""
    has_voted = state.one_vote and int(peer_model.senders[0]) in state.voters
    if has_voted or not is_model(peer_model, method.peer_models(state.models, np.array([state.id]), state.own)):
        state.refused += 1
        return False
    if state.one_vote:
        state.voters.add(int(peer_model.senders[0]))
    state.models, worths = method.mix(state.models, peer_model, state.own)
    if worths[0] >= 0:
        state.judged[int(peer_model.senders[0])] = worths[0]
    state.unread = False
    state.senders.add(int(peer_model.senders[0]))
    if method.config.learns == "receipt":
        state.models = method.learn(state.models, state.own)
    return True


def end_period(method: Gossip, state: Peer) -> None:
    """End a period: learn, if the peer learns once in each or nothing has arrived in this one."""
    if method.config.learns == "round" or state.unread:
        state.models = method.learn(state.models, state.own)
    state.unread = True
    state.voters.clear()


def renew_view(method: Gossip, state: Peer, offered: Ids, chance: np.uint64) -> None:
    """Choose peers anew among the best senders and those on offer."""
    n = len(state.judged)
    known, worths = np.fromiter(state.judged, np.int64, n), np.fromiter(state.judged.values(), np.float32, n)
    useful = np.flatnonzero(worths > 0)
    useful = useful[np.argsort(known[useful])]
    acquainted = KnownPeers(known[useful], worths[useful], offered)
    state.view = [int(peer) for peer in method.choose(acquainted, chance)]
    state.senders.clear()


def note_acknowledgement(state: Peer, peer: int, was: bool) -> None:
    """Note whether a peer acknowledged a peer model; one that does not, time and again, is forgotten."""
    if was:
        state.strikes.pop(peer, None)
        return
    state.strikes[peer] = state.strikes.get(peer, 0) + 1
    if state.strikes[peer] >= STRIKES:
        forget_peer(state, peer)


def forget_peer(state: Peer, peer: int) -> None:
    """Forget a peer that left, or does not answer."""
    state.view = [other for other in state.view if other != peer]
    state.judged.pop(peer, None)
    state.strikes.pop(peer, None)


def is_model(peer_model: PeerModels, mine: PeerModels) -> bool:
    """Return whether a peer model holds the same arrays as one's own, with numbers of a plausible size."""
    if peer_model.tables.keys() != mine.tables.keys() or len(peer_model) != 1:
        return False
    for name, table in mine.tables.items():
        theirs = peer_model.tables[name]
        if theirs.shape != table.shape or theirs.dtype != table.dtype:
            return False
        if not float(np.abs(theirs).max(initial=0.0)) < TOO_LARGE:  # NaN is not smaller
            return False
    return bool(peer_model.samples[0] >= 0 and peer_model.ages[0] >= 0)
