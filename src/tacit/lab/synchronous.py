"""Synchronous gossip: all peers send, then all read and learn, as in the papers; computed for all peers at once.

What a peer computes is what `protocols.gossip` has a peer compute: a law holds the two together, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.errors import DivergedError, MethodError
from tacit.lab.memory import SHARE, free_memory
from tacit.lab.traffic import Traffic
from tacit.methods.base import Gossip
from tacit.methods.parts.gossip import PeerInbox
from tacit.methods.parts.peers import KnownPeers
from tacit.numerics import DIVERGENCE_LIMIT
from tacit.protocols.gossip import peers_to_offer
from tacit.protocols.overlay import Views, first_views, measure_overlay, offer_peers
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Model, offsets
from tacit.updates import PeerModels

Overlays: TypeAlias = list[dict[str, float]]
MEASUREMENTS = 10  # rounds between two measurements of the overlay


@dataclass(frozen=True)
class SynchronousNetwork:
    """How a synchronous network begins, where its graph is noted, and what its peers really send.

    `sent` turns the peer models that peers of a round mean to send into those that are sent, if some are adversaries.
    """

    start: Literal["preferential", "random"] = "preferential"
    overlay: Overlays | None = None
    sent: Callable[[PeerModels, int], PeerModels] | None = None


def gossip_synchronously(
    method: Gossip,
    clients: Clients,
    catalog: Catalog,
    key: Key,
    traffic: Traffic | None = None,
    threads: int = 1,
    network: SynchronousNetwork = SynchronousNetwork(),  # noqa: B008 - frozen
) -> Iterator[Model]:
    """Yield the models of all peers after each round; their arrays change in later rounds."""
    overlay, sent = network.overlay, network.sent
    refuse_too_large(method, len(clients), catalog.n_items)
    first = method.init(clients, catalog, key.child("init"))
    models = dict(first.private)
    own, all_peers = method.own(first.shared, models, clients), np.arange(len(clients))
    views = first_views(len(clients), method.config.view, network.start, key)
    spare = np.empty_like(models["items"])
    remembers = method.n_best > 0 and len(clients) > 1
    judged = np.zeros((len(clients), len(clients)) if remembers else (0, 0), np.float32)
    with ThreadPoolExecutor(threads) as pool:
        each = (lambda work, blocks: [work(b) for b in blocks]) if threads == 1 else lambda w, b: list(pool.map(w, b))
        for number in range(method.config.epochs):
            inbox = inbox_of(views)
            peer_models = method.peer_models(models, all_peers, own)
            if sent is not None:
                peer_models = sent(peer_models, number + 1)
            before = models["items"]
            worths = method.step(models, spare, peer_models, inbox, own, each)
            spare = before
            if remembers:
                readers = np.repeat(all_peers, np.diff(inbox.ptr))
                judged[readers, inbox.peer_models] = worths
            if traffic is not None:
                count_traffic(traffic, views, inbox, peer_models.bytes_each, catalog.n_items)
            if (number + 1) % method.config.renew_every == 0:
                views = _renew(method, views, judged, key, number + 1)
            note_overlay(overlay, number + 1, method.config.epochs, views)
            refuse_if_diverged(models["items"], method.config.learning_rate, number)
            yield Model(first.shared, models)


def note_overlay(
    overlay: Overlays | None, number: int, last: int, views: Views, alive: NDArray[np.bool_] | None = None
) -> None:
    """Measure the graph of peers now and then, and after the last round."""
    if overlay is not None and (number % MEASUREMENTS == 0 or number == last):
        overlay.append({"round": number, **asdict(measure_overlay(views, alive))})


def inbox_of(views: Views) -> PeerInbox:
    """Return which peers receive which peer models when all send to their views, senders in order."""
    n_peers, view = views.shape
    readers, senders = views.ravel(), np.repeat(np.arange(n_peers), view)
    sent = readers >= 0
    readers, senders = readers[sent], senders[sent]
    order = np.argsort(readers, kind="stable")
    return PeerInbox(offsets(np.bincount(readers, minlength=n_peers)), senders[order])


def _renew(method: Gossip, views: Views, judged: Array, key: Key, number: int) -> Views:
    all_peers, view = np.arange(len(views)), views.shape[1]
    if not view:
        return views
    wanted, chance = peers_to_offer(method), key.child("choose", number).bits(all_peers, 1)[:, 0]
    renewed = np.full_like(views, -1)
    no_peers, nothing = all_peers[:0], np.empty(0, np.float32)
    for n, offer in enumerate(offer_peers(key, number, all_peers, all_peers, wanted)):
        known = np.flatnonzero(judged[n] > 0) if len(judged) else no_peers
        worths = judged[n][known] if len(judged) else nothing
        chosen = method.choose(KnownPeers(known, worths, offer), chance[n])
        renewed[n, : len(chosen)] = chosen
    return renewed


def count_traffic(traffic: Traffic, views: Views, inbox: PeerInbox, size: int, n_items: int) -> None:
    """Count the peer models of a round."""
    sent, received = (views >= 0).sum(axis=1), np.diff(inbox.ptr)
    traffic.rounds += 1
    traffic.negatives += sent * n_items
    traffic.bytes_up += sent * size
    traffic.bytes_down += received * size


def refuse_too_large(method: Gossip, n_peers: int, n_items: int) -> None:
    """Refuse a network whose models would not fit into memory, before anything is made."""
    needed, free = method.memory(n_peers, n_items), free_memory()
    if needed > SHARE * free:
        raise MethodError(
            f"{n_peers:,} peers with {n_items:,} items each need {needed / 1e9:.1f} GB, but {free / 1e9:.1f} GB "
            "are free.",
            "Use fewer users or items (data.min_per_item), or lower method.factors: every peer holds a whole model.",
        )


def refuse_if_diverged(items: NDArray[np.float32], learning_rate: float, number: int) -> None:
    """Stop when any model has diverged."""
    largest = float(max(items.max(initial=0.0), -items.min(initial=0.0)))
    if not largest < DIVERGENCE_LIMIT:
        raise DivergedError(
            f"Learning diverged in round {number + 1}: a learnt number reached {largest:.3g}.",
            f"Lower method.learning_rate (now {learning_rate:g}).",
        )
