"""The tour of peers: eight peers and two routers as processes on this machine, and a router killed on the way.

    python tools/peer_demo.py

Every step is a command that a person would type: tacit device init, tacit peer found, invite, join, run. Two of the
peers are routers. One router is killed (kill -9) after a third of the time; the others go on through the second, and no
person does anything about it. At the end the models of all peers are judged on items that they did not learn from,
beside a simulation of as many periods as a peer in the middle had, from the same first model, and beside the same peers
learning alone.

The eight users are generated: four like even items, four odd ones, and each has half of what it likes. The other half
is held out: nobody can know it alone, and others of the same taste have some of it. Eight users of the built-in town
are too few to learn from, in a simulation too: there a difference of real peers would be chance.
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

from peer_simulation import learn_alone, simulate_peers
from tacit.field.device import Device
from tacit.field.peer.membership import require_membership
from tacit.field.peer.peer_file import unpack_arrays
from tacit.field.peer.peer_status import read_status
from tacit.testing import two_tastes
from tacit.types import Array, Catalog, Clients

PEERS, ITEMS, PERIODS, PERIOD, SEEDS = 8, 100, 15, 3.0, 20
PASSPHRASE = "only for a demo"
GIVEN = {"view": 3, "learning_rate": 0.02, "local_epochs": 2}
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
    """Return what each user's device learns from, and the other items that it likes, which no device is told."""
    made, catalog = two_tastes(PEERS, ITEMS)
    clients = Clients(np.arange(PEERS), made.ptr, made.items, ITEMS)
    liked = [np.arange(user % 2, ITEMS, 2) for user in range(PEERS)]
    return clients, [np.setdiff1d(liked[user], clients.of(user)) for user in range(PEERS)], catalog


def rank_held_out(scores: Array, clients: Clients, held: list[Array]) -> Array:
    """Return for each user how often a held-out item ranks above one that the user does not like: 0.5 is chance."""
    found = []
    for user, row in enumerate(scores):
        others = np.setdiff1d(np.arange(ITEMS), np.concatenate([clients.of(user), held[user]]))
        above = row[held[user]][:, None] - row[others][None, :]
        found.append(np.mean((above > 0) + 0.5 * (above == 0)))
    return np.array(found)


def write_catalogue(path: Path, catalog: Catalog) -> None:
    """Write the table of items that the network is founded on."""
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["item", "title"])
        rows.writerows([catalog.item_ids[item], catalog.title(item)] for item in range(catalog.n_items))


def main() -> None:
    """Run the tour and print what came of it."""
    folder = Path(tempfile.mkdtemp(prefix="tacit-peers-"))
    running: list[subprocess.Popen[str]] = []
    try:
        clients, held, catalog = part_histories()
        homes = [folder / f"peer{at}" for at in range(PEERS)]
        write_catalogue(folder / "items.csv", catalog)
        routers = free_ports(2)
        for home, init in [(home, tacit(_made(home), "device", "init")) for home in homes]:
            finish(init)
            assert (home / "device.db").exists()
        named = [word for router in routers for word in ("--router", router)]
        given = [word for name, value in GIVEN.items() for word in ("--set", f"method.{name}={value}")]
        found = ["peer", "found", "tastes", str(folder / "items.csv"), *named, *given, "--period", str(PERIOD)]
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
            network = require_membership(device.store).network
            models.append(unpack_arrays(stored))
            states = [entry.state for entry in device.ledger.list()]
        periods.append(status.periods)
        print(
            f"peer {at}: {status.periods} periods, {states.count('sent')} of {len(states)} models acknowledged, "
            f"{status.received} read, {status.known} peers known"
        )
    joined = {name: np.concatenate([each[name] for each in models]) for name in models[0]}
    real = rank_held_out(network.built.score({}, joined, clients), clients, held)
    n = int(np.median(periods))
    simulated, alone = (
        np.array([rank_held_out(run(network, clients, catalog, n, seed), clients, held) for seed in range(SEEDS)])
        for run in (simulate_peers, learn_alone)
    )
    pairs = sum(len(items) for items in held) * ITEMS // 2
    print(f"how often a held-out item ranks above one that its user does not like ({pairs:,} pairs; chance 0.50):")
    print(f"  real peers   {real.mean():.2f}   one run, {n} periods in the middle")
    for name, runs in (("simulation", simulated), ("alone", alone)):
        low, high = np.quantile(runs.mean(1), [0.05, 0.95])
        print(f"  {name:<12} {runs.mean():.2f}   {SEEDS} seeds, nine of ten between {low:.2f} and {high:.2f}")
    gain = real - alone.mean(0)
    error = gain.std(ddof=1) / np.sqrt(PEERS)
    print(f"  gain of real peers over alone {gain.mean():+.2f}, standard error {error:.2f} over {PEERS} users")


if __name__ == "__main__":
    main()
