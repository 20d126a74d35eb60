"""The tour of peers: eight peers and two routers as processes on this machine, and a router killed on the way.

    python tools/peer_demo.py

Every step is a command that a person would type: tacit device init, tacit peer found, invite, join, run. Two of the
peers are routers. One router is killed (kill -9) after a third of the time; the others go on through the second, and no
person does anything about it. At the end the models of all peers are judged on items that they did not learn from,
beside a simulation of as many periods as a peer in the middle had, and beside the same peers learning alone.
"""

from __future__ import annotations

import csv
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tacit.data import DataConfig, load
from tacit.field.device import Device
from tacit.field.peer.peer_file import unpack_arrays
from tacit.field.peer.peer_status import read_status
from tacit.lab.event_driven import NetworkConfig, gossip_event_driven
from tacit.methods.base import build, options
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Model, offsets

PEERS, PERIODS, PERIOD, HELD = 8, 15, 3.0, 3
PASSPHRASE = "only for a demo"
GIVEN = {"view": 3, "learning_rate": 0.02, "local_epochs": 2}
TOP = 10
SECONDS = 300  # for any command


def tacit(home: Path, *words: str) -> subprocess.Popen[str]:
    """Start a command, as a person in front of a shell would."""
    environment = {
        **os.environ,
        "TACIT_PASSPHRASE": PASSPHRASE,
        "TACIT_DEVICE": str(home / "device.db"),
        "OPENBLAS_NUM_THREADS": "1",
        "NUMBA_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", "from tacit.cli import main; main()", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def finish(process: subprocess.Popen[str]) -> str:
    """Wait for a command and return what it printed; if it failed, so does the tour."""
    out, _ = process.communicate(timeout=SECONDS)
    if process.returncode:
        raise SystemExit(f"a command ended with {process.returncode}:\n{out}")
    return out.strip()


def free_ports(n: int) -> list[str]:
    """Return addresses on this machine that are free now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    found = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    return found


def part_histories() -> tuple[Clients, list[Array], Catalog]:
    """Return what each user's device learns from, and the last places of each, which no device sees."""
    dataset = load(DataConfig(source="town", users=PEERS, places=60))
    log, catalog = dataset.interactions, dataset.catalog
    assert log.times is not None
    kept, held = [], []
    for user in range(PEERS):
        rows = np.flatnonzero(log.users == user)
        rows = rows[np.argsort(log.times[rows], kind="stable")]
        places = list(dict.fromkeys(log.items[rows].tolist()))
        kept.append(np.sort(np.array(places[:-HELD], np.int32)))
        held.append(np.array(places[-HELD:]))
    ptr = offsets(np.array([len(items) for items in kept]))
    return Clients(np.arange(PEERS), ptr, np.concatenate(kept), catalog.n_items), held, catalog


def hit_rate(scores: Array, clients: Clients, held: list[Array]) -> float:
    """Return the share of held-out places among the first ten that a user does not have yet."""
    hits = []
    for user, row in enumerate(np.array(scores, np.float64)):
        row[clients.of(user)] = -np.inf
        hits += np.isin(held[user], np.argsort(-row)[:TOP]).tolist()
    return float(np.mean(hits))


def write_catalogue(path: Path, catalog: Catalog) -> None:
    """Write the table of places that the network is founded on."""
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["item", "title"])
        rows.writerows([catalog.item_ids[item], catalog.title(item)] for item in range(catalog.n_items))


def learn_alone(clients: Clients, catalog: Catalog, periods: int) -> Array:
    """Return the scores of peers that never meet."""
    method = build("pepper", options("pepper", {**GIVEN, "epochs": periods}))
    model = method.init(clients, catalog, Key(1))
    models = dict(model.private)
    own = method.own(model.shared, models, clients)
    for _ in range(periods):
        models = dict(method.learn(models, own))
    scores: Array = method.score(model.shared, models, clients)
    return scores


