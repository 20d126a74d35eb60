"""Comparisons made by hand, with plausible numbers, so that the report is tested without learning anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl

from tacit.config import Experiment
from tacit.methods.choice import MethodChoice
from tacit.report.comparison import ComparisonResult, MethodRow
from tacit.report.folder import Run
from tacit.types import Config

Comparing = Callable[..., ComparisonResult]
N_PEOPLE, N_ITEMS = 120, 300
METHODS = (
    "ease",
    "item-knn",
    "user-knn",
    "bpr-mf",
    "als",
    "multi-vae",
    "pure-svd",
    "neumf",
    "gmf",
    "vsm",
    "most-popular",
    "random",
)
LEARNS_IN_PASSES = {"bpr-mf", "als", "multi-vae", "neumf", "gmf"}


class NoOptions(Config):
    pass


def made_run(label: str, place: int = 0, seed: int = 42, leaks: bool = False, sampling: str = "clean") -> Run:
    """A run whose quality falls with its place; the same arguments give the same run."""
    draws = np.random.default_rng(seed)
    quality = 0.3 - 0.02 * place
    people = {"user": np.arange(N_PEOPLE)}
    for name, factor in {"NDCG@10": 1.0, "HR@10": 2.2, "Precision@10": 0.4, "Recall@10": 0.8, "MRR@10": 1.1}.items():
        people[name] = np.clip(draws.beta(1, 3, N_PEOPLE) * 4 * quality * factor * (draws.random(N_PEOPLE) < 0.7), 0, 1)
    train = np.sort((2000 / np.arange(1, N_ITEMS + 1) ** 0.9).astype(np.int64) + 1)[::-1]
    weights = train ** (0.3 + 0.15 * place) * draws.random(N_ITEMS)
    recommended = draws.multinomial(N_PEOPLE * 10, weights / weights.sum())
    metrics = {name: float(values.mean()) for name, values in people.items() if name != "user"}
    metrics |= {
        "ItemCoverage@10": float((recommended > 0).sum()),
        "Gini@10": 0.4 - 0.03 * place,
        "ACLT@10": 3.0 - 0.2 * place,
    }
    metrics |= {"PopREO@10": 0.2 + 0.05 * place, "PopRSP@10": 0.3 + 0.05 * place}
    passes = np.arange(2, 41, 2)
    curve = {
        "pass": passes,
        "seconds": passes * 0.1,
        "NDCG@10": quality * (1 - np.exp(-passes / 9)) + draws.normal(0, 0.003, 20),
    }
    ledger = {"user": people["user"], "round": 0, "what": "whole history", "rows": 60, "bytes": 240}
    alone, popular = (0.31, 0.12) if leaks else (0.02, 0.12)
    reason = "the local-only model beats Most Popular" if leaks else "it does not beat Most Popular"
    method = MethodChoice(name=label, options=NoOptions())
    result: dict[str, Any] = {
        "run": f"runs/town-{label}-{seed}",
        "name": "tour",
        "method": label,
        "data": "town",
        "protocol": "full",
        "sampling": sampling,
        "seed": seed,
        "passes": 30 if label in LEARNS_IN_PASSES else 1,
        "rounds": None,
        "metrics": metrics,
        "ci": {},
        "users": N_PEOPLE,
        "train_seconds": 0.004 * 2.3**place,
        "evaluate_seconds": 0.02,
        "bytes_up": 240 * N_PEOPLE,
        "bytes_down": 0,
        "leak": {
            "ok": not leaks,
            "local_only": {"NDCG@10": alone, "AUC": 2.5 * alone + 0.1},
            "most_popular": {"NDCG@10": popular, "AUC": 0.81},
            "reason": reason,
        },
        "peak_mb": 210.0 + 9 * place,
        "notes": ["3 held-out items are not in the catalogue: they count as never found"],
        "about_data": {"counts": {"users": N_PEOPLE, "items": N_ITEMS, "train": 7200, "validation": 0, "test": 1800}},
    }
    return Run(
        Experiment(name="tour", seed=seed, method=method),
        result,
        pl.DataFrame(people),
        pl.DataFrame({"item": np.arange(N_ITEMS), "title": "x", "train_count": train, "recommended": recommended}),
        pl.DataFrame(curve if label in LEARNS_IN_PASSES else {}),
        pl.DataFrame(ledger),
        ["    0.10 s  data town"],
    )


def made_row(label: str, place: int = 0, seeds: Sequence[int] = (42,), **how: Any) -> MethodRow:
    runs = tuple(made_run(label, place, seed, **how) for seed in seeds)
    values = {name: runs[0].users[name].to_numpy() for name in runs[0].users.columns if name != "user"}
    half = {name: 1.98 * value.std(ddof=1) / np.sqrt(N_PEOPLE) for name, value in values.items()}
    ci = {name: (float(value.mean() - half[name]), float(value.mean() + half[name])) for name, value in values.items()}
    p = None if place == 0 else 0.6 / 5**place
    return MethodRow(label, runs, ci, p, p if p is None else p * 1.3)
