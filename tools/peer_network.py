"""A network of real peers on this machine, one process each: how good it is beside a simulation, and what churn does.

    python tools/peer_network.py quality [--peers 60] [--periods 30] [--period 20] [--together 1] [--seed 7] [--virtual]
    python tools/peer_network.py churn   [--peers 60] [--minutes 4] [--period 20]

Every peer runs what `tacit peer run` runs: a device's encrypted file, the runner, Zenoh with TLS; two are routers. With
`--together` so many peers share a process, each with a session of its own, where memory or processors are few.
Devices are made here with a cheap passphrase, and each is introduced to four others, as an invitation does.

quality   users of MovieLens 100K (where TACIT_DATA points at it; else of two generated tastes) learn freely. The share
          of held-out items among the first 20 of 100 unseen ones (HR@20, its expectation over all draws) is printed for
          the real peers, for event-driven simulations of as many periods from the same first model, and for
          learning alone. With `--virtual` the peers share this process and a clock that jumps from event to event:
          a busy machine changes nothing then, and no carrier is used.
churn     20 % of the peers are killed (kill -9) in each minute and started again; then 30 % at once, for good. Prints a
          verdict on: crashes, slowest send, models merged twice, dead ids in views three periods later, parts.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from peer_simulation import learn_alone, simulate_peers
from tacit.data import DataConfig, load
from tacit.field.device import Device, ScryptCost
from tacit.field.device.history import HistoryEntry
from tacit.field.peer.membership import PeerMembership
from tacit.field.peer.peer_device import PeerDevice, PeerSend
from tacit.field.peer.peer_file import read_peer_state, unpack_arrays
from tacit.field.peer.runner import PeerRunner, PeriodOutcome
from tacit.field.peer.zenoh_carrier import ZenohCarrier
from tacit.protocols.overlay import n_components
from tacit.testing import two_tastes
from tacit.types import Array, Catalog, Clients, offsets
from tacit.updates import PeerModels
from tacit.wire.network import PeerNetwork, write_network
from tacit.wire.peer_messages import PeerEnvelope
from tacit.wire.peer_records import PeerIdentity, PeerRecord, peer_number

GIVEN = {"view": 3}
PASSPHRASE, INTRODUCED, HELD_OUT, K, AMONG = "only for a trial", 4, 0.2, 20, 100
KILLED, AT_ONCE, AWAY = 0.2, 0.3, 5.0  # of peers in a minute, of peers together; seconds until a killed one starts
LONGEST, MOST_DEAD = 5.0, 0.05  # seconds of a send; of ids in views
START = 240.0  # seconds for some processes to begin
GO = "go"  # the file whose coming lets peers begin


# --- one peer, in a process of its own --------------------------------------------------------------------------------


class LoggedPeer(PeerDevice):
    """Notes every model before it is merged: a message that is merged twice would be there twice."""

    log: Path

    def _obey(self, kind: int, record: PeerRecord, envelope: PeerEnvelope, peer_model: PeerModels | None) -> bytes:
        if peer_model is not None:
            write_line(self.log, {"merged": f"{envelope.sender.hex()} {envelope.sequence}"})
        return super()._obey(kind, record, envelope, peer_model)


def write_line(path: Path, about: dict[str, Any]) -> None:
    """Add a line to a log, in one write."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(about) + "\n")


