"""A global round of fed-gmf, fed-mlp and fed-neumf: everybody once, in groups, through the whole simulated round.

`ours` is the time of the 5th round, `late` that of a late one (the 100th of MovieLens 100K): confident predictions make
tiny numbers, which used to slow processors down. The peer, where torch is at hand, is the usual loop over clients
(two local epochs of the same batches on the sub-table, torch.optim.Adam made anew), for a sample of the clients,
scaled up by their samples. Processor time, one thread.
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
from tacit.methods.base import build, options
from tacit.random import Key
from tacit.runtimes.simulation import simulate
from tacit.types import Catalog, Clients
from tacit.updates import Ring

SIZES = {"ml-100k": (20, 100), "ml-1m": (120, 8)}  # clients per group, the late round
MODELS = ("fed-gmf", "fed-mlp", "fed-neumf")
PEER_CLIENTS = 40


def histories(name: str) -> tuple[Clients, Catalog]:
    """Return the training part of a real dataset, or a town of the size of the smaller one."""
    root = os.environ.get("TACIT_DATA")
    found = root is not None and (Path(root) / name).is_dir()
    data = load(name) if found else load("town", people=943, places=1682, visits=106)
    parts = split(data, SplitConfig(kind="leave-last-out"), Key(0))
    return parts.train, parts.catalog


def ours(name: str, clients: Clients, catalog: Catalog, group: int, rounds: int) -> list[float]:
    """Return the seconds of each global round."""
    given = {"epochs": rounds, "clients_per_round": group}
    seconds, started = [], time.process_time()
    for _ in simulate(build(name, options(name, given)), [], Ring(), clients, catalog, Key(0)):
        seconds.append(time.process_time() - started)
        started = time.process_time()
    return seconds


def peer(name: str, clients: Clients) -> float | None:
    """Return the seconds of a global round in a plain torch loop, or None where there is no torch."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    torch.set_num_threads(1)
    method = build(name)
    some = clients.take(np.linspace(0, len(clients) - 1, PEER_CLIENTS).astype(int))
    starts, samples, row_ptr, *_ = method.draw(some, Key(1))
    d, has_product, has_tower = 12, name != "fed-mlp", name != "fed-gmf"
    tower = torch.nn.Sequential()
    for a, b in zip((24, 48, 24, 12), (48, 24, 12, 6), strict=True) if has_tower else ():
        tower.extend([torch.nn.Linear(a, b), torch.nn.ReLU()])
    head = torch.nn.Linear(d * has_product + 6 * has_tower, 1)
    words = torch.from_numpy(samples.astype(np.int64))

    def one(client: int) -> None:
        tables: list[Any] = []
        for _ in range(has_product + has_tower):
            tables += [torch.nn.Embedding(int(row_ptr[client + 1] - row_ptr[client]), d), torch.nn.Embedding(1, d)]
        every = [p for part in (*tables, tower, head) for p in part.parameters()]
        optimiser = torch.optim.Adam(every, lr=1e-3)
        for epoch in words[starts[client] : starts[client + 1]].reshape(2, -1):
            for part in epoch.split(256):
                slots, user = part >> 1, torch.zeros(len(part), dtype=torch.long)
                pairs = [(i(slots), u(user)) for i, u in zip(tables[::2], tables[1::2], strict=True)]
                top = [pairs[0][0] * pairs[0][1]] if has_product else []
                if has_tower:
                    top.append(tower(torch.cat(pairs[-1], 1)))
                logits = head(torch.cat(top, 1))[:, 0]
                loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, (part & 1).float())
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()

    one(0)
    started = time.process_time()
    for client in range(PEER_CLIENTS):
        one(client)
    return (time.process_time() - started) * len(clients.items) / len(some.items)


def main() -> None:
    """Print one JSON line per model and dataset."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=SIZES, default="ml-100k")
    parser.add_argument("--model", choices=MODELS)
    chosen = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    (group, late), (clients, catalog) = SIZES[chosen.only], histories(chosen.only)
    with threadpool_limits(1, "blas"):
        for name in MODELS if chosen.model is None else (chosen.model,):
            ours(name, clients.take(np.arange(3)), catalog, 2, 1)  # compiles
            seconds, other = ours(name, clients, catalog, group, late), peer(name, clients)
            line = {
                "bench": f"global-round-{name}",
                "data": chosen.only,
                "threads": 1,
                "ours": round(seconds[4], 4),
                "late": round(seconds[-1], 4),
                "best": round(min(seconds), 4),
                "peer": None if other is None else round(other, 3),
                "peer_name": "torch, loop over clients",
                "ratio": None if other is None else round(other / seconds[4], 1),
                "unit": "s per global round",
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                "commit": commit,
            }
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
