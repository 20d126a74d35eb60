"""A model of 200 kB sent to a peer and acknowledged, through a router with TLS on both sides; beside bare Zenoh.

`peer` is Zenoh alone: as many fresh bytes as a query through the same router, with the same certificates, and a reply
of the length of an acknowledgement. `ours` seals and signs the model, sends it, checks, opens and decodes it, and
writes and checks the acknowledgement. `floor` is bare Zenoh and AES-GCM at both ends, and no other byte is looked at.
All are the processor time of the whole process: sender, router and receiver; one send after the other, and as many at
once as a peer has on their way.
Merging and the device's file are measured beside it, as parts of their own.

`--sessions 1000`: so many peers in one process through two routers; time and memory of membership and of one period.
"""

from __future__ import annotations

import argparse
import json
import resource
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tacit.field.device import Device, ScryptCost
from tacit.field.device.history import HistoryEntry
from tacit.field.peer.membership import PeerMembership
from tacit.field.peer.peer_device import PeerDevice
from tacit.field.peer.runner import AT_ONCE, send_peer_message
from tacit.field.peer.zenoh_carrier import ZenohCarrier
from tacit.types import Catalog, Vocabulary
from tacit.wire.network import PeerNetwork, write_network
from tacit.wire.peer_messages import ACK_BYTES, MODEL, TAG_BYTES, PeerSeal, read_model, write_model
from tacit.wire.peer_records import PeerIdentity

ITEMS, FACTORS, SENDS, TRIES, PERIODS = 3_300, 15, 100, 7, 20  # 15 factors and 3,300 items: 198 kB
WORD, SECRET = "a benchmark", bytes(range(32))


