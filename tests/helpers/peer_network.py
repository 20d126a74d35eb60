"""A small network of real peers in one process, and the schedule of a simulation to drive it by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data import DataConfig, load
from tacit.field.device import Device, ScryptCost
from tacit.field.device.history import HistoryEntry
from tacit.field.peer.membership import PeerMembership, require_membership
from tacit.field.peer.peer_device import PeerDevice, PeerSend
from tacit.lab.event_driven import NetworkConfig, _Network
from tacit.lab.traffic import Traffic
from tacit.protocols.overlay import first_views, offer_peers
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, offsets
from tacit.updates import PeerModels
from tacit.wire.network import PeerNetwork, write_network
from tacit.wire.peer_records import PeerIdentity

SEED, PASSPHRASE, SECRET = 7, "peers among peers", bytes(range(32))
CHEAP = ScryptCost(log_n=10)
KEY = Key(SEED).child("learn")


class Hour:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def visits(n_users: int = 6) -> tuple[Clients, Catalog]:
    """Users of the built-in town with coordinates and times; each place once, as a device keeps it."""
    dataset = load(DataConfig(source="town", users=n_users, places=60))
    log = dataset.interactions
    assert log.times is not None
    items, times, counts = [], [], []
    for user in range(n_users):
        last = {int(item): int(time) for item, time in zip(
            log.items[log.users == user], log.times[log.users == user], strict=True
        )}  # fmt: skip
        items += sorted(last)
        times += [last[item] for item in sorted(last)]
        counts.append(len(last))
    known = dataset.catalog
    catalog = Catalog(known.item_ids, known.titles, known.categories, known.coordinates)
    ptr = offsets(np.array(counts))
    clients = Clients(
        np.arange(n_users), ptr, np.array(items, np.int32), catalog.n_items, None, np.array(times, np.int64)
    )
    return clients, catalog


class RealNetwork:
    """Peers with device files in a folder; each has the number, the seed and the history of a simulated one."""

    def __init__(
        self,
        folder: Path,
        name: str,
        given: dict[str, Any],
        world: tuple[Clients, Catalog],
        now: datetime | None = None,
        is_open: bool = True,
    ) -> None:
        self.clients, self.catalog = world
        self.network = PeerNetwork.create("ab" * 16, "peers", name, given, self.catalog, SEED)
        self.folder, self.clock, n = folder, Hour(), len(self.clients)
        self.clock.now = now or self.clock.now
        self.identities = [PeerIdentity.fresh() for _ in range(n)]
        self.numbers = {identity.id: at for at, identity in enumerate(self.identities)}
        self.alive = set(range(n))
        self.peers: dict[int, PeerDevice] = {}
        for at in range(n):
            self._create(at)
            if is_open:
                self.open(at)

    def _create(self, at: int) -> None:
        """Make a device with one user's history, and make it a member that knows all others."""
        with Device.create(self.path(at), PASSPHRASE, cost=CHEAP, seed=SEED, lane=at) as device:
            device.history.add(entries_of(self.clients, at, self.catalog), self.catalog)
            now = int(self.clock().timestamp())
            others = [i.record(self.network.digest, now) for i in self.identities if i is not self.identities[at]]
            content = write_network(self.network, self.catalog)
            PeerMembership.enter(device, content, SECRET, (), others, self.identities[at])

    def path(self, at: int) -> Path:
        return self.folder / f"{at}.db"

    def open(self, at: int) -> PeerDevice:
        device = Device.open(self.path(at), PASSPHRASE, self.clock)
        peer = PeerDevice(device, self.clock, self.numbers.__getitem__, self._offer_of(at))
        self.peers[at] = peer
        return peer

    def _offer_of(self, at: int) -> Callable[[int, int], Array]:
        def offer(number: int, n: int) -> Array:
            return offer_peers(KEY, number, np.array([at]), np.array(sorted(self.alive)), n)[0]

        return offer

    def close(self) -> None:
        for peer in self.peers.values():
            peer.device.close()

    def reopen(self, at: int) -> None:
        self.peers[at].device.close()
        self.open(at)

    def start_views(self, start: Any = "preferential") -> None:
        """Give every peer the first view that it has in the simulation."""
        views = first_views(len(self.clients), self.network.built.config.view, start, KEY)
        for at, peer in self.peers.items():
            peer.file.state.view = [int(other) for other in views[at] if other >= 0]

    def models(self) -> dict[str, Array]:
        names = self.peers[0].file.state.models
        return {name: np.concatenate([self.peers[at].file.state.models[name] for at in self.peers]) for name in names}


