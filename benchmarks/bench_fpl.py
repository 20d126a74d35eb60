"""FPL, 20 factors, one thread, exact sums in the ring: triples per second beside `implicit` BPR; and how it grows.

Processor time, best of several, ours and the peer in turn on the same data: MovieLens 1M under TACIT_DATA, else a
town of about its size. Ours is a whole epoch of the simulation: choosing, drawing, local steps, what would be sent,
sums, the server's step, the ledger. `implicit` verifies its negatives as we do, and counts a triple that it skips.
`last_over_first` is the time of a late epoch over that of an early one. `chain` is what a client's triples alone allow,
one after the other on tables of that size, without drawing, counting and applying: p moves with every triple, and the
next one begins with it. Rounds of one client with many triples (sFPL+) cannot be faster.

Clipping: an epoch of pFPL+ in which every row and every client is clipped, over one without, in turn; here the ratio is
the time of the clipped epoch over that of the other, so 1 means that clipping is free.

Growth: an epoch of pFPL+ with 20 triples each for 10^4 to 10^6 generated people and 100,000 items; `--figure FILE`
draws it, `--small` leaves the million out, `--growth` measures nothing else and needs no peer.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from threadpoolctl import threadpool_limits

from bench_bpr import PEER_EPOCHS, histories, peer_seconds
from tacit.kernels.llvm.exponential import sigmoid_complement
from tacit.kernels.llvm.held_triples import held_preference, held_step
from tacit.kernels.llvm.rowvalue import load_row
from tacit.kernels.llvm.rowvec import rows_of
from tacit.kernels.llvm.triples import pad_rows
from tacit.kernels.sampling import U64
from tacit.lab.simulation import simulate
from tacit.methods.base import build_federated, options
from tacit.privacy.clipping import Clipping
from tacit.privacy.update_sink import Stage
from tacit.protocols.federated import UpdatePath
from tacit.random import Key
from tacit.report.canvas import new_figure, plain_numbers, report_style
from tacit.report.marks import SOFT
from tacit.types import Catalog, Clients, Vocabulary
from tacit.updates import Ring

FACTORS, EPOCHS, CLIPPED_EPOCHS = 20, 50, 6
EPOCHS_OF = {"pFPL+": EPOCHS, "sFPL": 12, "sFPL+": 5, "pFPL": 4}
N_ITEMS, HISTORY = 100_000, 20


def epochs_of(
    preset: str, clients: Clients, catalog: Catalog, seed: int, epochs: int, stages: Sequence[Stage] = ()
) -> list[float]:
    """Return the processor seconds of each epoch, through the real path."""
    method = build_federated("fpl", options("fpl", {"factors": FACTORS, "epochs": epochs, "preset": preset}))
    times, learning = [], simulate(UpdatePath(method, stages, Ring()), clients, catalog, Key(seed))
    start = time.process_time()
    for _ in learning:
        now = time.process_time()
        times.append(now - start)
        start = now
    return times


@njit(error_model="numpy")
def _learn_chain(users, table, positives, negatives, totals, peaks, scale, rate):
    p, peak = load_row(users, U64(0)), load_row(peaks, U64(0))
    for t in range(U64(len(positives))):
        i, j = U64(positives[t]), U64(negatives[t])
        z = sigmoid_complement(held_preference(p, table, i, j))
        p, peak = held_step(p, p, table, i, j, rate * z, rate, scale * z, totals, i, peak)
    return held_preference(p, table, U64(0), U64(1)) + held_preference(peak, table, U64(0), U64(1))


def chain_rate(n_items: int, n_triples: int = 10**6) -> float:
    """Return how many triples a second one client can learn one after the other, in millions."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, n_items, (2, n_triples)).astype(np.uint32)
    table = pad_rows(rng.normal(0, 0.1, (n_items, FACTORS + 1)).astype(np.float32))
    p, peaks = pad_rows(rng.normal(0, 0.1, (1, FACTORS + 1)).astype(np.float32)), np.zeros((1, table.shape[1]), "f4")
    tables, numbers = (rows_of(p), rows_of(table), *drawn), (np.float32(2**10), np.float32(1e-4))
    times = []
    for _ in range(4):
        totals = np.zeros(table.shape, np.int32)
        start = time.process_time()
        _learn_chain(*tables, totals, rows_of(peaks), *numbers)
        times.append(time.process_time() - start)
    return n_triples / min(times[1:]) / 1e6


