"""Engines beside one process: seconds on the wall and processor time of one round, and peak memory of each process.

fed-svd (64 factors) and fpl over a million users with 20 of 100,000 items each: one thread, two threads, two
processes, Dask where it is installed. `--parts` runs one round of fed-svd over ten million users with 10 of 100,000
items each in eight shards, two at a time. `--bare` lets two bare process pools do the same exchange as a round of
fed-svd: the table to each, a total from each, added. `--tree` compares one sum over all with the sum of a hundred
totals, as of a hundred coordinators with 10,000 devices each: the checksums are equal. Processor time includes that of
workers, whose start is not counted.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import subprocess
import time
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tacit.lab.engine import EngineConfig
from tacit.lab.simulation import SimulationOptions, simulate
from tacit.methods.base import build_federated, options
from tacit.numerics import one_blas_thread
from tacit.protocols.federated import UpdatePath
from tacit.random import Key
from tacit.types import Catalog, Clients, Vocabulary
from tacit.updates import Ring

ITEMS = 100_000
METHODS = {
    "fed-svd": {"factors": 64, "epochs": 4},
    "fpl": {"clients_per_round": 0, "local_steps": 20, "epochs": 4},
}


def histories(people: int, each: int) -> tuple[Clients, Catalog]:
    """Histories of distinct items, one from each of as many stripes, popular ones more often."""
    rng, step = np.random.default_rng(1), ITEMS // each
    items = np.empty((people, each), np.int32)
    for stripe in range(each):
        drawn = (rng.random(people, np.float32) ** 3 * step).astype(np.int32)
        items[:, stripe] = np.minimum(drawn, step - 1) + stripe * step
    clients = Clients(np.arange(people), np.arange(people + 1) * each, items.reshape(-1), ITEMS)
    return clients, Catalog(Vocabulary(np.arange(ITEMS)))


def processor_time() -> float:
    """Processor time of this process; workers are other processes, and read from the system."""
    return time.process_time() + sum(_of_child(pid) for pid in _children())


def _children() -> list[str]:
    return [str(child.pid) for child in multiprocessing.active_children()]


def _of_child(pid: str) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_of_children() -> list[int]:
    lines = [Path(f"/proc/{pid}/status").read_text().splitlines() for pid in _children()]
    return [int(line.split()[1]) // 1024 for status in lines for line in status if line.startswith("VmHWM")]


def _used_by_children() -> dict[str, float]:
    return {pid: _of_child(pid) for pid in _children()}


def measure(name: str, label: str, engine: EngineConfig, world: tuple[Clients, Catalog]) -> None:
    """Print the best of the rounds after the first, and a digest of the model."""
    method = build_federated(name, options(name, METHODS[name]))
    walls, cpus, paths = [], [], []
    with one_blas_thread():
        learning = simulate(UpdatePath(method, (), Ring()), *world, Key(1), None, SimulationOptions(engine=engine))
        start = time.perf_counter()
        model = next(learning)
        first = time.perf_counter() - start
        for _ in range(METHODS[name]["epochs"] - 1):
            wall, cpu, workers = time.perf_counter(), processor_time(), _used_by_children()
            model = next(learning)
            walls.append(time.perf_counter() - wall)
            cpus.append(processor_time() - cpu)
            busiest = max((now - workers.get(pid, 0.0) for pid, now in _used_by_children().items()), default=0.0)
            paths.append(cpus[-1] - sum(_used_by_children().values()) + sum(workers.values()) + busiest)
        peaks = _peak_of_children()
        checksum = float(sum(np.abs(array.astype(np.float64)).sum() for array in model.shared.values()))
        learning.close()
    about = {
        "bench": f"{name}, {label}",
        "data": f"{len(world[0]):,} x {ITEMS:,}",
        "wall": round(min(walls), 3),
        "processor": round(min(cpus), 3),
        "processor_of_path": round(min(paths), 3),  # of this process and the busier worker, one after the other
        "first_wall": round(first, 2),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "peak_mb_workers": peaks,
        "checksum": checksum,
        "commit": subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True
        ).stdout.strip(),
    }
    print(json.dumps(about), flush=True)


def _answer_bare(table: NDArray[np.float32]) -> NDArray[np.int64]:
    return np.full(table.shape, 3, np.int64)


def measure_bare() -> None:
    """Print what the exchange of a round costs with nothing but Python's own process pools."""
    context, table = multiprocessing.get_context("spawn"), np.ones((ITEMS, 64), np.float32)
    pools, found = [ProcessPoolExecutor(1, context) for _ in range(2)], []
    for _ in range(5):
        wall, cpu = time.perf_counter(), processor_time()
        totals = [answer.result() for answer in [pool.submit(_answer_bare, table) for pool in pools]]
        assert int((totals[0] + totals[1]).min()) == 6
        found.append((processor_time() - cpu, time.perf_counter() - wall))
    for pool in pools:
        pool.shutdown()
    processor, wall = min(found[1:])
    data = f"{ITEMS:,} x 64, two workers"
    print(json.dumps({"bench": "bare exchange", "data": data, "processor": processor, "wall": wall}), flush=True)


def main() -> None:
    """Print one JSON line per engine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--people", type=int, default=1_000_000)
    parser.add_argument("--tree", action="store_true", help="one total, and the sum of a hundred")
    parser.add_argument("--method", choices=METHODS, help="only this one")
    parser.add_argument("--bare", action="store_true", help="the exchange of a round with bare process pools")
    given = parser.parse_args()
    if given.bare:
        measure_bare()
        return
    if given.parts:
        METHODS["fed-svd"]["epochs"] = 2
        measure("fed-svd", "8 shards in 2 processes", EngineConfig("processes", 8), histories(10_000_000, 10))
        return
    world = histories(given.people, 20)
    engines = {
        "one thread": EngineConfig(),
        "two threads": EngineConfig(threads=2),
        "two processes": EngineConfig("processes", 2),
    }
    if given.tree:
        engines = {"one coordinator": EngineConfig(), "totals of 100 coordinators": EngineConfig(shards=100)}
    elif find_spec("distributed") is not None:
        engines["dask, two workers"] = EngineConfig("dask", 2)
    for name in [given.method] if given.method else METHODS:
        for label, engine in engines.items():
            measure(name, label, engine, world)


if __name__ == "__main__":
    main()
