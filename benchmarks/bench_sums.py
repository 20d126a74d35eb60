"""Methods by sums, one thread: processor seconds of one round through the simulation, from rows to the new model.

A round of fed-svd is two sparse-dense products, and scipy makes the same two in float32 as its peer; one of fed-als
solves both sides once, as an iteration of `implicit` does; one of fed-ease ends with the weights, as `ease` does.
A round of fed-svd in which every row and every client is clipped stands beside one without: there the ratio is the time
of the clipped round over that of the other, so 1 means that clipping is free.
A round of fed-slist (the mean of one that finds and one that solves) stands beside one of fed-svd as wide.
Last, a million people with 20 of 100,000 items each, generated in memory: how it grows, and peak memory.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from tacit.data import load
from tacit.lab.simulation import simulate
from tacit.methods.base import build_federated, options
from tacit.methods.ease import EASE, EASEConfig
from tacit.privacy.clipping import Clipping
from tacit.privacy.update_sink import Stage
from tacit.protocols.federated import UpdatePath
from tacit.random import Key
from tacit.types import Catalog, Clients, Vocabulary, offsets
from tacit.updates import Ring

FACTORS = 64
PEOPLE, ITEMS, EACH = 1_000_000, 100_000, 20


def histories() -> tuple[str, Clients, Catalog]:
    """All interactions of MovieLens 1M as one cohort, or of a town of about its size."""
    has_movielens = "TACIT_DATA" in os.environ and (Path(os.environ["TACIT_DATA"]) / "ml-1m").is_dir()
    dataset = load("ml-1m") if has_movielens else load("town", users=6000, places=3700, visits=300)
    log = dataset.interactions
    order = np.lexsort((log.items, log.users))
    sizes = np.bincount(log.users, minlength=len(log.user_ids))
    times = None if log.times is None else log.times[order]
    clients = Clients(np.arange(len(sizes)), offsets(sizes), log.items[order], dataset.catalog.n_items, times=times)
    return dataset.name, clients, dataset.catalog


def many() -> tuple[Clients, Catalog]:
    """A million histories of 20 distinct items, popular ones more often."""
    rng = np.random.default_rng(1)
    step = ITEMS // EACH  # one item from each of 20 stripes: distinct without a search
    items = (rng.random((PEOPLE, EACH), np.float32) ** 3 * step).astype(np.int32)
    np.minimum(items, step - 1, out=items)
    items += np.arange(EACH, dtype=np.int32) * step
    clients = Clients(np.arange(PEOPLE), np.arange(PEOPLE + 1) * EACH, items.reshape(-1), ITEMS)
    return clients, Catalog(Vocabulary(np.arange(ITEMS)))


def rounds(
    name: str,
    given: dict[str, Any],
    clients: Clients,
    catalog: Catalog,
    clock: Callable[[], float],
    stages: Sequence[Stage] = (),
) -> list[float]:
    """Return the seconds of each round but the first, which also draws the start and may compile."""
    method = build_federated(name, options(name, given))
    learning, times = simulate(UpdatePath(method, stages, Ring()), clients, catalog, Key(1)), []
    next(learning)
    while True:
        start = clock()
        if next(learning, None) is None:
            return times
        times.append(clock() - start)


def least(repeat: int, make: Callable[[], Any]) -> float:
    """Return the fewest processor seconds of several calls."""
    times = []
    for _ in range(repeat):
        start = time.process_time()
        make()
        times.append(time.process_time() - start)
    return min(times)


def show(bench: str, data: str, ours: float, peer: float | None, peer_name: str | None, **more: Any) -> None:
    """Print one JSON line."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    line = {
        "bench": bench,
        "data": data,
        "threads": 1,
        "ours": round(ours, 4),
        "peer": None if peer is None else round(peer, 4),
        "peer_name": peer_name,
        "ratio": None if peer is None else round(peer / ours, 2),
        "unit": "s per round",
        **more,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "commit": commit,
    }
    print(json.dumps(line), flush=True)


