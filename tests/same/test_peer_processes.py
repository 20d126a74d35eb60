"""Real processes over Zenoh, with two routers and mutual TLS, under a simulation's schedule: the simulation's bits."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("zenoh")

from helpers.peer_network import CHEAP, PASSPHRASE, RealNetwork, record, visits
from helpers.scripted_peer import digest_arrays
from helpers.waiting import LONG, wait_until
from tacit.errors import FieldError
from tacit.field.device import Device
from tacit.field.device.history import HistoryEntry
from tacit.field.peer.founding import PeerInvitation, found_network, invite, join_network
from tacit.field.peer.peer_device import PeerDevice
from tacit.field.peer.zenoh_carrier import ZenohCarrier
from tacit.lab.event_driven import NetworkConfig
from tacit.methods.base import Gossip, build, methods, options
from tacit.testing import two_tastes
from tacit.wire.network import PeerNetwork
from tacit.wire.peer_messages import PeerSeal
from tacit.wire.peer_records import PeerIdentity

pytestmark = pytest.mark.slow

GOSSIP = [name for name in methods() if isinstance(build(name), Gossip)]
N_PEERS, EPOCHS = 3, 3
SCRIPT = Path(__file__).parent.parent / "helpers" / "scripted_peer.py"


def free_addresses(n: int) -> list[str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    found = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    return found


class PeerProcess:
    """A process that runs `scripted_peer`."""

    def __init__(self, at: int, *parts: list[Any]) -> None:
        command = [sys.executable, str(SCRIPT), str(at), *map(json.dumps, parts)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def do(self, command: str) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return json.loads(self.read())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


@pytest.fixture
def started() -> Iterator[list[PeerProcess]]:
    processes: list[PeerProcess] = []
    yield processes
    for process in processes:
        process.kill()


def test_processes_learn_the_bits_of_the_simulation_with_every_method(
    tmp_path: Path, started: list[PeerProcess]
) -> None:
    rough, simulated, networks = NetworkConfig(one_vote=True, loss=0.2), [], []
    worlds = {"gmf": (two_tastes(n_clients=N_PEERS), {"batch_size": 16}), "prme-g": (visits(N_PEERS), {})}
    cases = [(name, model) for name in GOSSIP for model in worlds]
    for name, model in cases:
        world, more = worlds[model]
        given = {"view": 2, "model": model, **more}
        simulated.append(record(build(name, options(name, {**given, "epochs": EPOCHS})), world, rough))
        folder = tmp_path / f"{name}-{model}"
        folder.mkdir()
        networks.append(RealNetwork(folder, name, given, world, now=datetime.now(UTC), is_open=False))
    addresses = [free_addresses(2) for _ in cases]
    numbers = [{id.hex(): at for id, at in network.numbers.items()} for network in networks]
    for at in range(N_PEERS):
        paths = [str(network.path(at)) for network in networks]
        listen = [two[at : at + 1] for two in addresses]  # the first two are routers
        if at == 2:  # a client needs a router that is there
            assert [process.read() for process in started] == ["ready"] * 2
        started.append(PeerProcess(at, paths, addresses, numbers, listen))
    assert started[2].read() == "ready"
    for which, network in enumerate(simulated):
        for process in started:
            wait_until(lambda p=process, w=which: p.do(f"{w} reach"), LONG, "all peers are connected")
        for step in network.steps:
            if step.what in ("tick", "end"):
                started[step.at].do(f"{which} {'begin' if step.what == 'tick' else 'end'}")
            else:
                command = "send" if step.what == "deliver" else "lose"
                assert started[step.sender].do(f"{which} {command} {step.at}") == (command == "send")
        for at, peer in enumerate(network.peers):
            assert started[at].do(f"{which} models") == digest_arrays(dict(peer.models)), f"{cases[which]}, peer {at}"
    assert {"deliver", "lose"} <= {step.what for network in simulated for step in network.steps}


@pytest.fixture
def founder(tmp_path: Path) -> Iterator[tuple[PeerDevice, list[str]]]:
    catalog, addresses = two_tastes()[1], free_addresses(2)
    network = PeerNetwork.create("cd" * 16, "small", "pepper", {"batch_size": 16}, catalog, 3)
    with Device.create(tmp_path / "founder.db", PASSPHRASE, cost=CHEAP) as device:
        device.history.add([HistoryEntry(100), HistoryEntry(102), HistoryEntry(104)], catalog)
        found_network(device, network, catalog, addresses)
        yield PeerDevice(device), addresses


def test_joining_takes_terms_from_a_member_and_refuses_others(
    founder: tuple[PeerDevice, list[str]], tmp_path: Path
) -> None:
    peer, addresses = founder
    line = invite(peer.device, peer.member).line()
    invitation = PeerInvitation.parse(line)
    with Device.create(tmp_path / "new.db", PASSPHRASE, cost=CHEAP) as device:
        with pytest.raises(FieldError):  # no router is there
            join_network(device, invitation, lambda seal: ZenohCarrier(seal, addresses))
        router = ZenohCarrier(peer.seal, addresses, addresses[:1])
        router.open(peer.identity.id, peer.receive)
        try:
            member = join_network(device, invitation, lambda seal: ZenohCarrier(seal, addresses))
            assert member.network == peer.member.network
            assert device.catalog.item_ids.labels.tolist() == member.catalog.item_ids.labels.tolist()
            outsider = PeerSeal(PeerIdentity.fresh(), invitation.network, bytes(32))
            with pytest.raises(FieldError):  # without the network's secret, no router lets it in
                ZenohCarrier(outsider, addresses).open(outsider.identity.id, lambda content: b"")
        finally:
            router.close()
    for damaged in (line[:-9], line.replace("tacitp1:", "tacitp2:"), "tacit1:abc", "", line[:40]):
        with pytest.raises(FieldError):
            PeerInvitation.parse(damaged)


def test_a_dead_router_is_replaced_without_anyones_help(founder: tuple[PeerDevice, list[str]]) -> None:
    peer, addresses = founder
    routers = [ZenohCarrier(PeerSeal(PeerIdentity.fresh(), peer.seal.network, peer.seal.secret), addresses, [address])
               for address in addresses]  # fmt: skip
    for router in routers:
        router.open(bytes(16), lambda content: b"")
    sender = PeerSeal(PeerIdentity.fresh(), peer.seal.network, peer.seal.secret)
    inbox, outbox = ZenohCarrier(peer.seal, addresses), ZenohCarrier(sender, addresses[::-1])
    inbox.open(peer.identity.id, lambda content: b"read " + content)
    outbox.open(sender.identity.id, lambda content: b"")
    try:

        def arrives() -> bool:
            return outbox.send(peer.identity.id, b"a", lambda reply: True) == b"read a"

        wait_until(arrives, 10, "a message arrives")
        routers[0].close()
        wait_until(lambda: inbox.n_routers == 1 and arrives(), 10, "it arrives through the other router")
        assert outbox.n_routers == 1
    finally:
        for carrier in (inbox, outbox, routers[1]):
            carrier.close()