def run_peers(peers: list[tuple[str, list[str]]], routers: list[str], period: float, periods: int | None) -> None:
    """Take part with some files until the end or a signal; a list of addresses makes one a router."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with ThreadPoolExecutor(len(peers)) as pool:
        ends = [pool.submit(run_peer, Path(path), routers, listen, (period, periods), stop) for path, listen in peers]
        for end in ends:
            end.result()


def run_peer(
    path: Path, routers: list[str], listen: list[str], how_long: tuple[float, int | None], stop: threading.Event
) -> None:
    """Take part with one file."""
    log, (period, periods) = path.with_suffix(".log"), how_long
    with Device.open(path, PASSPHRASE) as device:
        peer = LoggedPeer(device)
        peer.log = log
        seal = peer.seal

        def report(outcome: PeriodOutcome | str) -> None:
            write_line(log, {"said": outcome} if isinstance(outcome, str) else asdict(outcome))

        runner = PeerRunner(peer, lambda: ZenohCarrier(seal, routers, listen), report, period)
        write_line(log, {"began": time.time()})
        while not (path.parent / GO).exists() and not stop.wait(0.1):
            pass  # all begin together: whoever began early would end before the last one has learnt from it
        runner.run(stop, periods)


# --- the network ------------------------------------------------------------------------------------------------------


class Processes:
    """All peers of a network: their files, and a process for each that is up."""

    def __init__(self, folder: Path, clients: Clients, catalog: Catalog, network: PeerNetwork) -> None:
        self.folder, self.period, self.n = folder, network.period, len(clients)
        self.routers = free_addresses(2)
        self.up: dict[int, subprocess.Popen[bytes]] = {}
        self.crashed: list[int] = []
        content, secret, now = write_network(network, catalog), os.urandom(32), int(time.time())
        identities = [PeerIdentity.fresh() for _ in range(self.n)]
        self.places = {peer_number(identity.id): at for at, identity in enumerate(identities)}
        draws = random.Random(1)
        for at, identity in enumerate(identities):
            known = draws.sample([other for other in identities if other is not identity], min(INTRODUCED, self.n - 1))
            with Device.create(self.path(at), PASSPHRASE, cost=ScryptCost(log_n=10)) as device:
                items = [HistoryEntry(catalog.item_ids[int(item)]) for item in clients.of(at)]
                device.history.add(items, catalog)
                records = [other.record(network.digest, now) for other in known]
                PeerMembership.enter(device, content, secret, tuple(self.routers), records, identity)

    def path(self, at: int) -> Path:
        """Return the file of a peer; its log and what it printed lie beside it."""
        return self.folder / f"{at}.db"

    def start(self, at: int, periods: int | None = None, together: int = 1) -> None:
        """Start the process of a peer and of those that share it; the first two peers are routers."""
        peers = range(at, min(at + together, self.n))
        files = [(str(self.path(one)), self.routers[one : one + 1] if one < 2 else []) for one in peers]
        words = [json.dumps(files), json.dumps(self.routers), str(self.period), str(periods or 0)]
        with self.path(at).with_suffix(".err").open("ab") as errors:
            command = [sys.executable, __file__, "peer", *words]
            self.up[at] = subprocess.Popen(command, stdout=errors, stderr=errors)

    def start_all(self, periods: int | None = None, together: int = 1) -> None:
        """Start all, the routers first, and few at once: starting is what costs most."""
        for at in range(0, self.n, together):
            self.start(at, periods, together)
            if at in (0, 1) or at % 4 == 0:
                self.wait_until_begun(set(range(min(at + together, self.n))))
        self.wait_until_begun(set(range(self.n)))
        (self.folder / GO).touch()

    def begun(self) -> set[int]:
        """Return the peers that have begun to take part."""
        return {at for at in range(self.n) if self.path(at).with_suffix(".log").exists()}

    def wait_until_begun(self, wanted: set[int]) -> None:
        """Wait until some peers take part, and bounded."""
        begin = time.monotonic()
        while not wanted <= self.begun():
            time.sleep(0.1)
            if time.monotonic() - begin > START:
                raise SystemExit(f"peers {sorted(wanted - self.begun())} do not start")

    def kill(self, at: int) -> None:
        """Kill one peer (kill -9), unless it ended by itself, which is a crash."""
        process = self.up.pop(at)
        if process.poll() is not None:
            self.crashed.append(at)
        process.kill()
        process.wait(30)

    def end_all(self) -> None:
        """Ask all to end, and wait."""
        for process in self.up.values():
            if process.poll() is None:
                process.terminate()
        for at, process in self.up.items():
            try:
                if process.wait(60):
                    self.crashed.append(at)
            except subprocess.TimeoutExpired:
                process.kill()
                self.crashed.append(at)
        self.up = {}

    def logs(self, at: int) -> list[dict[str, Any]]:
        """Return what a peer noted, over all its processes."""
        path = self.path(at).with_suffix(".log")
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []

    def views(self) -> dict[int, list[int]]:
        """Return whom each living peer would send to or ask: its view, and those that its sampler has."""
        found = {}
        for at in self.up:
            with Device.open(self.path(at), PASSPHRASE) as device:
                about = read_peer_state(device.store)
            sampler = {} if about is None else about["sampler"]
            named = [*sampler.get("view", []), *sampler.get("slots", []), *(about or {}).get("view", [])]
            found[at] = [self.places[number] for number in dict.fromkeys(named) if number in self.places]
        return found

    def states(self) -> list[dict[str, Any]]:
        """Return what all peers remember beside their models."""
        found = []
        for at in range(self.n):
            with Device.open(self.path(at), PASSPHRASE) as device:
                found.append(read_peer_state(device.store) or {})
        return found

    def models(self) -> dict[str, Array]:
        """Return the models of all peers, joined."""
        parts = []
        for at in range(self.n):
            with Device.open(self.path(at), PASSPHRASE) as device:
                stored = device.store.get("peer_models")
            assert stored is not None, f"peer {at} has no model"
            parts.append(unpack_arrays(stored))
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def errors(self) -> list[str]:
        """Return the last lines of what processes printed, of those that printed something."""
        printed = [self.path(at).with_suffix(".err") for at in range(self.n)]
        return [path.read_text(errors="replace")[-600:] for path in printed if path.exists() and path.stat().st_size]

    def kill_all(self) -> None:
        """Leave no process behind."""
        for process in self.up.values():
            process.kill()
            process.wait(30)


def found_network(catalog: Catalog, period: float, seed: int = 7) -> PeerNetwork:
    """Return the terms of a network; its first model follows from the seed."""
    return PeerNetwork.create("ab" * 16, "trial", "pepper", GIVEN, catalog, seed, period)


def free_addresses(n: int) -> list[str]:
    """Return addresses on this machine that are free now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    found = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    return found


