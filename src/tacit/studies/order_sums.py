"""What sums of steps tell and cost: fed-slist under secure sums and a guarantee, and what a reader learns of order.

*Thresholds*: rows of fed-slist are items, so a secure sum hides an item that fewer than k_min users have. A method that
sent pairs of items would lose pairs that fewer than k_min users have, which is most of them. *Order*: rows of a finding
round are (S'T) V, and V is known. Whoever reads them solves for S'T, and sees which of two items came first. The reader
has one readable message, or a sum of several, and knows the items; the same attack on a sum without the user shows what
is told by others. *Guarantee*: noise of differential privacy for whole users.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.config import Experiment, apply_overrides
from tacit.lab.experiments import run
from tacit.methods.base import build_federated, options
from tacit.methods.parts.order import newest_rows
from tacit.numerics import one_blas_thread
from tacit.protocols.federated import UpdatePath, device_round
from tacit.random import Key
from tacit.studies.base import StudyResult, reproduction
from tacit.studies.order import METRICS, recipe
from tacit.studies.setup import StudySetup
from tacit.studies.sheets import PublishedRow, Sheet
from tacit.types import Clients
from tacit.updates import Ring, Total

DATASETS = ("ml-100k", "foursquare-nyc", "ml-1m")
SUMS: dict[str, dict[str, Any] | None] = {"plain": None, **{f"k_min {k}": {"k_min": k} for k in (2, 3, 5)}}
METHODS: dict[str, dict[str, Any]] = {"fed-svd": {"name": "fed-svd", "epochs": 4}, "fed-slist": {"name": "fed-slist"}}
FACTORS = 96  # of both, or half as many as there are items
EPSILONS = (2.0, 8.0)
BOUND, USER_WEIGHT = 1.75, 0.5  # rows and counts of a client have at most this length
SIZES = (1, 7, 20, 50, 100, 200)  # participants of a sum
TARGETS, QUICK_TARGETS = 40, 4


@reproduction("order-sums", "What sums of steps tell", "Thresholds, order and noise of fed-slist", DATASETS, recipe, 1)
def order_sums_study(setup: StudySetup) -> StudyResult:
    """fed-slist beside fed-svd under thresholds; what is left of pairs; what messages and sums tell of order; noise."""
    sums = {name: SUMS[name] for name in (["plain", "k_min 3"] if setup.quick else SUMS)}
    rows, width = [], _factors(setup)
    for label, method in METHODS.items():
        for name, secure in sums.items():
            rows += _run(
                setup, f"{label}, {name}", {**method, **width}, {} if secure is None else {"runtime.secure": secure}
            )
    for epsilon in EPSILONS[-1:] if setup.quick else EPSILONS:
        stage = {"name": "dp", "epsilon": epsilon, "bound": BOUND}
        method = {**METHODS["fed-slist"], **width, "user_weight": USER_WEIGHT}
        rows += _run(setup, f"fed-slist, epsilon {epsilon:g}", method, {"privacy": [stage]})
    left, order = _left_sheet(setup.parts.train), _order_sheet(setup)
    return StudyResult(rows, [_quality_sheet(rows), left, order], {}, ["Leave-last-out, all unseen items ranked."])


def _factors(setup: StudySetup) -> dict[str, int]:
    return {"factors": min(FACTORS, setup.parts.catalog.n_items // 2)}


def _run(setup: StudySetup, label: str, method: Mapping[str, Any], changes: Mapping[str, Any]) -> list[PublishedRow]:
    found: dict[str, list[float]] = {metric: [] for metric in (*METRICS, "MB sent by a user")}
    for seed in setup.seeds:
        base = {"seed": seed, "method": dict(method), "evaluation.local_only_users": 0}
        experiment = Experiment.from_options(apply_overrides(setup.base, {**base, **changes}), "the study")
        setup.progress(f"{setup.name}: {label}", 0, 0)
        made = run(experiment, prepared=setup.prepared)
        for metric in METRICS:
            found[metric].append(made.metrics[metric])
        found["MB sent by a user"].append((made.result.get("bytes_up") or 0) / len(setup.parts.train) / 1e6)
    return [PublishedRow.of(label, metric, values) for metric, values in found.items()]


def _quality_sheet(rows: list[PublishedRow]) -> Sheet:
    lines: dict[str, list[str]] = {}
    for row in rows:
        lines.setdefault(row.method, [row.method]).append(f"{row.ours:.3f}")
    return Sheet("What thresholds and noise cost", ["method", *METRICS, "MB sent by a user"], [*lines.values()])


def _left_sheet(clients: Clients) -> Sheet:
    """Show which share of items, and of pairs of items that follow each other, at least k users have."""
    once = newest_rows(clients)
    items, rows = once.items[once.in_order].astype(np.int64), once.rows
    is_step = rows[1:] == rows[:-1]
    pairs = items[:-1][is_step] * once.n_items + items[1:][is_step]
    counts = [np.unique(keys, return_counts=True)[1] for keys in (items, pairs)]  # a user has each once
    lines = [
        [str(k), *(f"{value:.3f}" for one in counts for value in ((one >= k).mean(), one[one >= k].sum() / one.sum()))]
        for k in (2, 3, 5, 10)
    ]
    columns = ["k_min", "items left", "of all rows", "pairs left", "of all steps"]
    return Sheet("What a threshold leaves: items, and pairs of items that follow each other", columns, lines)


def _order_sheet(setup: StudySetup) -> Sheet:
    """Show how often the reader of a sum knows which of two items of a user came first."""
    clients, key = setup.parts.train, Key(setup.seeds[0])
    method = build_federated("fed-slist", options("fed-slist", _factors(setup)))
    model = method.init(clients, setup.parts.catalog, key.child("learn").child("init"))
    path, table = UpdatePath(method, (), Ring()), model.shared["targets"].astype(np.float64)
    rng = key.child("targets").generator()
    targets = rng.choice(len(clients), min(QUICK_TARGETS if setup.quick else TARGETS, len(clients)), replace=False)
    lines = []
    for size in (one for one in SIZES if one < len(clients)):
        right: list[list[float]] = [[], []]
        for target in targets.tolist():
            others = rng.choice(np.delete(np.arange(len(clients)), target), size, replace=False)
            for at, cohort in enumerate((np.append(others[1:], target), others)):
                total = Total.zero(method.shapes(model.shared))
                device_round(path, model, clients.take(np.sort(cohort)), key, 0, total)
                right[at].append(_share_in_order(clients.take([target]), total.sums["steps"], table))
        lines.append([str(size), *(f"{np.mean(one):.3f}" for one in right)])
    columns = ["participants", "with the user", "others alone"]
    return Sheet("Share of pairs of a user's items whose order the reader of a sum knows", columns, lines)


def _share_in_order(client: Clients, sums: NDArray[np.int64], table: NDArray[np.float64]) -> float:
    """Return for which share of pairs of its items a reader of (S'T) V says rightly which came first."""
    own = newest_rows(client)
    items = own.items[own.in_order]
    present = np.flatnonzero(sums.any(axis=1))
    with one_blas_thread():
        solved = sums[items].astype(np.float64) @ np.linalg.pinv(table[np.union1d(present, items)])
    weights = solved[:, np.searchsorted(np.union1d(present, items), items)]  # [i, j]: how much j came after i
    first, second = np.triu_indices(len(items), 1)
    lead = weights[first, second] - weights[second, first]
    return float(np.mean(np.where(lead == 0, 0.5, lead > 0))) if len(first) else 0.5
