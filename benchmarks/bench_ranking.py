"""Full ranking, all unseen items, top 10: blocks of GEMM and our kernel against GEMM and numpy's argpartition.

Random factors (20) and a popularity bias; histories of the size of MovieLens 1M and of a large check-in dataset.
Seconds of processor time of the whole process, best of several, one BLAS thread. `ours` is the whole evaluation with
all metrics; `ranking` is its part that scores, makes the lists and reads off the positions of held-out items, and
`of_product` is how many times the matrix product alone (same blocks, same buffer) that takes. The peer only makes the
lists.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from tacit.evaluation import EvaluationConfig, evaluate
from tacit.evaluation.heldout import HeldoutItems, open_heldout
from tacit.evaluation.ranking import EvaluationOptions, Ranking, rank_in_blocks
from tacit.heldout import Heldout
from tacit.random import Key
from tacit.types import Catalog, Clients, Vocabulary, offsets

FACTORS = 20
SIZES = {"ml-1m-like": (6040, 3706, 132), "brazil-like": (17473, 47270, 27)}  # people, items, history per person
CONFIG = EvaluationConfig(k=10)


def histories(people: int, n_items: int, length: int, rng: np.random.Generator) -> tuple[Clients, Clients]:
    """Return (truth, seen): a fifth of a skewed random history is held out."""
    truth, seen = [], []
    for _ in range(people):
        items = np.unique((n_items * rng.random(length) ** 2).astype(np.int32))
        is_test = rng.random(len(items)) < 0.2
        truth.append(items[is_test])
        seen.append(items[~is_test])
    ids = np.arange(people)
    return tuple(  # type: ignore[return-value]
        Clients(ids, offsets(np.array([len(r) for r in rows])), np.concatenate(rows), n_items) for rows in (truth, seen)
    )


def into_one_buffer(
    p: NDArray[np.float32], q: NDArray[np.float32], buffer: NDArray[np.float32], rows: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Score a block of people without touching fresh memory."""
    return np.dot(p[rows], q, out=buffer[: len(rows)])


def gemm(score: Callable[[NDArray[np.int64]], NDArray[np.float32]], people: int) -> None:
    """The part that both have in common."""
    for start in range(0, people, 128):
        score(np.arange(start, min(people, start + 128)))


def argpartition(score: Callable[[NDArray[np.int64]], NDArray[np.float32]], seen: Clients, k: int) -> None:
    """The peer: what one writes with numpy alone."""
    for start in range(0, len(seen), 512):
        rows = np.arange(start, min(len(seen), start + 512))
        scores = score(rows)
        own = slice(seen.ptr[rows[0]], seen.ptr[rows[-1] + 1])
        scores[seen.rows[own] - start, seen.items[own]] = -np.inf
        top = np.argpartition(-scores, k, axis=1)[:, :k]
        best = np.take_along_axis(scores, top, 1)
        np.take_along_axis(top, np.argsort(-best, axis=1), 1)


def rank(score: Callable[[NDArray[np.int64]], NDArray[np.float32]], data: HeldoutItems, n_items: int) -> None:
    """Lists and positions of all, without metrics."""
    ranking = Ranking(data, n_items, CONFIG, Key(0), score, EvaluationOptions())
    rank_in_blocks(ranking.rank, np.arange(len(data)), 1)


def seconds(work: Callable[[], object], repeat: int) -> float:
    """Return the least processor time of several runs after a first one."""
    work()
    times = []
    for _ in range(repeat):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    """Print one JSON line per size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only", choices=SIZES)
    options = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    for data, (people, n_items, length) in SIZES.items():
        if options.only not in (None, data):
            continue
        rng = np.random.default_rng(0)
        truth, seen = histories(people, n_items, length, rng)
        popularity = np.log1p(np.bincount(seen.items, minlength=n_items)).astype(np.float32)
        p = np.column_stack([rng.normal(size=(people, FACTORS)), np.ones(people)]).astype(np.float32)
        q = np.vstack([rng.normal(size=(FACTORS, n_items)), popularity]).astype(np.float32)
        heldout, catalog = Heldout(truth, seen), Catalog(Vocabulary(np.arange(n_items)))

        score = partial(into_one_buffer, p, q, np.empty((512, n_items), np.float32))
        with threadpool_limits(1, "blas"):
            peer = seconds(partial(argpartition, score, seen, 10), options.repeat)
            ours = seconds(partial(evaluate, score, heldout, catalog, CONFIG, Key(0)), options.repeat)
            ranking = seconds(partial(rank, score, open_heldout(heldout, catalog), n_items), options.repeat)
            products = seconds(partial(gemm, score, people), options.repeat)
        print(
            json.dumps(
                {
                    "bench": "full-ranking",
                    "data": data,
                    "threads": 1,
                    "ours": round(ours, 4),
                    "peer": round(peer, 4),
                    "peer_name": "numpy argpartition",
                    "ratio": round(peer / ours, 2),
                    "unit": "s",
                    "gemm_alone": round(products, 4),
                    "ranking": round(ranking, 4),
                    "of_product": round(ranking / products, 2),
                    "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                    "commit": commit,
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
