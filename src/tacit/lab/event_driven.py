"""Gossip in a realistic network: every peer has its own clock, peer models take time or get lost, peers come and go.

Time is a queue of events, and every draw of it is keyed, so a run is the same each time. Peers are driven through the
functions of `protocols.gossip` and see nothing but what is sent to them. With equal periods, no delay, no loss and
no churn, this is the round mode of the papers, adversaries or not: then `lab.synchronous` computes the same
numbers faster.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat

from tacit.errors import ConfigError
from tacit.lab.synchronous import (
    Overlays,
    SynchronousNetwork,
    gossip_synchronously,
    note_overlay,
    refuse_if_diverged,
    refuse_too_large,
)
from tacit.lab.traffic import Traffic
from tacit.methods.base import Gossip
from tacit.protocols.attacks import ATTACKS
from tacit.protocols.gossip import (
    Peer,
    begin_period,
    end_period,
    forget_peer,
    note_acknowledgement,
    receive_model,
)
from tacit.protocols.overlay import first_views, offer_peers
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Config, Model, refuse_unknown_items
from tacit.updates import PeerModels

ATTACKING = 3  # the place of that draw among a peer's
COMES_OR_GOES, PERIOD_END, CHECKPOINT, TICK, DELIVER = range(5)  # what happens first at equal times


class NetworkConfig(Config):
    """How far a network of peers is from the calm one of equal rounds. Times are in rounds: the usual period is 1."""

    former_names: ClassVar[Mapping[str, str]] = {
        "network.liars": "network.adversaries",
        "network.lie": "network.attack",
    }
    start: Literal["preferential", "random"] = Field("preferential", description="how the first views are drawn")
    uneven: float = Field(0.0, ge=0, lt=1, description="periods of peers lie between 1 - uneven and 1 + uneven")
    staggered: bool = Field(False, description="peers start at random times of the first round, not all at once")
    delay: float = Field(
        0.0, ge=0, description="mean latency of a peer model (exponential), besides the time for its bytes"
    )
    bandwidth: tuple[PositiveFloat, ...] = Field(
        (), description="classes of links, in peer models per round; each peer is in one of them; none: no limit"
    )
    effort: tuple[PositiveFloat, ...] = Field(
        (), description="classes of devices: time to process a peer model, while others wait; none: no time"
    )
    loss: float = Field(0.0, ge=0, lt=1, description="share of peer models that get lost")
    leaving: float = Field(0.0, ge=0, lt=1, description="share of peers that leave in each round")
    crashing: float = Field(0.5, ge=0, le=1, description="share of the leaving peers that crash without notice")
    away: float = Field(5.0, gt=0, description="mean time until a peer that left returns, with the model it had")
    late: float = Field(0.0, ge=0, lt=1, description="share of peers that join late, during the first half")
    one_vote: bool = Field(False, description="a peer reads one peer model of each sender in a period, and no more")
    adversaries: float = Field(0.0, ge=0, lt=1, description="share of peers that are adversaries")
    attack: Literal["noise", "flip", "promote"] = Field("noise", description="attack: what adversaries send")
    promoted: int = Field(0, ge=0, description="the item that adversaries promote, by its index in the catalogue")

    @property
    def is_synchronous(self) -> bool:
        """Whether the rounds of the papers say the same."""
        return not (
            self.uneven or self.staggered or self.delay or self.bandwidth or self.effort or self.loss
            or self.leaving or self.late
        )  # fmt: skip


@dataclass(frozen=True)
class GossipRuntime:
    """The network of peers, the number of threads, and the log of the overlay's measures."""

    network: NetworkConfig = field(default_factory=NetworkConfig)
    threads: int = 1
    overlay: Overlays | None = None


def simulate_gossip(
    method: Gossip, clients: Clients, catalog: Catalog, key: Key, runtime: GossipRuntime, traffic: Traffic | None = None
) -> Iterator[Model]:
    """Yield the models of all peers after each round: in lock step if the network is calm, otherwise event by event."""
    refuse_unknown_items(clients, catalog)
    network, overlay = runtime.network, runtime.overlay
    if network.promoted >= catalog.n_items:
        raise ConfigError(
            f"runtime.network.promoted is {network.promoted}, but there are {catalog.n_items:,} items, counted from 0.",
            f"Name one below {catalog.n_items:,}.",
        )
    if network.is_synchronous and method.release is None:
        sent = _build_sender(network, len(clients), key) if network.adversaries else None
        options = SynchronousNetwork(network.start, overlay, sent)
        return gossip_synchronously(method, clients, catalog, key, traffic, runtime.threads, options)
    return gossip_event_driven(method, clients, catalog, key, network, traffic, overlay)


