"""A pass of kgflex over everybody: 100 + 100 features a person, ten rounds, through the whole simulated round.

`peer` is what the authors' implementation takes (2.9 ms of processor time per client and step, 4 s for 1,363 people;
40 s for everybody's features), as it was reported to us: it is not run here. Ours is processor time, one thread.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from tacit.data import SplitConfig, load, split
from tacit.lab.simulation import simulate
from tacit.methods.kgflex import KGFlex, KGFlexConfig
from tacit.methods.parts.features import features_of
from tacit.protocols.federated import UpdatePath
from tacit.random import Key
from tacit.types import Catalog, Clients
from tacit.updates import Ring

PEER_CLIENT, PEER_FEATURES = 2.9e-3, 40.0 / 1363  # seconds per client


def histories() -> tuple[str, Clients, Catalog]:
    """Return Facebook Books as the thesis cuts them, or a town of its size."""
    root = os.environ.get("TACIT_DATA")
    if root is not None and (Path(root) / "facebook-books").is_dir():
        name, data = "facebook-books", load("facebook-books", graph=True, hops=2, described=True, core=5)
    else:
        name, data = "town", load("town", users=1363, places=782, visits=10, graph=True, hops=2)
    parts = split(data, SplitConfig(kind="random", rounding="up"), Key(0))
    return name, parts.train, parts.catalog


def main() -> None:
    """Print one JSON line for a pass, one for everybody's features."""
    name, clients, catalog = histories()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    method, key = KGFlex(KGFlexConfig(epochs=40)), Key(0)
    with threadpool_limits(1, "blas"):
        once = UpdatePath(KGFlex(KGFlexConfig(epochs=1)), (), Ring())
        for _ in simulate(once, clients.take(np.arange(20)), catalog, key):
            pass  # compiles
        known = features_of(catalog, "graph", "kgflex")
        kept, weighing = np.array([100, 100]), []
        for _ in range(5):
            started = time.process_time()
            method.weigh(known, kept, clients, key)
            weighing.append(time.process_time() - started)
        seconds, started = [], time.process_time()
        for _ in simulate(UpdatePath(method, (), Ring()), clients, catalog, key):
            seconds.append(time.process_time() - started)
            started = time.process_time()
    for bench, ours, each in (
        ("kgflex-pass", min(seconds[1:]), PEER_CLIENT),
        ("kgflex-features", min(weighing), PEER_FEATURES),
    ):
        line = {
            "bench": bench,
            "data": name,
            "threads": 1,
            "ours": round(ours, 5),
            "late": round(seconds[-1], 5) if bench == "kgflex-pass" else None,
            "peer": round(each * len(clients), 3),
            "peer_name": "the authors' implementation, as reported",
            "ratio": round(each * len(clients) / ours, 1),
            "unit": "s for everybody",
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            "commit": commit,
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