def line(**given: Any) -> None:
    """Print one result."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({**given, "threads": 1, "peak_mb": peak, "commit": commit}), flush=True)


def beside_the_peer(repeat: int) -> None:
    """Time the four configurations, turn by turn with `implicit`."""
    data, clients, catalog = histories()
    ours: dict[str, list[list[float]]] = {preset: [] for preset in EPOCHS_OF}
    peers, chains = [], []
    for seed in range(repeat):
        chains.append(chain_rate(catalog.n_items))
        for preset, epochs in EPOCHS_OF.items():
            ours[preset].append(epochs_of(preset, clients, catalog, seed, epochs)[1:])  # the first draws the model too
        peers.append([peer_seconds(clients, epochs) for epochs in PEER_EPOCHS])
    short, long = np.min(peers, axis=0)
    peer = len(clients.items) * (PEER_EPOCHS[1] - PEER_EPOCHS[0]) / (long - short) / 1e6
    for preset, runs in ours.items():
        times = np.min(runs, axis=0)
        rate = len(clients.items) / float(times.min()) / 1e6
        few = max(1, len(times) // 5)
        line(
            bench=f"fpl {preset}",
            data=data,
            ours=round(rate, 2),
            peer=round(peer, 2),
            peer_name="implicit BPR",
            ratio=round(rate / peer, 2),
            unit="M triples/s",
            chain=round(max(chains), 2),
            median=round(len(clients.items) / float(np.median(runs)) / 1e6, 2),
            last_over_first=round(float(times[-few:].min() / times[:few].min()), 3),
            train_seconds=round(float(np.median(np.sum(runs, axis=1))), 2),
            epochs=len(times),
        )


CLIPS = {
    "clipped": Clipping(row=0.5, person=5.0),
    "clipped, clients only": Clipping(person=5.0),
    "clipped, in sums": Clipping(row=0.5, person=5.0, in_sum=True),
}


def clipped(repeat: int) -> None:
    """Time pFPL+ with and without clipping, in turn."""
    data, clients, catalog = histories()
    times: dict[str, list[float]] = {name: [] for name in ("", *CLIPS)}
    for seed in range(repeat):
        for name, found in times.items():
            stages = [CLIPS[name]] if name else []
            found += epochs_of("pFPL+", clients, catalog, seed, CLIPPED_EPOCHS, stages)[1:]
    rate = {name: len(clients.items) / min(found) / 1e6 for name, found in times.items()}
    for name, clip in CLIPS.items():
        line(
            bench=f"fpl pFPL+ {name}",
            data=data,
            ours=round(rate[name], 2),
            peer=round(rate[""], 2),
            peer_name="ours without clipping",
            ratio=round(rate[""] / rate[name], 2),
            unit="M triples/s",
            row=clip.row if np.isfinite(clip.row) else None,
            person=clip.person,
        )


def generated(n_participants: int) -> Clients:
    """People with 20 items each of 100,000, popular ones more often."""
    rng = np.random.default_rng(0)
    drawn = (N_ITEMS * rng.random((n_participants, 2 * HISTORY)) ** 2).astype(np.int32)
    items = np.sort(drawn, axis=1)
    items[:, 1:][items[:, 1:] == items[:, :-1]] = -1
    place = np.argsort(items < 0, axis=1, kind="stable")[:, :HISTORY]
    chosen = np.sort(np.take_along_axis(items, place, axis=1), axis=1)
    return Clients(np.arange(n_participants), np.arange(n_participants + 1) * HISTORY, chosen.ravel(), N_ITEMS)


def growth(most: int) -> list[dict[str, Any]]:
    """Time an epoch for more and more people."""
    catalog, found = Catalog(Vocabulary(np.arange(N_ITEMS))), []
    for n_participants in (10_000, 30_000, 100_000, 300_000, 1_000_000):
        if n_participants > most:
            break
        clients = generated(n_participants)
        seconds = min(epochs_of("pFPL+", clients, catalog, 1, 3)[1:])
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        found.append(
            {"people": n_participants, "seconds": seconds, "ns": seconds / n_participants / HISTORY * 1e9, "mb": peak}
        )
        line(
            bench="fpl growth",
            data=f"{n_participants} people x {N_ITEMS} items",
            ours=round(found[-1]["ns"], 1),
            peer=round(found[0]["ns"], 1),
            peer_name="ours with 10,000 people",
            ratio=round(found[0]["ns"] / found[-1]["ns"], 2),
            unit="ns per triple",
            seconds=round(seconds, 3),
        )
    return found


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """Draw seconds per epoch and memory against people; dotted where linear growth would lie."""
    thousands = [row["people"] / 1000 for row in found]
    seconds, memory = [row["seconds"] for row in found], [row["mb"] / 1024 for row in found]
    with report_style():
        figure, (left, right) = new_figure(2.6, columns=2, share_y=False)
        left.loglog(thousands, [seconds[0] * n / thousands[0] for n in thousands], ":", color=SOFT)
        left.loglog(thousands, seconds, "o-")
        right.semilogx(thousands, memory, "o-")
        left.set(xlabel="thousand people", title="seconds per epoch")
        right.set(xlabel="thousand people", title="peak memory, GB", ylim=(0, None))
        for axis in (left.xaxis, left.yaxis, right.xaxis):
            plain_numbers(axis)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Print one JSON line per measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="growth up to 100,000 people only")
    parser.add_argument("--clipping", action="store_true", help="what clipping costs, and nothing else")
    parser.add_argument("--peer", action="store_true", help="the four configurations beside implicit, and nothing else")
    parser.add_argument("--growth", action="store_true", help="how it grows, and nothing else")
    parser.add_argument("--figure", type=Path, help="draw the growth to this file")
    given = parser.parse_args()
    with threadpool_limits(1):
        if not (given.clipping or given.growth):
            beside_the_peer(given.repeat)
        if given.peer:
            return
        if not given.growth:
            clipped(given.repeat)
        if given.clipping:
            return
        found = growth(100_000 if given.small else 1_000_000)
    if given.figure is not None:
        draw(found, given.figure)


if __name__ == "__main__":
    main()