def entries_of(clients: Clients, at: int, catalog: Catalog) -> list[HistoryEntry]:
    """Return one client's history as a device keeps it."""
    rows = range(int(clients.ptr[at]), int(clients.ptr[at + 1]))
    times, values = clients.times, clients.values
    return [
        HistoryEntry(
            catalog.item_ids[int(clients.items[row])],
            None if times is None else int(times[row]),
            None if values is None else float(values[row]),
        )
        for row in rows
    ]


@dataclass(frozen=True)
class Step:
    """One event of a simulation."""

    what: str  # tick, deliver, lose, end, leave, crash, return
    at: int
    sender: int = -1
    ticks: int = -1  # of the sender when it sent


class RecordingNetwork(_Network):
    """A simulation that writes its schedule down."""

    def __init__(self, *args: Any) -> None:
        self.steps: list[Step] = []
        self.sent: dict[int, tuple[int, int]] = {}
        self.kept: list[PeerModels] = []  # so that no two have the same identity
        super().__init__(*args)

    def _tick(self, time: float, at: int) -> None:
        super()._tick(time, at)
        self.steps.append(Step("tick", at))

    def _end_period(self, time: float, at: int) -> None:
        super()._end_period(time, at)
        self.steps.append(Step("end", at))

    def _push(self, time: float, kind: int, at: int, other: int, *more: Any) -> None:
        if more and id(more[0]) not in self.sent:
            self.sent[id(more[0])] = (other, self.peers[other].ticks)
            self.kept.append(more[0])
        super()._push(time, kind, at, other, *more)

    def _deliver(self, time: float, at: int, sender: int, peer_model: PeerModels, lost: bool) -> None:
        arrives = bool(self.alive[at]) and not lost
        if not (arrives and self.busy[at] > time):
            ticks = self.sent[id(peer_model)][1]
            self.steps.append(Step("deliver" if arrives else "lose", at, sender, ticks))
        super()._deliver(time, at, sender, peer_model, lost)

    def _come_or_go(self, time: float, at: int) -> None:
        leaves, said = bool(self.alive[at]), self.session[at] + 1
        draws = self.key.child("come", int(said)).uniform(np.array([at]), 2)[0]
        gently = leaves and draws[1] >= self.config.crashing
        self.steps.append(Step("leave" if gently else "crash" if leaves else "return", at))
        super()._come_or_go(time, at)


def record(method: Any, world: tuple[Clients, Catalog], config: NetworkConfig) -> RecordingNetwork:
    """Run a simulation to its end."""
    network = RecordingNetwork(method, *world, KEY, config, Traffic.none(len(world[0])))
    for _ in range(method.config.epochs):
        network.run_until_checkpoint()
    return network


def replay(real: RealNetwork, steps: list[Step]) -> None:
    """Let real peers do what a simulation did, message by message."""
    waiting: dict[tuple[int, int, int], PeerSend] = {}
    for step in steps:
        peer = real.peers[step.at]
        if step.what == "tick":
            for send in peer.begin_period():
                waiting[step.at, peer.file.state.ticks, send.number] = send
        elif step.what == "end":
            peer.end_period()
        elif step.what in ("deliver", "lose"):
            send = waiting.pop((step.sender, step.ticks, step.at))
            reply = peer.receive(send.content) if step.what == "deliver" else None
            assert reply != b"", "a message of the schedule was refused"
            if step.sender in real.alive:
                real.peers[step.sender].settle(send, reply)
        elif step.what == "return":
            real.alive.add(step.at)
            real.reopen(step.at)
        else:
            if step.what == "leave":
                for send in peer.goodbye():
                    real.peers[send.number].receive(send.content)
            real.alive.discard(step.at)
    assert require_membership(real.peers[0].device.store).network == real.network
