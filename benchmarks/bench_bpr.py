"""BPR-MF, 20 factors, one thread: updates per second beside `implicit`, which verifies its negatives as we do.

Processor time, best of several, ours and the peer in turn on the same data: MovieLens 1M under TACIT_DATA, else a
town of about its size. `implicit` counts a triple it skips as an update; we redraw instead, and count it once.
`last_over_first` is the time of epoch 50 over that of epoch 1: learning must not become slower as it goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from tacit.data import load
from tacit.methods.base import build, options
from tacit.random import Key
from tacit.types import Catalog, Clients, offsets

FACTORS, EPOCHS = 20, 50
PEER_EPOCHS = (5, 25)  # two lengths, far apart: what a run costs before its first update cancels out


def histories() -> tuple[str, Clients, Catalog]:
    """All interactions of the dataset as one cohort."""
    has_movielens = (Path(os.environ.get("TACIT_DATA", "")) / "ml-1m").is_dir() and "TACIT_DATA" in os.environ
    dataset = load("ml-1m") if has_movielens else load("town", users=6000, places=3700, visits=300)
    log = dataset.interactions
    order = np.lexsort((log.items, log.users))
    sizes = np.bincount(log.users, minlength=len(log.user_ids))
    clients = Clients(np.arange(len(sizes)), offsets(sizes), log.items[order], dataset.catalog.n_items)
    return ("ml-1m" if has_movielens else "town"), clients, dataset.catalog


def our_epochs(clients: Clients, catalog: Catalog, seed: int) -> list[float]:
    """Return the processor seconds of each epoch, from the kernel to the check for divergence."""
    method = build("bpr-mf", options("bpr-mf", {"factors": FACTORS, "epochs": EPOCHS}))
    times, learning = [], method.fit(clients, catalog, Key(seed))
    next(learning)  # the first also draws the initial vectors, and may compile
    while True:
        start = time.process_time()
        if next(learning, None) is None:
            return times
        times.append(time.process_time() - start)


def peer_seconds(clients: Clients, epochs: int) -> float:
    """Return the processor seconds `implicit` takes for some epochs."""
    from implicit.cpu.bpr import BayesianPersonalizedRanking  # only this comparison needs the extra `bench`

    matrix = clients.matrix()
    model = BayesianPersonalizedRanking(
        factors=FACTORS, iterations=epochs, num_threads=1, verify_negative_samples=True, random_state=1
    )
    start = time.process_time()
    model.fit(matrix, show_progress=False)
    return time.process_time() - start


def main() -> None:
    """Print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    name, clients, catalog = histories()
    ours, peers = [], []
    with threadpool_limits(1):
        for seed in range(repeat):
            ours.append(our_epochs(clients, catalog, seed))
            peers.append([peer_seconds(clients, epochs) for epochs in PEER_EPOCHS])
    short, long = np.min(peers, axis=0)
    rate = len(clients.items) / np.min(ours) / 1e6
    peer = len(clients.items) * (PEER_EPOCHS[1] - PEER_EPOCHS[0]) / (long - short) / 1e6
    early, late = np.min(ours, axis=0)[:5].min(), np.min(ours, axis=0)[-5:].min()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    line = {
        "bench": "bpr",
        "data": name,
        "threads": 1,
        "ours": round(rate, 2),
        "peer": round(peer, 2),
        "peer_name": "implicit BPR",
        "ratio": round(rate / peer, 2),
        "unit": "M updates/s",
        "median": round(len(clients.items) / float(np.median(ours)) / 1e6, 2),
        "last_over_first": round(float(late / early), 3),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "commit": commit,
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