def simulate_peers(clients: Clients, catalog: Catalog, periods: int, seed: int) -> Array:
    """Return the scores after as many periods of an event-driven simulation with staggered clocks."""
    method = build("pepper", options("pepper", {**GIVEN, "epochs": periods}))
    last = None
    for model in gossip_event_driven(method, clients, catalog, Key(seed), NetworkConfig(staggered=True, one_vote=True)):
        last = model
    assert last is not None
    scores: Array = method.score(last.shared, last.private, clients)
    return scores


def main() -> None:
    """Run the tour and print what came of it."""
    folder = Path(tempfile.mkdtemp(prefix="tacit-peers-"))
    running: list[subprocess.Popen[str]] = []
    try:
        clients, held, catalog = part_histories()
        homes = [folder / f"peer{at}" for at in range(PEERS)]
        write_catalogue(folder / "places.csv", catalog)
        routers = free_ports(2)
        for home, init in [(home, tacit(_made(home), "device", "init")) for home in homes]:
            finish(init)
            assert (home / "device.db").exists()
        named = [word for router in routers for word in ("--router", router)]
        given = [word for name, value in GIVEN.items() for word in ("--set", f"method.{name}={value}")]
        found = ["peer", "found", "town", str(folder / "places.csv"), *named, *given, "--period", str(PERIOD)]
        print(finish(tacit(homes[0], *found)))
        line = finish(tacit(homes[0], "peer", "invite"))
        for at, home in enumerate(homes):
            if at:
                finish(tacit(home, "peer", "join", line))
            labels = [str(catalog.item_ids[int(item)]) for item in clients.of(at)]
            finish(tacit(home, "device", "history", "add", *labels))
            listen = ["--listen", routers[at]] if at < 2 else []
            running.append(tacit(home, "peer", "run", *listen))
            print(f"peer {at} takes part{' and is a router' if listen else ''}", flush=True)
            if at == 0:
                wait_for_port(routers[0])
        time.sleep(PERIOD * PERIODS / 3)
        running[0].send_signal(signal.SIGKILL)
        print(f"router {routers[0]} was killed", flush=True)
        time.sleep(PERIOD * PERIODS * 2 / 3)
        for process in running[1:]:
            process.send_signal(signal.SIGTERM)
        for process in running[1:]:
            finish(process)
        show_results(homes, clients, held, catalog)
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _made(home: Path) -> Path:
    home.mkdir()
    return home


def wait_for_port(address: str) -> None:
    """Wait until a router listens, and bounded."""
    host, port = address.split(":")
    for _ in range(SECONDS * 2):
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            return
        except OSError:
            time.sleep(0.5)
    raise SystemExit(f"no router listens at {address}")


def show_results(homes: list[Path], clients: Clients, held: list[Array], catalog: Catalog) -> None:
    """Print what each peer did, and how good the models are beside a simulation and beside learning alone."""
    models: list[dict[str, Array]] = []
    periods: list[int] = []
    for at, home in enumerate(homes):
        with Device.open(home / "device.db", PASSPHRASE) as device:
            status, stored = read_status(device), device.store.get("peer_models")
            assert stored is not None
            models.append(unpack_arrays(stored))
            states = [entry.state for entry in device.ledger.list()]
        periods.append(status.periods)
        print(
            f"peer {at}: {status.periods} periods, {states.count('sent')} of {len(states)} models acknowledged, "
            f"{status.received} read, {status.known} peers known"
        )
    method = build("pepper", options("pepper", GIVEN))
    joined = {name: np.concatenate([each[name] for each in models]) for name in models[0]}
    shared = Model(method.init(clients, catalog, Key(1)).shared, joined).shared
    real = hit_rate(method.score(shared, joined, clients), clients, held)
    n = int(np.median(periods))
    runs = [simulate_peers(clients, catalog, n, seed) for seed in range(5)]
    simulated = np.array([hit_rate(scores, clients, held) for scores in runs])
    alone = hit_rate(learn_alone(clients, catalog, n), clients, held)
    print(f"hit rate at {TOP} on {HELD} held-out places per user ({PEERS * HELD} in all), {n} periods:")
    print(f"  real peers {real:.2f}   simulation {simulated.mean():.2f} (five seeds: {simulated.min():.2f} to "
          f"{simulated.max():.2f})   alone {alone:.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
