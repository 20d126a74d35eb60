"""A global round of fed-gmf, fed-mlp and fed-neumf: everybody once, in groups, through the whole simulated round.

`ours` is the time of the 5th round, `late` that of a late one (the 100th of MovieLens 100K): confident predictions make
tiny numbers, which used to slow processors down. Each is the best of three rounds around it, since the machine is
shared; `alone` is the 5th round as it was. The peer, where torch is at hand, is the usual loop over clients: a copy of
the model each, the same numbers of samples and batches, torch.optim.Adam made anew, rows averaged over those who moved
them; the best of three passes over some of the clients, scaled up by their samples. Processor time, one thread.

Last, fed-gmf with every row and every client clipped, in turn with the same rounds unclipped: there the ratio is the
time of a clipped round over that of the other, so 1 means that clipping is free.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from tacit.data import SplitConfig, load, split
from tacit.lab.simulation import simulate
from tacit.methods.base import build_federated, options
from tacit.privacy.clipping import Clipping
from tacit.privacy.update_sink import Stage
from tacit.protocols.federated import UpdatePath
from tacit.random import Key
from tacit.types import Catalog, Clients
from tacit.updates import Ring

SIZES = {"ml-100k": (20, 100), "ml-1m": (120, 8)}  # clients per group, the late round
MODELS = ("fed-gmf", "fed-mlp", "fed-neumf")
PEER_CLIENTS, PEER_PASSES, CLIPPED_TURNS = 60, 3, 3


def histories(name: str) -> tuple[Clients, Catalog]:
    """Return the training part of a real dataset, or a town of the size of the smaller one."""
    root = os.environ.get("TACIT_DATA")
    found = root is not None and (Path(root) / name).is_dir()
    data = load(name) if found else load("town", users=943, places=1682, visits=106)
    parts = split(data, SplitConfig(kind="leave-last-out"), Key(0))
    return parts.train, parts.catalog


def ours(
    name: str, clients: Clients, catalog: Catalog, group: int, rounds: int, stages: Sequence[Stage] = ()
) -> list[float]:
    """Return the seconds of each global round."""
    given = {"epochs": rounds, "clients_per_round": group}
    path = UpdatePath(build_federated(name, options(name, given)), stages, Ring())
    seconds, started = [], time.process_time()
    for _ in simulate(path, clients, catalog, Key(0)):
        seconds.append(time.process_time() - started)
        started = time.process_time()
    return seconds


def peer(name: str, clients: Clients, group: int) -> float | None:
    """Return the seconds of a global round in a plain torch loop, or None where there is no torch.

    Each client gets a copy of the model, draws negatives, learns with Adam, and what she moved is added row by row.
    """
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    some = clients.take(np.linspace(0, len(clients) - 1, PEER_CLIENTS).astype(int))
    d, n_items, has_product, has_tower = 12, clients.n_items, name != "fed-mlp", name != "fed-gmf"

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.items = torch.nn.Embedding(n_items, d * (has_product + has_tower))
            self.tower = torch.nn.Sequential()
            for a, b in zip((24, 48, 24, 12), (48, 24, 12, 6), strict=True) if has_tower else ():
                self.tower.extend([torch.nn.Linear(a, b), torch.nn.ReLU()])
            self.head = torch.nn.Linear(d * has_product + 6 * has_tower, 1)

        def forward(self, user: Any, items: Any) -> Any:
            i = self.items(items)
            top = [user[:d] * i[:, :d]] if has_product else []
            if has_tower:
                top.append(self.tower(torch.cat([user[-d:].expand(len(i), d), i[:, -d:]], 1)))
            return self.head(torch.cat(top, 1))[:, 0]

    def negatives_of(mine: Any) -> Any:
        drawn = torch.randint(n_items, (4 * len(mine),))
        while True:
            known = torch.isin(drawn, mine)
            if not known.any():
                return drawn
            drawn[known] = torch.randint(n_items, (int(known.sum()),))

    model = Model()
    users = torch.nn.init.normal_(torch.empty(len(some), d * (has_product + has_tower)), std=0.01)
    sums, counts = torch.zeros_like(model.items.weight), torch.zeros(n_items, 1)

    def one(client: int) -> None:
        local, user = copy.deepcopy(model), torch.nn.Parameter(users[client].clone())
        optimiser = torch.optim.Adam([*local.parameters(), user], lr=1e-3)
        mine = torch.from_numpy(some.items[some.ptr[client] : some.ptr[client + 1]].astype(np.int64))
        touched = torch.zeros(n_items, 1)
        for _ in range(2):
            items = torch.cat([mine, negatives_of(mine)])
            labels = torch.cat([torch.ones(len(mine)), torch.zeros(len(items) - len(mine))])
            touched[items] = 1
            for part in torch.randperm(len(items)).split(256):
                logits = local(user, items[part])
                loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels[part])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
        with torch.no_grad():
            users[client] = user
            sums.add_(local.items.weight - model.items.weight)
            counts.add_(touched)

    one(0)
    seconds = []
    for _ in range(PEER_PASSES):
        started = time.process_time()
        for client in range(len(some)):
            one(client)
            if client % group == group - 1:
                with torch.no_grad():
                    model.items.weight += sums / counts.clamp(min=1)
                sums.zero_()
                counts.zero_()
        seconds.append(time.process_time() - started)
    return min(seconds) * len(clients.items) / len(some.items)


def clipped(clients: Clients, catalog: Catalog, group: int) -> tuple[float, float]:
    """Return the seconds of a global round of fed-gmf with clipping and without, measured in turn."""
    clipping, times = [Clipping(row=0.5, person=5.0)], np.empty((2, CLIPPED_TURNS))
    for stages in (clipping, []):
        ours("fed-gmf", clients.take(np.arange(3)), catalog, 2, 1, stages)  # compiles
    for turn in range(CLIPPED_TURNS):
        for way, stages in enumerate((clipping, [])):
            times[way, turn] = min(ours("fed-gmf", clients, catalog, group, 4, stages)[1:])
    return float(times[0].min()), float(times[1].min())


def main() -> None:
    """Print one JSON line per model and dataset."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=SIZES, default="ml-100k")
    parser.add_argument("--model", choices=MODELS)
    parser.add_argument("--clipping", action="store_true", help="what clipping costs, and nothing else")
    chosen = parser.parse_args()
    if importlib.util.find_spec("torch") is None:
        print("fedncf: no peer, since torch is missing; `pip install tacit[torch]` adds it.", file=sys.stderr)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    (group, late), (clients, catalog) = SIZES[chosen.only], histories(chosen.only)
    with threadpool_limits(1, "blas"):
        for name in () if chosen.clipping else MODELS if chosen.model is None else (chosen.model,):
            ours(name, clients.take(np.arange(3)), catalog, 2, 1)  # compiles
            seconds, other = ours(name, clients, catalog, group, late), peer(name, clients, group)
            around_the_5th = min(seconds[3:6])
            line = {
                "bench": f"global-round-{name}",
                "data": chosen.only,
                "threads": 1,
                "ours": round(around_the_5th, 4),
                "late": round(min(seconds[-3:]), 4),
                "alone": round(seconds[4], 4),
                "best": round(min(seconds), 4),
                "peer": None if other is None else round(other, 3),
                "peer_name": "torch, loop over clients",
                "ratio": None if other is None else round(other / around_the_5th, 1),
                "unit": "s per global round",
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                "commit": commit,
            }
            print(json.dumps(line), flush=True)
        if chosen.model in (None, "fed-gmf"):
            with_clipping, without = clipped(clients, catalog, group)
            line = {
                "bench": "global-round-fed-gmf-clipped",
                "data": chosen.only,
                "threads": 1,
                "ours": round(with_clipping, 4),
                "peer": round(without, 4),
                "peer_name": "ours without clipping",
                "ratio": round(with_clipping / without, 2),
                "unit": "s per global round",
                "row": 0.5,
                "person": 5.0,
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                "commit": commit,
            }
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