def free_addresses(n: int) -> list[str]:
    """Return addresses on this machine that are free now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    found = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    return found


def make_network(items: int, factors: int) -> tuple[PeerNetwork, Catalog]:
    """Return the terms of a network whose model has so many numbers."""
    catalog = Catalog(Vocabulary(np.arange(items)))
    given = {"factors": factors, "view": 3}
    return PeerNetwork.create("ab" * 16, "bench", "pepper", given, catalog, 1), catalog


def make_peers(folder: Path, n: int, network: PeerNetwork, catalog: Catalog, known: int) -> list[PeerDevice]:
    """Make devices with histories of 50 items; each knows the `known` that follow it."""
    content, now = write_network(network, catalog), int(time.time())
    identities = [PeerIdentity.fresh() for _ in range(n)]
    records = [identity.record(network.digest, now) for identity in identities]
    draws, peers = np.random.default_rng(1), []
    for at, identity in enumerate(identities):
        device = Device.create(folder / f"{at}.db", WORD, cost=ScryptCost(log_n=10))
        chosen = draws.choice(catalog.n_items, min(50, catalog.n_items // 2), replace=False)
        device.history.add([HistoryEntry(catalog.item_ids[int(item)]) for item in chosen], catalog)
        others = [records[(at + step) % n] for step in range(1, known + 1)]
        PeerMembership.enter(device, content, SECRET, (), others, identity)
        peers.append(PeerDevice(device))
    return peers


def time_of(work: Callable[[], None], pool: ThreadPoolExecutor | None = None) -> float:
    """Return the processor time of the whole process for one of `SENDS` repetitions, in milliseconds.

    One follows the other, or a pool has as many on their way at once as it has threads.
    """
    started = time.process_time()
    if pool is None:
        for _ in range(SENDS):
            work()
    else:
        for end in [pool.submit(work) for _ in range(SENDS)]:
            end.result()
    return 1000 * (time.process_time() - started) / SENDS


def best_of(work: Callable[[], None]) -> float:
    """Return the least of some tries."""
    return min(time_of(work) for _ in range(TRIES))


def measure_send(folder: Path) -> dict[str, object]:
    """Measure one send, ours and bare, in turn."""
    network, catalog = make_network(ITEMS, FACTORS)
    sender, receiver = make_peers(folder, 2, network, catalog, 1)
    addresses = free_addresses(1)
    router = ZenohCarrier(PeerSeal(PeerIdentity.fresh(), network.digest, SECRET), addresses, addresses)
    router.open(bytes(16), lambda content: b"")
    to, mine = receiver._record(), sender._record()
    receiver._meet([mine])
    example = network.built.peer_models(sender.file.state.models, np.array([1]), sender.file.state.own)
    model = example.take(np.array([0]))
    content = b"".join(write_model(model))
    sealed = sender.seal.seal(to, 1, time.time(), MODEL, mine.packed, content)

    def read(message: bytes) -> bytes:
        """Do what a receiver does with a message, without merging it and without its file."""
        envelope = receiver.seal.read(message)
        envelope.refuse_if_expired(time.time())
        receiver.seal.refuse_if_forged(envelope)
        opened, record, inside = receiver._open(envelope)
        assert record.id == sender.identity.id
        read_model(inside, 1)
        return opened.acknowledge(True, time.time())

    bare_inbox = ZenohCarrier(receiver.seal, addresses)
    own_inbox = ZenohCarrier(receiver.seal, addresses)
    floor_inbox = ZenohCarrier(receiver.seal, addresses)
    outbox = ZenohCarrier(sender.seal, addresses)
    bare_id, floor_id = bytes(range(16)), bytes(range(16, 32))
    key, nonce, plain = bytes(32), bytes(12), sealed[:-TAG_BYTES]

    def decrypt_only(content: bytes) -> bytes:
        AESGCM(key).decrypt(nonce, content, None)
        return bytes(ACK_BYTES)

    bare_inbox.open(bare_id, lambda content: bytes(ACK_BYTES))
    own_inbox.open(receiver.identity.id, read)
    floor_inbox.open(floor_id, decrypt_only)
    outbox.open(sender.identity.id, lambda content: b"")
    while not all(outbox.reaches(id) for id in (bare_id, floor_id, receiver.identity.id)):
        time.sleep(0.1)

    def send_bare() -> None:
        assert outbox.send(bare_id, bytes(bytearray(sealed)), lambda reply: len(reply) == ACK_BYTES) is not None

    def send_floor() -> None:
        message = AESGCM(key).encrypt(nonce, plain, None)
        assert outbox.send(floor_id, message, lambda reply: len(reply) == ACK_BYTES) is not None

    def send_own() -> None:
        message = sender.seal.seal(to, 1, time.time(), MODEL, sender._record().packed, *write_model(model))
        assert outbox.send(to.id, message, lambda reply: sender.seal.read_ack(reply, message) is not None) is not None

    works = (send_bare, send_floor, send_own)
    runs = np.array([[time_of(work) for work in works] for _ in range(4 * TRIES)])
    with ThreadPoolExecutor(AT_ONCE) as pool:
        at_once = np.array([[time_of(work, pool) for work in works] for _ in range(4 * TRIES)]).min(0)
    (bare, floor, ours), middle = runs.min(0).tolist(), np.median(runs, 0)
    parts = {
        "sealing and signing": best_of(
            lambda: _drop(sender.seal.seal(to, 1, time.time(), MODEL, sender._record().packed, *write_model(model)))
        ),
        "checking, opening, decoding, acknowledging": best_of(lambda: _drop(read(sealed))),
    }
    parts |= measure_device(sender, receiver)
    for carrier in (bare_inbox, floor_inbox, own_inbox, outbox, router):
        carrier.close()
    return {
        "bench": "peers",
        "data": f"a peer model of {len(content) // 1000} kB, a message of {len(sealed) // 1000} kB",
        "threads": 1,
        "ours": round(ours, 3),
        "peer": round(bare, 3),
        "floor": round(floor, 3),
        "peer_name": "bare Zenoh, the same bytes through the same router",
        "ratio": round(bare / ours, 2),
        "unit": "CPU milliseconds per model sent and acknowledged",
        "overhead": round(ours / bare - 1, 3),
        "overhead_of_medians": round(float(middle[2] / middle[0] - 1), 3),
        f"{AT_ONCE} at once: ours, peer, floor": [round(float(value), 3) for value in at_once[[2, 0, 1]]],
        f"overhead of {AT_ONCE} at once": round(float(at_once[2] / at_once[0] - 1), 3),
        "parts": {name: round(value, 3) for name, value in parts.items()},
    }


def measure_device(sender: PeerDevice, receiver: PeerDevice) -> dict[str, float]:
    """Return what two devices spend on a period beside that: in processor milliseconds, the least of some periods."""
    for peer in (sender, receiver):
        peer.warm_up()
    found: dict[str, list[float]] = {}

    def note(name: str, work: Callable[[], object]) -> object:
        started = time.process_time()
        result = work()
        found.setdefault(name, []).append(1000 * (time.process_time() - started))
        return result

    for _ in range(PERIODS):
        sends = note("device: model, ledger and file before it leaves", sender.begin_period)
        assert isinstance(sends, list)
        (send,) = sends
        reply = note("device: reading, judging, merging, file", lambda send=send: receiver.receive(send.content))
        assert isinstance(reply, bytes)
        assert reply
        note("device: noting the acknowledgement", lambda send=send, reply=reply: sender.settle(send, reply))
        note("device: learning, file", receiver.end_period)
        sender.end_period()
    return {name: min(values) for name, values in found.items()}


def _drop(value: object) -> None:
    """Let a value go."""


def measure_sessions(folder: Path, n: int) -> dict[str, object]:
    """Let `n` peers of one process become members through two routers, and complete one period."""
    network, catalog = make_network(200, 8)
    started = time.monotonic()
    peers = make_peers(folder, n, network, catalog, 4)
    made = time.monotonic() - started
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    addresses = free_addresses(2)
    carriers = [
        ZenohCarrier(peer.seal, addresses[at % 2 :] + addresses[: at % 2], addresses[at : at + 1] if at < 2 else [])
        for at, peer in enumerate(peers)
    ]
    started = time.monotonic()
    for carrier, peer in zip(carriers, peers, strict=True):
        carrier.open(peer.identity.id, peer.receive)
    opened = time.monotonic() - started
    while not all(carriers[0].reaches(peers[at].identity.id) for at in range(1, n, max(1, n // 50))):
        time.sleep(0.1)
    reached = time.monotonic() - started

    spans: list[float] = []
    counts: dict[str, list[int]] = {"records": [], "models": []}
    at_once = threading.Semaphore(64)

    def send_all(at: int, what: str) -> None:
        """One peer's part of a period: its pushes and pulls, or its models."""
        with at_once:
            peer, carrier = peers[at], carriers[at]
            sends = peer.exchange_records() if what == "records" else peer.begin_period()
            outcomes = []
            for send in sends:
                begun = time.monotonic()
                reply = send_peer_message(carrier, send, peer.seal)
                spans.append(time.monotonic() - begun)
                outcomes.append((send, reply))
            counts[what] += [len(sends), peer.settle_all(outcomes)]

    took = {}
    for what in ("records", "models"):
        started = time.monotonic()
        threads = [threading.Thread(target=send_all, args=(at, what)) for at in range(n)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(600)
        took[what] = time.monotonic() - started
    started = time.monotonic()
    for peer in peers:
        peer.end_period()
    took["learning"] = time.monotonic() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    for carrier in carriers[2:] + carriers[:2]:
        carrier.close()
    totals = {name: (sum(values[::2]), sum(values[1::2])) for name, values in counts.items()}
    return {
        "bench": "peers",
        "data": f"{n:,} sessions of one process through two routers, one period",
        "seconds": {
            "device files": round(made, 1),
            "connecting": round(opened, 1),
            "all inboxes known": round(reached, 1),
            **{name: round(value, 1) for name, value in took.items()},
        },
        "acknowledged": {name: f"{read} of {sent}" for name, (sent, read) in totals.items()},
        "slowest_send_seconds": round(max(spans), 2),
        "known_after": int(np.median([len(peer.file.records) for peer in peers])),
        "mb_of_sessions": peak - before,
        "peak_mb": peak,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sessions", type=int, default=0)
    n = parser.parse_args().sessions
    with tempfile.TemporaryDirectory(prefix="tacit-bench-", ignore_cleanup_errors=True) as folder:
        found = measure_sessions(Path(folder), n) if n else measure_send(Path(folder))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({"peak_mb": peak, **found, "commit": commit}))


if __name__ == "__main__":
    main()
