"""One round of gossip: 943 nodes that hold GMF models of 1682 items (D = 8), each peer model judged, mixed and learnt
from.

`ours` is the time of the 5th round, `late` that of the last (pepper's 60th): confident predictions make tiny numbers,
which used to slow processors down. The peer, where torch is at hand (`pip install torch`), is the usual loop: load the
received state, rank the spared items with both models, mix the parameters, train with torch.optim.Adam made anew. It is
run for a sample of the peer models and scaled up by their number. Processor time, one thread.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from tacit.data import SplitConfig, load, split
from tacit.lab.synchronous import gossip_synchronously
from tacit.methods.base import build, options
from tacit.random import Key
from tacit.types import Catalog, Clients

NAMES = ("pepper", "dec-fedavg")
ROUNDS = {("pepper", "receipt"): 60}  # elsewhere five
LETTERS = 40  # of the peer


def histories() -> tuple[str, Clients, Catalog]:
    """Return the training part of MovieLens 100K, or of a town of its size."""
    root = os.environ.get("TACIT_DATA")
    found = root is not None and (Path(root) / "ml-100k").is_dir()
    data = load("ml-100k") if found else load("town", users=943, places=1682, visits=106)
    parts = split(data, SplitConfig(kind="random", test=0.15), Key(0))
    return data.name, parts.train, parts.catalog


def ours(name: str, learns: str, clients: Clients, catalog: Catalog, rounds: int) -> list[float]:
    """Return the seconds of each round."""
    method = build(name, options(name, {"epochs": rounds, "learns": learns}))
    seconds, started = [], time.process_time()
    for _ in gossip_synchronously(method, clients, catalog, Key(0)):
        seconds.append(time.process_time() - started)
        started = time.process_time()
    return seconds


def peer(name: str, clients: Clients, n_items: int) -> float | None:
    """Return the seconds of a round in which every node learns at each of its peer models, in a plain torch loop."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)

    class GMF(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.items, self.head = torch.nn.Embedding(n_items, 8), torch.nn.Linear(8, 1)
            self.user = torch.nn.Parameter(0.05 * torch.randn(1, 8))

        def forward(self, items: Any, user: Any = None) -> Any:
            return self.head((self.user if user is None else user) * self.items(items)).squeeze(-1)

    def worth(model: Any, user: Any, spared: Any, unseen: Any) -> float:
        drawn = torch.from_numpy(rng.choice(unseen, (len(spared), 100)))
        with torch.no_grad():
            places = (model(drawn, user) >= model(spared, user)[:, None]).sum(1) + 1
        hits = places <= 20
        return float(hits.float().mean() * (hits / torch.log2(places + 1.0)).mean())

    def one(node: int, mine: Any, received: dict[str, Any], other: Any) -> None:
        history = clients.of(node)
        cut = max(1, round(0.1765 * len(history)))
        order = rng.permutation(history).astype(np.int64)
        spared, learnt = torch.from_numpy(order[:cut]), order[cut:]
        unseen = np.setdiff1d(np.arange(n_items), history)
        weights = (0.5, 0.5)
        if name == "pepper":
            other.load_state_dict(received)
            both = worth(mine, mine.user, spared, unseen), worth(other, mine.user, spared, unseen)
            weights = (both[0] / sum(both), both[1] / sum(both)) if sum(both) else (1.0, 0.0)
        with torch.no_grad():
            for key, array in mine.named_parameters():
                if key != "user":
                    array.mul_(weights[0]).add_(received[key], alpha=weights[1])
        items = torch.from_numpy(np.concatenate([learnt, rng.choice(unseen, 4 * len(learnt))]))
        labels = (torch.arange(len(items)) < len(learnt)).float()
        optimiser, shuffled = torch.optim.Adam(mine.parameters(), lr=0.01), torch.randperm(len(items))
        for part in shuffled.split(64):
            loss = torch.nn.functional.binary_cross_entropy_with_logits(mine(items[part]), labels[part])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    nodes = np.linspace(0, len(clients) - 1, LETTERS).astype(int)
    models = [GMF() for _ in nodes]
    states = [{key: array.clone() for key, array in model.state_dict().items()} for model in models]
    other = GMF()
    one(nodes[0], GMF(), states[1], other)
    started = time.process_time()
    for k, node in enumerate(nodes):
        one(int(node), models[k], states[k - 1], other)
    return (time.process_time() - started) / LETTERS * 3 * len(clients)


def main() -> None:
    """Print one JSON line per method and way of learning."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    data, clients, catalog = histories()
    with threadpool_limits(1, "blas"):
        for name in NAMES:
            for learns in ("receipt", "round"):
                ours(name, learns, clients.take(np.arange(6)), catalog, 2)  # compiles
                seconds = ours(name, learns, clients, catalog, ROUNDS.get((name, learns), 5))
                other = peer(name, clients, catalog.n_items) if learns == "receipt" else None
                line = {
                    "bench": f"gossip-{name}-{learns}",
                    "data": data,
                    "threads": 1,
                    "ours": round(seconds[4], 4),
                    "late": round(seconds[-1], 4),
                    "best": round(min(seconds), 4),
                    "peer": None if other is None else round(other, 2),
                    "peer_name": "torch, loop over nodes",
                    "ratio": None if other is None else round(other / seconds[4], 1),
                    "unit": "s per round",
                    "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                    "commit": commit,
                }
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