# --- quality ----------------------------------------------------------------------------------------------------------


def choose_people(n: int) -> tuple[Clients, list[Array], Catalog]:
    """Return what devices learn from, what is held out of each history, and the catalogue."""
    if "TACIT_DATA" not in os.environ:
        made, catalog = two_tastes(n, 200)
        held = [np.setdiff1d(np.arange(at % 2, 200, 2), made.of(at)) for at in range(n)]
        return made, held, catalog
    dataset, draws = load(DataConfig(source="ml-100k")), np.random.default_rng(20)
    log = dataset.interactions
    chosen = draws.permutation(len(log.user_ids))[:n]
    learn, held = [], []
    for user in chosen:
        items = draws.permutation(np.unique(log.items[log.users == user]))
        cut = max(1, round(HELD_OUT * len(items)))
        held.append(np.sort(items[:cut]))
        learn.append(np.sort(items[cut:]))
    known = dataset.catalog
    catalog = Catalog(known.item_ids, known.titles, known.categories)
    ptr = offsets(np.array([len(items) for items in learn]))
    return Clients(np.arange(n), ptr, np.concatenate(learn).astype(np.int32), catalog.n_items), held, catalog


def hit_rate(scores: Array, clients: Clients, held: list[Array]) -> Array:
    """Return for each user the chance that a held-out item is among the first K of AMONG random unseen ones and it."""
    from scipy.stats import binom

    found = []
    for user, row in enumerate(scores):
        unseen = np.setdiff1d(np.arange(len(row)), np.concatenate([clients.of(user), held[user]]))
        others = np.sort(row[unseen])
        mine = row[held[user]]
        above = len(others) - np.searchsorted(others, mine, "right")
        equal = np.searchsorted(others, mine, "right") - np.searchsorted(others, mine, "left")
        found.append(float(np.mean(binom.cdf(K - 1, AMONG, (above + equal / 2) / len(others)))))
    return np.array(found)


@dataclass(frozen=True)
class RealRun:
    """How a network is run: seconds of a period, peers of a process, the network's seed, simulations beside it, and
    whether all peers are in this process, on a virtual clock."""

    period: float = 20.0
    together: int = 1
    seed: int = 7
    simulations: int = 5
    is_virtual: bool = False


