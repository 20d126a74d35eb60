"""What two stages cost: quality beside the plain sum, and what rare items lose. A study of our own.

Leave-last-out, clean negatives. A row counts only where at least k_min users of a round mention it, so that items
which few users have learn late or never. `rare` are users whose held-out item at most five users have in training;
`rows moved` is the share of items whose row has left its place at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tacit.config import Experiment, apply_overrides
from tacit.lab.experiments import run
from tacit.methods.base import Federated
from tacit.random import Key
from tacit.report.folder import Run
from tacit.studies.base import StudyResult, reproduction
from tacit.studies.setup import StudySetup
from tacit.studies.sheets import PublishedRow, Sheet, format_cell, value_of

METRICS = ("HR@10", "NDCG@10", "HR@10 rare", "rows moved", "kB sent per round")
RARE = 5  # users
EPOCHS = {"ml-100k": 100, "foursquare-nyc": 60}
GROUPS = {"ml-100k": (20, 200), "foursquare-nyc": (50, 400)}  # FedNCF's, and larger ones
SUMS: dict[str, dict[str, Any] | None] = {
    "plain": None,
    "k_min 2": {"k_min": 2},
    "k_min 3": {"k_min": 3},
    "k_min 5": {"k_min": 5},
}


def recipe(source: str) -> dict[str, Any]:
    """Return data, split and evaluation: 100 candidates on the two datasets, all items of other data."""
    return {
        "data": {"source": source, "min_per_user": 5},
        "split": {"kind": "leave-last-out"},
        "evaluation": {"protocol": "sampled-100" if source in EPOCHS else "full", "k": [10], "primary": METRICS[1]},
    }


@reproduction("secure-quality", "What two stages cost", "A study of our own", tuple(EPOCHS), recipe, seeds=1)
def quality_study(setup: StudySetup) -> StudyResult:
    """Run fed-gmf in groups and fed-svd with all clients, with and without two stages."""
    methods: dict[str, dict[str, Any]] = {}
    for group in GROUPS.get(setup.name, (20,)):
        epochs = 2 if setup.quick else EPOCHS.get(setup.name, 20)
        methods[f"fed-gmf, groups of {group}"] = {"name": "fed-gmf", "epochs": epochs, "clients_per_round": group}
    methods["fed-svd, all clients"] = {"name": "fed-svd", "factors": 16 if setup.quick else 32, "epochs": 6}
    rows: list[PublishedRow] = []
    for label, method in methods.items():
        for name, secure in SUMS.items():
            found = [_measure(setup, seed, method, secure) for seed in setup.seeds]
            rows += [PublishedRow.of(f"{label}; {name}", metric, [one[metric] for one in found]) for metric in METRICS]
    truth, _ = setup.parts.test.open()
    rare = _popularity(setup)[truth.items] <= RARE
    sheets = [
        Sheet(
            label,
            ["sum", *METRICS],
            [[name, *(format_cell(value_of(rows, f"{label}; {name}", metric)) for metric in METRICS)] for name in SUMS],
        )
        for label in methods
    ]
    notes = [
        f"The held-out item is rare for {int(rare.sum()):,} of {len(rare):,} users. "
        f"Items: {len(_popularity(setup)):,}.",
        "A plain sum is what a secure sum in one stage gives, bit for bit; it would send the whole table.",
        *(["Quick: these numbers say nothing about quality."] if setup.quick else []),
    ]
    return StudyResult(rows, sheets, notes=notes)


def _popularity(setup: StudySetup) -> np.ndarray:
    return np.bincount(setup.parts.train.items, minlength=setup.parts.catalog.n_items)


def _measure(
    setup: StudySetup, seed: int, method: Mapping[str, Any], secure: Mapping[str, Any] | None
) -> dict[str, float]:
    given = apply_overrides(setup.base, {"seed": seed, "method": dict(method), "evaluation.local_only_users": 0})
    if secure is not None:
        given = apply_overrides(given, {"runtime.secure": dict(secure)})
    found = run(Experiment.from_options(given, "the study"), progress=setup.progress, prepared=setup.prepared)
    evaluation, truth = found.evaluation, setup.parts.test.open()[0]
    assert evaluation is not None
    rare = _popularity(setup)[truth.items[truth.ptr[evaluation.rows]]] <= RARE
    hits = evaluation.of("HR@10")
    ledger = found.ledger
    return {
        "HR@10": float(hits.mean()),
        "NDCG@10": float(evaluation.of("NDCG@10").mean()),
        "HR@10 rare": float(hits[rare].mean()) if rare.any() else float("nan"),
        "rows moved": _rows_moved(found, setup, seed),
        "kB sent per round": float(
            ledger["bytes_up"].to_numpy().sum() / max(1, ledger["rounds"].to_numpy().sum()) / 1000
        ),
    }


def _rows_moved(found: Run, setup: StudySetup, seed: int) -> float:
    method = found.recommender.method
    assert isinstance(method, Federated)
    name = method.spec.tables[0]
    start = method.init(setup.parts.train, setup.parts.catalog, Key(seed).child("learn").child("init")).shared[name]
    return float((found.recommender.model.shared[name] != start).any(axis=1).mean())