def clipped(data: str, clients: Clients, catalog: Catalog, repeat: int) -> None:
    """Time rounds of fed-svd with and without clipping, in turn."""
    given, clipping = {"factors": FACTORS, "epochs": 3}, [Clipping(row=0.5, person=5.0)]
    times = np.empty((2, repeat))
    for turn in range(repeat):
        for way, stages in enumerate((clipping, [])):
            times[way, turn] = min(rounds("fed-svd", given, clients, catalog, time.process_time, stages))
    ours, peer = (float(found.min()) for found in times)
    more = {"factors": FACTORS, "row": 0.5, "person": 5.0, "ratio": round(ours / peer, 2)}
    show("sums/fed-svd-clipped", data, ours, peer, "ours without clipping", **more)


def compare_slist(data: str, clients: Clients, catalog: Catalog, factors: int, repeat: int) -> None:
    """Time a pass of fed-slist, which has two rounds, beside rounds of fed-svd of the same width, in turn."""
    slist, svd = np.empty(repeat), np.empty(repeat)
    for turn in range(repeat):
        slist[turn] = min(rounds("fed-slist", {"factors": factors, "epochs": 3}, clients, catalog, time.process_time))
        svd[turn] = min(rounds("fed-svd", {"factors": factors, "epochs": 3}, clients, catalog, time.process_time))
    show("sums/fed-slist", data, float(slist.min()) / 2, float(svd.min()), "ours, fed-svd", factors=factors)


def main() -> None:
    """Print one JSON line per measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--clipping", action="store_true", help="fed-svd with and without clipping, and nothing else")
    parser.add_argument("--slist", action="store_true", help="fed-svd, its clipped round, fed-slist, and nothing else")
    given = parser.parse_args()
    repeat = given.repeat
    name, clients, catalog = histories()
    x = clients.matrix()
    with threadpool_limits(1):
        svd = rounds("fed-svd", {"factors": FACTORS, "epochs": 1 + repeat}, clients, catalog, time.process_time)
        q = np.linalg.qr(np.random.default_rng(0).normal(size=(catalog.n_items, FACTORS)))[0].astype(np.float32)
        transposed = x.T.tocsr()
        peer = least(repeat, lambda: np.linalg.qr(transposed @ (x @ q)))
        show("sums/fed-svd", name, min(svd), peer, "scipy.sparse, float32", factors=FACTORS)
        clipped(name, clients, catalog, repeat)
        if given.clipping:
            return
        for factors in (FACTORS, 96):
            compare_slist(name, clients, catalog, factors, repeat)
        if given.slist:
            return

        from implicit.cpu.als import AlternatingLeastSquares  # others import this file without having the peer

        als = rounds("fed-als", {"factors": 16, "epochs": 1 + repeat}, clients, catalog, time.process_time)
        fitted = [
            least(
                2,
                lambda n=n: AlternatingLeastSquares(
                    16, regularization=20.0, alpha=2.0, iterations=n, num_threads=1, use_cg=False
                ).fit(x, show_progress=False),
            )
            for n in (1, 4)
        ]
        show("sums/fed-als", name, min(als), (fitted[1] - fitted[0]) / 3, "implicit ALS, Cholesky", factors=16)

        sketched = {"sketch": 128, "epochs": 1 + repeat}
        ease = rounds("fed-ease", sketched, clients, catalog, time.process_time)
        solved = least(1, lambda: next(iter(EASE(EASEConfig()).fit(clients, catalog, Key(1)))))
        show("sums/fed-ease", name, min(ease), solved, "ease, in one place", sketch=128)

        crowd, wide = many()
        started = time.perf_counter()
        large = rounds("fed-svd", {"factors": FACTORS, "epochs": 2}, crowd, wide, time.process_time)
        wall = round(time.perf_counter() - started, 1)
        shape = {"people": PEOPLE, "items": ITEMS, "each": EACH, "factors": FACTORS}
        show("sums/fed-svd-million", "generated", min(large), None, None, **shape, two_rounds_wall=wall)


if __name__ == "__main__":
    main()