def measure_quality(folder: Path, n: int, periods: int, how: RealRun) -> dict[str, Any]:
    """Let real peers learn freely, and return the three figures."""
    clients, held, catalog = choose_people(n)
    terms = found_network(catalog, how.period, how.seed)
    rates = {
        name: np.array([hit_rate(run(terms, clients, catalog, periods, seed), clients, held).mean()
                        for seed in range(how.simulations)])
        for name, run in (("simulation", simulate_peers), ("alone", learn_alone))
    }  # fmt: skip
    print({name: values.round(4).tolist() for name, values in rates.items()}, flush=True)
    network = Processes(folder, clients, catalog, terms)
    seen = learn_virtually(network, periods) if how.is_virtual else learn_freely(network, periods, how.together)
    real = hit_rate(terms.built.score({}, network.models(), clients), clients, held)
    simulated, alone = rates["simulation"].mean(), rates["alone"].mean()
    return {
        "peers": n,
        "seed of the network": how.seed,
        "HR@20 of real peers": round(float(real.mean()), 4),
        "HR@20 simulated": round(float(simulated), 4),
        "deviation of simulations": round(float(rates["simulation"].std(ddof=1)), 4),
        "HR@20 alone": round(float(alone), 4),
        "real over simulated": round(float(real.mean() / simulated - 1), 4),
        "not merged: a second one of a sender in a period": sum(state["refused"] for state in network.states()),
        **seen,
    }


def learn_freely(network: Processes, periods: int, together: int) -> dict[str, Any]:
    """Let a process for every `together` peers run for so many periods; return what was seen."""
    try:
        network.start_all(periods, together)
        begin = time.monotonic()
        while any(process.poll() is None for process in network.up.values()):
            time.sleep(1)
            if time.monotonic() - begin > 3 * network.period * periods + START:
                break
        network.end_all()
    finally:
        network.kill_all()
    outcomes = [[line for line in network.logs(at) if "number" in line] for at in range(network.n)]
    sent, read = (sum(line[name] for lines in outcomes for line in lines) for name in ("sent", "acknowledged"))
    return {
        "peers of a process": together,
        "periods": int(np.median([len(lines) for lines in outcomes])),
        "models": f"{read} of {sent} acknowledged",
        "slowest send": max(line["slowest"] for lines in outcomes for line in lines),
        "crashed": network.crashed,
        "errors": network.errors(),
    }


class VirtualClock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.begin = datetime.now(UTC)
        self.seconds = 0.0

    def __call__(self) -> datetime:
        """Return the time."""
        return self.begin + timedelta(seconds=self.seconds)


def learn_virtually(network: Processes, periods: int) -> dict[str, Any]:
    """Let all peers run in this process, each with its file, on a clock that jumps from one event to the next."""
    clock, draws, sent, read = VirtualClock(), random.SystemRandom(), 0, 0
    with ExitStack() as files:
        devices = [files.enter_context(Device.open(network.path(at), PASSPHRASE, clock)) for at in range(network.n)]
        peers = [PeerDevice(device, clock) for device in devices]
        inboxes = {peer.identity.id: peer for peer in peers}

        def deliver(send: PeerSend) -> bytes | None:
            receiver = inboxes.get(send.to.id)
            return None if receiver is None else receiver.receive(send.content)

        events = [(draws.uniform(0, network.period), at, 0) for at in range(network.n)]
        heapq.heapify(events)
        while events:
            clock.seconds, at, done = heapq.heappop(events)
            peer = peers[at]
            if done:
                peer.end_period()
            if done == periods:
                del inboxes[peer.identity.id]
                for send in peer.goodbye():
                    deliver(send)
                continue
            for sends in (peer.exchange_records, peer.begin_period):
                outcomes = [(send, deliver(send)) for send in sends()]
                acknowledged = peer.settle_all(outcomes)
            sent, read = sent + len(outcomes), read + acknowledged
            heapq.heappush(events, (clock.seconds + network.period, at, done + 1))
    return {"clock": "virtual", "periods": periods, "models": f"{read} of {sent} acknowledged"}


# --- churn ------------------------------------------------------------------------------------------------------------