def gossip_event_driven(
    method: Gossip,
    clients: Clients,
    catalog: Catalog,
    key: Key,
    config: NetworkConfig,
    traffic: Traffic | None = None,
    overlay: Overlays | None = None,
) -> Iterator[Model]:
    """Yield the models of all peers after each round of time; a peer that is away has the model it left with."""
    refuse_too_large(method, len(clients), catalog.n_items)
    network = _Network(method, clients, catalog, key, config, traffic or Traffic.none(len(clients)))
    for number in range(method.config.epochs):
        network.run_until_checkpoint()
        refuse_if_diverged(network.largest(), method.config.learning_rate, number)
        note_overlay(overlay, number + 1, method.config.epochs, network.views(), network.alive)
        yield Model(network.shared, _JoinedArrays(network.peers))


class _Network:
    """The queue of events. It knows every peer; no peer knows it."""

    def __init__(
        self, method: Gossip, clients: Clients, catalog: Catalog, key: Key, config: NetworkConfig, traffic: Traffic
    ) -> None:
        self.method, self.key, self.config, self.traffic = method, key, config, traffic
        self.n_items, n = catalog.n_items, len(clients)
        model = method.init(clients, catalog, key.child("init"))
        self.shared, first = model.shared, model.private
        views = first_views(n, method.config.view, config.start, key)
        self.peers = []
        for at in range(n):
            mine = {name: array[at : at + 1].copy() for name, array in first.items()}
            own = method.own(self.shared, mine, clients.take([at]))
            view = [int(peer) for peer in views[at] if peer >= 0]
            peer = Peer(at, mine, own, view, one_vote=config.one_vote)
            if method.release is not None:
                from tacit.privacy.noise import SimulatedNoise

                peer.first, peer.noise = mine, SimulatedNoise(key.child("release", at))
            self.peers.append(peer)
        draws = _draw_peer_traits(n, key)
        self.period = 1.0 + config.uneven * (2.0 * draws[:, 0] - 1.0)
        self.link = _classes(config.bandwidth, draws[:, 1], np.inf)
        self.effort = _classes(config.effort, draws[:, 2], 0.0)
        self.is_adversary = _some(draws[:, ATTACKING], config.adversaries)
        self.busy = np.zeros(n)
        self.alive = np.ones(n, np.bool_)
        self.session = np.zeros(n, np.int64)  # how often each has come: what was meant for an earlier one is void
        self.pushed = count()  # orders events that are alike in everything else
        self.queue: list[tuple[Any, ...]] = []
        late = _some(draws[:, 4], config.late)
        for at in range(n):
            begin = draws[at, 5] * (0.5 * method.config.epochs if late[at] else float(config.staggered))
            if late[at]:
                self.alive[at] = False
                self._push(begin, COMES_OR_GOES, at, 0)
            else:
                self._push(begin, TICK, at, 0)
                self._next_leave(at, begin)
        for number in range(1, method.config.epochs + 1):
            self._push(float(number), CHECKPOINT, 0, 0)

    def _push(self, time: float, kind: int, at: int, other: int, *more: Any) -> None:
        heapq.heappush(self.queue, (time, kind, at, other, next(self.pushed), *more))

    def _next_leave(self, at: int, now: float) -> None:
        """Decide when a peer will go: each round it does with the same probability."""
        if self.config.leaving:
            draw = float(self.key.child("leave", int(self.session[at])).uniform(np.array([at]), 1)[0, 0])
            self._push(now + np.log1p(-draw) / np.log1p(-self.config.leaving), COMES_OR_GOES, at, int(self.session[at]))

    def run_until_checkpoint(self) -> None:
        """Let time pass until the next checkpoint."""
        while True:
            time, kind, at, other, _, *more = heapq.heappop(self.queue)
            if kind == CHECKPOINT:
                return
            if kind == DELIVER:
                self._deliver(time, at, other, *more)
            elif other == self.session[at]:  # otherwise the event is for a peer that has left since
                {COMES_OR_GOES: self._come_or_go, PERIOD_END: self._end_period, TICK: self._tick}[kind](time, at)

    def _end_period(self, time: float, at: int) -> None:
        end_period(self.method, self.peers[at])

    def _tick(self, time: float, at: int) -> None:
        """A peer's period begins: new peers if it is time, then its peer models go out."""
        state, one = self.peers[at], np.array([at])
        peer_model = begin_period(
            self.method,
            state,
            lambda number, n: offer_peers(self.key, number, one, np.flatnonzero(self.alive), n)[0],
            lambda number: np.uint64(self.key.child("choose", number).bits(one, 1)[0, 0]),
        )
        if peer_model is not None and self.is_adversary[at]:
            peer_model = attack_model(self.config, peer_model, state.ticks, at, self.key)
        for kind in (PERIOD_END, TICK):
            self._push(time + self.period[at], kind, at, int(self.session[at]))
        if peer_model is None:
            return
        n_peer_models = len(state.view)
        self.traffic.rounds[at] += 1
        self.traffic.bytes_up[at] += n_peer_models * peer_model.bytes_each
        self.traffic.negatives[at] += n_peer_models * self.n_items
        draws = np.zeros((n_peer_models, 2))
        if self.config.delay or self.config.loss:
            draws = self.key.child("letter", state.ticks, at).uniform(np.arange(n_peer_models), 2)
        for place, (peer, draw) in enumerate(zip(state.view, draws.tolist(), strict=True)):
            arrives = (
                time - self.config.delay * math.log1p(-draw[0]) + (place + 1) / min(self.link[at], self.link[peer])
            )
            self._push(float(arrives), DELIVER, peer, at, peer_model, draw[1] < self.config.loss)

    def _deliver(self, time: float, at: int, sender: int, peer_model: PeerModels, lost: bool) -> None:
        """A peer model arrives: it waits while its reader is busy, and its sender learns whether it came through."""
        if self.alive[at] and not lost and self.busy[at] > time:
            self._push(float(self.busy[at]), DELIVER, at, sender, peer_model, lost)
            return
        arrived = bool(self.alive[at]) and not lost
        if arrived:
            self.busy[at] = time + self.effort[at]
            self.traffic.bytes_down[at] += peer_model.bytes_each
            receive_model(self.method, self.peers[at], peer_model)
        if self.alive[sender]:
            note_acknowledgement(self.peers[sender], at, arrived)

    def _come_or_go(self, time: float, at: int) -> None:
        self.session[at] += 1
        draws = self.key.child("come", int(self.session[at])).uniform(np.array([at]), 2)[0]
        if self.alive[at]:
            self.alive[at] = False
            if draws[1] >= self.config.crashing:  # it tells the peers that it knows
                for peer in self.peers[at].senders | set(self.peers[at].view):
                    forget_peer(self.peers[peer], at)
            self._push(time - self.config.away * np.log1p(-draws[0]), COMES_OR_GOES, at, int(self.session[at]))
        else:
            self.alive[at] = True
            self._push(time, TICK, at, int(self.session[at]))
            self._next_leave(at, time)

    def views(self) -> NDArray[np.int64]:
        """Return all views, for the statistics of the overlay."""
        widest = max(1, *(len(state.view) for state in self.peers)) if len(self.peers) > 1 else 0
        table = np.full((len(self.peers), widest), -1, np.int64)
        for state in self.peers:
            table[state.id, : len(state.view)] = state.view
        return table

    def largest(self) -> NDArray[np.float32]:
        """Return the largest and the smallest number of every peer's table."""
        tables = [state.models["items"] for state in self.peers]
        return np.array([(table.max(initial=0.0), table.min(initial=0.0)) for table in tables], np.float32)


