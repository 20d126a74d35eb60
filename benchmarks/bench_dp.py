"""Rounds under differential privacy, one thread: processor seconds through the simulation, noise and bound included.

A round of fed-als, fed-svd and fed-gmf with the stage `dp` stands beside one without, measured in turn: the ratio is
the time of the first over that of the second, so 1 means that a guarantee is free; the goal is 1.5 for fed-als. dp-svd
has no such peer: its sums are measured one by one, with and without noise.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from bench_sums import histories
from tacit.lab.guarantee import build_privacy
from tacit.lab.simulation import simulate
from tacit.methods.base import build_federated, options
from tacit.privacy.dp import DPConfig
from tacit.privacy.update_sink import Stage
from tacit.protocols.federated import UpdatePath
from tacit.protocols.rounds import RoundsConfig
from tacit.random import Key
from tacit.types import Catalog, Clients
from tacit.updates import Ring

EPSILON, BOUND = 8.0, 1.0
PAIRED: dict[str, tuple[dict[str, Any], float | None]] = {
    "fed-als": ({"factors": 16, "epochs": 3}, 1.5),
    "fed-svd": ({"factors": 64, "epochs": 3}, None),
    "fed-gmf": ({"epochs": 3, "clients_per_round": 120, "learning_rate": 1e-5}, None),
}


def rounds(name: str, given: dict[str, Any], clients: Clients, catalog: Catalog, *, is_private: bool) -> list[float]:
    """Return the processor seconds of each pass but the first, which may compile."""
    method, key, ring = build_federated(name, options(name, given)), Key(1), Ring()
    stages: list[Stage] = []
    if is_private:
        config = DPConfig(epsilon=EPSILON, bound=None if method.spec.bound else BOUND)
        stages = [build_privacy(config, method, clients, catalog, key, ring, RoundsConfig())]
    learning, times = simulate(UpdatePath(method, stages, ring), clients, catalog, key), []
    next(learning)
    while True:
        start = time.process_time()
        if next(learning, None) is None:
            return times
        times.append(time.process_time() - start)


def show(bench: str, data: str, ours: float, peer: float | None, **more: Any) -> None:
    """Print one JSON line."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    row = {"bench": bench, "data": data, "threads": 1, "ours": round(ours, 4)}
    row |= {"peer": None if peer is None else round(peer, 4), "peer_name": None if peer is None else "without dp"}
    row |= {"ratio": None if peer is None else round(ours / peer, 2), "unit": "s per round", **more}
    row |= {"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, "commit": commit}
    print(json.dumps(row), flush=True)


def main() -> None:
    """Print one JSON line per measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only", default="", help="one method")
    asked = parser.parse_args()
    data, clients, catalog = histories()
    with threadpool_limits(1):
        for name, (given, goal) in PAIRED.items():
            if asked.only in ("", name):
                times = np.empty((2, asked.repeat))
                for turn in range(asked.repeat):
                    for way in (0, 1):
                        times[way, turn] = min(rounds(name, given, clients, catalog, is_private=way == 0))
                show(f"dp/{name}", data, times[0].min(), times[1].min(), goal=goal, epsilon=EPSILON, bound=BOUND)
        if asked.only in ("", "dp-svd"):
            for is_private in (True, False):
                every = np.array([rounds("dp-svd", {}, clients, catalog, is_private=is_private) for _ in range(3)])
                sums = [round(float(best), 4) for best in every.min(axis=0) if best > 1e-3]
                label = f"dp/dp-svd, {f'epsilon {EPSILON:g}' if is_private else 'no noise'}"
                show(label, data, float(max(sums)), None, every_sum_but_the_first=sums)


if __name__ == "__main__":
    main()