def measure_churn(folder: Path, n: int, minutes: float, period: float) -> dict[str, Any]:
    """Kill and start peers for some minutes, then kill many at once; return what was seen, and a verdict."""
    clients, _, catalog = choose_people(n)
    network, draws = Processes(folder, clients, catalog, found_network(catalog, period)), random.Random(3)
    back: list[tuple[float, int]] = []
    killed = 0
    try:
        network.start_all()
        time.sleep(2 * period)
        begin = time.monotonic()
        while time.monotonic() - begin < 60 * minutes:
            if killed < KILLED * n * (time.monotonic() - begin) / 60:
                at = draws.choice(sorted(network.up))
                network.kill(at)
                back.append((time.monotonic() + AWAY, at))
                killed += 1
            while back and back[0][0] <= time.monotonic():
                network.start(back.pop(0)[1])
            time.sleep(0.05)
        for _, at in back:
            network.start(at)
        time.sleep(2 * period)
        before = share_dead(network)
        doomed = draws.sample(range(1, n), round(AT_ONCE * n))  # one router stays
        for at in doomed:
            network.kill(at)
        at_once = share_dead(network)
        time.sleep(3 * period + 1)
        views = network.views()
        after = share_dead(network, views)
        parts = count_parts(views, n)
        living = sorted(network.up)
        network.end_all()
    finally:
        network.kill_all()
    lines = {at: network.logs(at) for at in range(n)}
    merged = [(at, line["merged"]) for at in lines for line in lines[at] if "merged" in line]
    slowest = max(line["slowest"] for at in lines for line in lines[at] if "number" in line)
    traces = [at for at in range(n) if b"Traceback" in network.path(at).with_suffix(".err").read_bytes()]
    verdict = {
        "no crash": not network.crashed and not traces,
        "every send ended within 5 s": slowest <= LONGEST,
        "no model merged twice": len(merged) == len(set(merged)),
        "dead ids below 5 % three periods after": after < MOST_DEAD,
        "one part": parts == 1,
    }
    return {
        "peers": n,
        "killed and started again": killed,
        "killed at once": len(doomed),
        "still there": len(living),
        "models merged": len(merged),
        "slowest send": slowest,
        "dead ids in views": {"before": round(before, 3), "at once": round(at_once, 3), "after": round(after, 3)},
        "parts": parts,
        "crashed": sorted({*network.crashed, *traces}),
        "errors": network.errors(),
        "verdict": verdict,
        "passed": all(verdict.values()),
    }


def share_dead(network: Processes, views: dict[int, list[int]] | None = None) -> float:
    """Return the share of ids in living peers' views whose peer is not up."""
    named = [other for view in (views or network.views()).values() for other in view]
    return sum(other not in network.up for other in named) / max(1, len(named))


def count_parts(views: dict[int, list[int]], n: int) -> int:
    """Return in how many parts the living peers fall, links taken both ways."""
    widest = max(len(view) for view in views.values())
    table, alive = np.full((n, widest), -1, np.int64), np.zeros(n, bool)
    for at, view in views.items():
        alive[at] = True
        table[at, : len(view)] = view
    return n_components(table, alive)


def main() -> None:
    """Do what the arguments say."""
    if sys.argv[1:2] == ["peer"]:
        files, routers, period, periods = sys.argv[2:6]
        run_peers(json.loads(files), json.loads(routers), float(period), int(periods) or None)
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["quality", "churn"])
    parser.add_argument("--peers", type=int, default=60)
    parser.add_argument("--period", type=float, default=20.0)
    parser.add_argument("--periods", type=int, default=30)
    parser.add_argument("--together", type=int, default=1)
    parser.add_argument("--seed", type=int, default=7, help="of the network: its first model follows from it")
    parser.add_argument("--virtual", action="store_true", help="all peers in this process, on a clock that jumps")
    parser.add_argument("--simulations", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=4.0)
    given = parser.parse_args()
    os.environ |= dict.fromkeys(("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    folder = Path(tempfile.mkdtemp(prefix="tacit-network-"))
    try:
        if given.what == "quality":
            how = RealRun(given.period, given.together, given.seed, given.simulations, given.virtual)
            found = measure_quality(folder, given.peers, given.periods, how)
        else:
            found = measure_churn(folder, given.peers, given.minutes, given.period)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(found, indent=2))
    sys.exit(0 if found.get("passed", True) else 1)


if __name__ == "__main__":
    main()
