"""Chapter 5 on MNIST: rounds until a share of devices classifies its own digits well, by criteria and their order.

100 clients, a tenth per round, 5 local epochs on the full batch; a client's test digits are those of its kinds. Each
weight follows from dataset size (DS), different labels (LD) and model divergence (MW), in order of priority.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

import numpy as np

from tacit.data import load_images
from tacit.data.formats.images import Digits
from tacit.errors import DataError
from tacit.protocols.criteria import model_closeness, weigh
from tacit.random import Key
from tacit.reproduce.base import Found, reproduction
from tacit.reproduce.cnn import DigitCNN, averaged, moved, torch
from tacit.reproduce.lab import Lab
from tacit.reproduce.pictures import Indices, by_shards, iid, label_diversity, test_parts
from tacit.reproduce.sheets import Row, Sheet

ORDERS = [("DS",), ("LD",), ("MW",), *permutations(("DS", "LD", "MW"))]
TARGETS = (0.7, 0.8, 0.9, 0.95)
SHARES = tuple(range(10, 100, 10))
PARTITIONS: dict[str, Callable[[Any, int, Key], Indices]] = {"IID": iid, "non-IID": by_shards}
BASELINES = {  # rounds of DS in tables 5.1 and 5.3, for 10 to 90 % of devices
    ("IID", 0.9): (5, 5, 5, 5, 7, 7, 10, 11, 14),
    ("non-IID", 0.9): (10, 16, 20, 20, 23, 33, 35, 44, 69),
}


@dataclass(frozen=True)
class Setting:
    """How much is run: the thesis's sizes, or a few."""

    clients: int = 100
    asked: int = 10
    local_epochs: int = 5
    learning_rate: float = 0.1
    rounds: int = 30
    pictures: int = 60_000  # to learn from


QUICK = Setting(clients=4, asked=2, local_epochs=1, rounds=2, pictures=200)


@dataclass
class Curve:
    """The accuracy of every device on its own test digits, round after round."""

    label: str
    accuracy: list[np.ndarray] = field(default_factory=list)  # [C] each

    def until(self, target: float, share: float) -> int | None:
        """Return after how many rounds a share of devices has reached a target, None if never."""
        for number, values in enumerate(self.accuracy, 1):
            if (values >= target).mean() >= share:
                return number
        return None


@reproduction(
    "criteria-mnist",
    "Criteria on MNIST",
    "Ferrara's thesis (2022), tables 5.1 and 5.3, figure 5.1",
    ("mnist",),
    lambda source: {"data": {"source": source}},
    1,
)
def digits(lab: Lab) -> Found:
    """Rounds until 10 to 90 % of devices reach 70, 80, 90 and 95 % accuracy, IID and in two shards."""
    torch()
    if lab.name != "mnist":
        raise DataError("criteria-mnist classifies digits: it needs mnist.", "Fetch it with `tacit data get mnist`.")
    pictures, setting = load_images("mnist"), QUICK if lab.quick else Setting()
    assert isinstance(pictures, Digits)
    rows, sheets = [], []
    for name, deal in PARTITIONS.items():
        curves = []
        for order in ORDERS[: 2 if lab.quick else None]:
            lab.progress(f"mnist {name}: {' > '.join(order)}", 0, setting.rounds)
            curves.append(federated(pictures, deal, order, setting, Key(lab.seeds[0])))
        for target in TARGETS:
            lines = []
            for curve in curves:
                found = [curve.until(target, share / 100) for share in SHARES]
                lines.append([curve.label, *("–" if r is None else str(r) for r in found)])
                printed = BASELINES.get((name, target)) if curve.label == "DS" and not lab.quick else None
                for at, (share, r) in enumerate(zip(SHARES, found, strict=True)):
                    metric = f"{name}: rounds until {share} % have {target:.0%}"
                    known = None if printed is None else float(printed[at])
                    rows.append(Row.of(curve.label, metric, [] if r is None else [float(r)], known))
            title = f"{name}: rounds until so many devices have an accuracy of {target:.0%}"
            sheets.append(Sheet(title, ["order", *(f"{share} %" for share in SHARES)], lines))
    read = "Published rounds of DS at 90 % were read from tables 5.1 and 5.3; the thesis runs up to 1,000 rounds."
    notes = [
        read,
        f"{setting.clients} clients, {setting.asked} per round, {setting.rounds} rounds; '–': not within them.",
    ]
    return Found(rows, sheets, {}, [*notes, *(["Quick: it only shows that it runs."] if lab.quick else [])])


def federated(
    pictures: Digits, deal: Callable[[Any, int, Key], Indices], order: tuple[str, ...], setting: Setting, key: Key
) -> Curve:
    """Learn together for the rounds of a setting, weighing clients by criteria in an order."""
    labels = pictures.train_labels[: setting.pictures]
    clients = deal(labels, setting.clients, key.child("deal"))
    tests = test_parts(clients, labels, pictures.test_labels, key.child("tests"))
    diversity = label_diversity(labels, clients)
    model, curve = DigitCNN(key.seed), Curve(" > ".join(order))
    shared = model.weights()
    n_test = len(pictures.test_labels) if setting.pictures > 1000 else 500
    for number in range(setting.rounds):
        asked = np.sort(key.child("choose", number).generator().choice(setting.clients, setting.asked, replace=False))
        learnt = []
        for client in asked:
            mine = clients[client]
            model.load(shared)
            learnt.append(
                model.learn(pictures.train_images[mine], labels[mine], setting.local_epochs, setting.learning_rate)
            )
        measured = {
            "DS": np.array([float(len(clients[c])) for c in asked]),
            "LD": diversity[asked],
            "MW": model_closeness(np.array([moved(shared, after) for after in learnt])),
        }
        weights = weigh(order, np.array([measured[name] for name in order])).weights
        shared = averaged(learnt, weights)
        model.load(shared)
        right = model.right(pictures.test_images[:n_test], pictures.test_labels[:n_test])
        own = [test[test < n_test] for test in tests]
        curve.accuracy.append(np.array([right[test].mean() if len(test) else 0.0 for test in own]))
    return curve