class _JoinedArrays(Mapping[str, Array]):
    """The models of all peers, collected on first use: most rounds are not evaluated."""

    def __init__(self, peers: Sequence[Peer]) -> None:
        self.peers, self.arrays = peers, dict[str, Array]()

    def __getitem__(self, name: str) -> Array:
        if name not in self.arrays:
            self.arrays[name] = np.concatenate([state.models[name] for state in self.peers])
        return self.arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.peers[0].models)

    def __len__(self) -> int:
        return len(self.peers[0].models)


def attack_model(config: NetworkConfig, peer_model: PeerModels, number: int, at: int, key: Key) -> PeerModels:
    """Return what an adversary sends the `number`-th time in place of its peer model."""
    return ATTACKS[config.attack](peer_model, config.promoted, key.child("lie", number, at))


def _build_sender(config: NetworkConfig, n: int, key: Key) -> Callable[[PeerModels, int], PeerModels]:
    """Return a function from the peer models of a round to those that are sent; adversaries replace theirs."""
    adversaries = np.flatnonzero(_some(_draw_peer_traits(n, key)[:, ATTACKING], config.adversaries))

    def sent(peer_models: PeerModels, number: int) -> PeerModels:
        tables = {name: table.copy() for name, table in peer_models.tables.items()}
        for at in adversaries.tolist():
            attacked = attack_model(config, peer_models.take(np.array([at])), number, at, key)
            for name, table in attacked.tables.items():
                tables[name][at] = table[0]
        return replace(peer_models, tables=tables)

    return sent


def _draw_peer_traits(n: int, key: Key) -> NDArray[np.float64]:
    """Draw for every peer [n, 6]: period, link, device, whether it is an adversary, whether and when it joins."""
    return key.child("network").uniform(np.arange(n), 6)


def _classes(values: tuple[float, ...], draws: NDArray[np.float64], none: float) -> NDArray[np.float64]:
    if not values:
        return np.full(len(draws), none)
    found: NDArray[np.float64] = np.array(values)[(draws * len(values)).astype(int)]
    return found


def _some(draws: Array, share: float) -> NDArray[np.bool_]:
    """Return who is among a share of all: those with the smallest draws, to the nearest whole number."""
    chosen = np.zeros(len(draws), np.bool_)
    chosen[np.argsort(draws, kind="stable")[: int(np.floor(share * len(draws) + 0.5))]] = True
    return chosen
