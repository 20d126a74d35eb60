"""What the tuned tables search: one space per row, declared here, the same on every dataset.

A row tries as many points of its space as any other. So each space has at least that many, and the more options a
method has, the coarser its space is searched: a small method is not searched less.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from tacit.random import Key


@dataclass(frozen=True)
class SearchSpace:
    """A row: options that stay, values of others to try, and passes between checkpoints (0: there is one pass)."""

    method: Mapping[str, Any]
    values: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    evaluate_every: int = 0

    def draw(self, trials: int, key: Key) -> list[dict[str, Any]]:
        """Return so many different points, drawn by the key; one point without options if there is nothing to try."""
        points = [dict(zip(self.values, chosen, strict=True)) for chosen in product(*self.values.values())]
        draws = key.uniform(np.arange(len(points)), 1)[:, 0]
        return [points[at] for at in np.sort(np.argsort(draws, kind="stable")[:trials])]


_PAIRWISE: dict[str, tuple[Any, ...]] = {
    "factors": (10, 20, 50, 100),
    "learning_rate": (0.002, 0.005, 0.01, 0.02, 0.05),
    "reg_user": (0.0, 0.01, 0.03, 0.1),
    "reg_positive": (0.0, 0.01, 0.03, 0.1),
    "reg_negative": (0.0, 0.003, 0.01, 0.03),
}
_FPL = {"name": "fpl", "preset": "pFPL+", "epochs": 200}
_ALS: dict[str, tuple[Any, ...]] = {"alpha": (1.0, 2.0, 5.0, 10.0, 20.0), "reg": (5.0, 10.0, 20.0, 40.0, 80.0, 160.0)}
_LARGE_REGS = (1000.0, 1400.0, 2000.0, 2800.0, 4000.0, 5500.0, 8000.0, 11000.0, 16000.0, 30000.0)
_NEURAL: dict[str, tuple[Any, ...]] = {
    "factors": (8, 12, 24),
    "learning_rate": (0.0005, 0.001, 0.003),
    "init_scale": (0.01, 0.1),
    "loss": ("bce", "bpr", "softmax"),
    "batch_size": (64, 256, 1024),
    "negatives": (4, 8),
}
_ON_DEVICES: dict[str, tuple[Any, ...]] = {
    "learning_rate": (0.001, 0.003, 0.005),
    "init_scale": (0.01, 0.1),
    "own_rate": (1.0, 3.0, 10.0, 30.0),
    "loss": ("bce", "bpr", "softmax"),
    "clients_per_round": (10, 20, 40),
    "batch_size": (64, 256),
}

SPACES: dict[str, SearchSpace] = {
    "random": SearchSpace({"name": "random"}),
    "most-popular": SearchSpace({"name": "most-popular"}),
    "item-knn": SearchSpace(
        {"name": "item-knn"},
        {
            "neighbours": (20, 40, 80, 150, 300, 600),
            "similarity": ("cosine", "jaccard"),
            "shrink": (0.0, 20.0, 50.0, 100.0, 300.0),
            "normalise": (False, True),
        },
    ),
    "user-knn": SearchSpace(
        {"name": "user-knn"},
        {
            "neighbours": (40, 80, 150, 300, 600),
            "similarity": ("cosine", "jaccard"),
            "shrink": (0.0, 20.0, 50.0, 100.0),
            "amplify": (1.0, 2.0, 4.0),
        },
    ),
    "pure-svd": SearchSpace(
        {"name": "pure-svd"},
        {"factors": (4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 36, 40, 50, 60, 70, 80, 100, 120, 150)},
    ),
    "bpr-mf": SearchSpace({"name": "bpr-mf", "epochs": 200}, _PAIRWISE, 20),
    "als": SearchSpace({"name": "als", "epochs": 15}, {"factors": (8, 16, 32, 64), **_ALS}, 3),
    "ease": SearchSpace(
        {"name": "ease"},
        {"reg": (10.0, 30.0, 50.0, 100.0, 150.0, 200.0, 300.0, 400.0, 500.0, 700.0, *_LARGE_REGS)},
    ),
    "gmf": SearchSpace({"name": "gmf", "epochs": 30}, _NEURAL, 3),
    "mlp": SearchSpace({"name": "mlp", "epochs": 30}, _NEURAL, 3),
    "neumf": SearchSpace({"name": "neumf", "epochs": 30}, _NEURAL, 3),
    "multi-vae": SearchSpace(
        {"name": "multi-vae", "epochs": 100},
        {
            "hidden": (100, 200, 400),
            "latent": (32, 64, 128),
            "learning_rate": (0.0005, 0.001, 0.003),
            "dropout": (0.3, 0.5, 0.7),
            "beta": (0.05, 0.2, 0.5, 1.0),
            "batch_size": (50, 100, 200),
        },
        10,
    ),
    "fpl": SearchSpace(_FPL, _PAIRWISE, 20),
    "fpl, pi = 0.1": SearchSpace({**_FPL, "pi": 0.1}, _PAIRWISE, 20),
    "fed-svd": SearchSpace(
        {"name": "fed-svd", "epochs": 6},
        {"factors": (8, 16, 24, 32, 48, 64, 96), "item_weight": (0.0, 0.15, 0.25, 0.35, 0.5)},
        2,
    ),
    "fed-als": SearchSpace({"name": "fed-als", "epochs": 12}, {"factors": (8, 16, 32), **_ALS}, 3),
    "fed-ease": SearchSpace(
        {"name": "fed-ease", "epochs": 4},
        {
            "sketch": (64, 128, 256, 512, 1024),
            "reg": (100.0, 300.0, 500.0, 1000.0, 2000.0, 3000.0, 5000.0, 8000.0),
        },
        1,
    ),
    "fed-gmf": SearchSpace({"name": "fed-gmf", "epochs": 400}, {"factors": (12, 24), **_ON_DEVICES}, 25),
    "fed-neumf": SearchSpace({"name": "fed-neumf", "epochs": 100}, _ON_DEVICES, 10),
    "fed-mlp": SearchSpace({"name": "fed-mlp", "epochs": 100}, _ON_DEVICES, 10),
}
NEURAL = ("gmf", "mlp", "neumf", "multi-vae", "fed-gmf", "fed-neumf", "fed-mlp")
