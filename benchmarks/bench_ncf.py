"""An epoch of centralised GMF, MLP and NeuMF: negatives, shuffle, gradients and dense Adam, in samples per second.

Skewed random histories of the size of MovieLens 100K and 1M. `ours` is the best of the first epochs; `late_over_first`
is the time of a late epoch (after learning has become confident, where tiny numbers used to slow processors down)
over that of an early one. The peer, measured where torch is at hand, is the usual loop: embeddings, the same layers,
BCE with logits, torch.optim.Adam, batches of 256 drawn beforehand. Processor time, one thread.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import resource
import subprocess
import time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from tacit.methods.base import build, options
from tacit.random import Key
from tacit.types import Catalog, Clients, Vocabulary, offsets

SIZES = {"ml-100k-like": (943, 1682, 100_000, 40), "ml-1m-like": (6040, 3706, 1_000_000, 3)}  # ..., positives, epochs
MODELS = ("gmf", "mlp", "neumf")


def histories(people: int, n_items: int, positives: int) -> Clients:
    """Return skewed random histories: few people and few items have much of it."""
    rng = np.random.default_rng(0)
    lengths = np.maximum(20, rng.lognormal(0, 1, people) * positives / people / np.exp(0.5)).astype(int)
    rows = [np.unique((n_items * rng.random(n) ** 2).astype(np.int32)) for n in np.minimum(lengths, n_items)]
    return Clients(np.arange(people), offsets(np.array([len(r) for r in rows])), np.concatenate(rows), n_items)


def ours(name: str, clients: Clients, epochs: int) -> list[float]:
    """Return the seconds of each epoch."""
    method = build(name, options(name, {"epochs": epochs}))
    catalog, seconds = Catalog(Vocabulary(np.arange(clients.n_items))), []
    next(iter(method.fit(clients.take([0]), catalog, Key(0))))  # compiles
    started = time.process_time()
    for _ in method.fit(clients, catalog, Key(0)):
        seconds.append(time.process_time() - started)
        started = time.process_time()
    return seconds


def peer(name: str, clients: Clients, batches: int = 150) -> float | None:
    """Return the samples per second of a plain torch loop, or None where there is no torch."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    torch.set_num_threads(1)
    rng, d, layers = np.random.default_rng(0), 12, (48, 24, 12, 6)
    rows = torch.from_numpy(rng.integers(0, len(clients), (batches + 20, 256)))
    items = torch.from_numpy(rng.integers(0, clients.n_items, (batches + 20, 256)))
    labels = torch.from_numpy((rng.random((batches + 20, 256)) < 0.2).astype(np.float32))
    has_product, has_tower = name != "mlp", name != "gmf"

    def table(n: int) -> Any:
        found = torch.nn.Embedding(n, d)
        torch.nn.init.normal_(found.weight, std=0.01)
        return found

    parts = torch.nn.ModuleDict()
    if has_product:
        parts.update({"users_p": table(len(clients)), "items_p": table(clients.n_items)})
    if has_tower:
        steps: list[Any] = []
        for a, b in zip((2 * d, *layers), layers, strict=False):
            steps += [torch.nn.Linear(a, b), torch.nn.ReLU()]
        parts.update(
            {
                "users_t": table(len(clients)),
                "items_t": table(clients.n_items),
                "tower": torch.nn.Sequential(*steps),
            }
        )
    parts["head"] = torch.nn.Linear(d * has_product + layers[-1] * has_tower, 1)
    optimiser = torch.optim.Adam(parts.parameters(), lr=1e-3)

    def step(k: int) -> None:
        top = []
        if has_product:
            top.append(parts["users_p"](rows[k]) * parts["items_p"](items[k]))
        if has_tower:
            top.append(parts["tower"](torch.cat([parts["users_t"](rows[k]), parts["items_t"](items[k])], 1)))
        logits = parts["head"](torch.cat(top, 1))[:, 0]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels[k])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    for k in range(20):
        step(k)
    started = time.process_time()
    for k in range(20, batches + 20):
        step(k)
    return 256 * batches / (time.process_time() - started)


def line(name: str, data: str, n: int, seconds: list[float], other: float | None, commit: str) -> str:
    """Return the line of one model: n samples in each epoch."""
    early, late = min(seconds[:3]), min(seconds[-3:])
    found = {
        "bench": f"ncf-epoch-{name}",
        "data": data,
        "threads": 1,
        "ours": round(n / early),
        "peer": None if other is None else round(other),
        "peer_name": "torch, plain loop",
        "ratio": None if other is None else round(n / early / other, 2),
        "unit": "samples/s",
        "seconds_per_epoch": round(early, 3),
        "late_over_first": round(late / early, 2) if len(seconds) > 5 else None,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "commit": commit,
    }
    return json.dumps(found)


def main() -> None:
    """Print one JSON line per model and size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=SIZES)
    chosen = parser.parse_args().only
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    with threadpool_limits(1, "blas"):
        for data, (people, n_items, positives, epochs) in SIZES.items():
            if chosen not in (None, data):
                continue
            clients = histories(people, n_items, positives)
            for name in MODELS:
                seconds = ours(name, clients, epochs)
                print(line(name, data, 5 * len(clients.items), seconds, peer(name, clients), commit), flush=True)


if __name__ == "__main__":
    main()
