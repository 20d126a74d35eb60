"""What lies do, and what rules bear with: a study of our own, one attack and one rule at a time.

Leave-last-out, clean negatives, fed-gmf. A share of people lie in every round (`tacit.runtimes.liars`); the server sums
as usual, believes a rare row less (`shrink`), has devices clip, or combines groups by a robust rule
(`tacit.protocols.robust`). Quality is that of all people, liars included; the exposure of the promoted item is the
share of people who do not have it and would see it among their first ten of all items.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tacit.config import Experiment, overridden
from tacit.errors import DivergedError
from tacit.experiments import run
from tacit.reproduce.base import Found, reproduction
from tacit.reproduce.lab import Lab
from tacit.reproduce.sheets import Row, Sheet, number, value_of
from tacit.runtimes.recommender import Recommender

METRICS = ("HR@10", "NDCG@10")
METHOD = {"name": "fed-gmf", "epochs": 30, "clients_per_round": 100, "learning_rate": 0.005}
ATTACKS: dict[str, dict[str, Any] | None] = {
    "nobody lies": None,
    "5 % no numbers": {"kind": "nan", "share": 0.05},
    "20 % sign-flip": {"kind": "sign-flip", "share": 0.2},
    "5 % noise": {"kind": "noise", "share": 0.05, "strength": 1.0},
    "5 % promote": {"kind": "promote", "share": 0.05, "strength": 20.0},
}
DEFENCES: dict[str, dict[str, Any]] = {
    "plain sum": {},
    "shrink 3": {"method.shrink": 3.0},
    "trimmed mean, 20 groups": {"runtime.rounds.robust": {"rule": "trimmed-mean", "groups": 20, "liars": 0.25}},
    "median, alone": {"runtime.rounds.robust": {"rule": "median"}},
    "krum, 20 groups": {"runtime.rounds.robust": {"rule": "krum", "groups": 20, "liars": 0.25}},
}


def recipe(source: str) -> dict[str, Any]:
    """Return data, split and evaluation: 100 candidates on MovieLens 100K, all items of other data."""
    return {
        "data": {"source": source, "min_per_user": 5},
        "split": {"kind": "leave-last-out"},
        "evaluation": {"protocol": "sampled-100" if source == "ml-100k" else "full", "k": [10], "primary": METRICS[1]},
    }


@reproduction("robust-liars", "Liars and rules", "A study of our own", ("ml-100k",), recipe, seeds=1)
def liars(lab: Lab) -> Found:
    """Run every attack against every rule."""
    target = unpopular(lab)
    rows: list[Row] = []
    attacks = dict(list(ATTACKS.items())[: 3 if lab.quick else None])
    for attack, lies in attacks.items():
        for defence, settings in DEFENCES.items():
            found = [_measured(lab, seed, lies, settings, target) for seed in lab.seeds]
            for metric in (*METRICS, "exposure", "refused"):
                values = [one[metric] for one in found if one is not None]
                rows.append(Row.of(f"{attack}; {defence}", metric, values))
    title = str(lab.parts.catalog.title(target))
    notes = [
        f"Promoted: '{title}', which {int(_counts(lab)[target])} people have.",
        "'–': learning ran away, and the run stopped.",
        *(["Quick: few passes and attacks. These numbers say nothing about the rules."] if lab.quick else []),
    ]
    sheets = [_sheet(metric, attacks, rows) for metric in (METRICS[1], METRICS[0], "exposure")]
    return Found(rows, sheets, notes=notes, detail={"target": title})


def unpopular(lab: Lab) -> int:
    """Return the item that nine tenths of the items are more popular than; the first of equals."""
    order = np.argsort(-_counts(lab), kind="stable")
    return int(order[int(0.9 * len(order))])


def _counts(lab: Lab) -> np.ndarray:
    return np.bincount(lab.parts.train.items, minlength=lab.parts.catalog.n_items)


def _measured(
    lab: Lab, seed: int, lies: Mapping[str, Any] | None, settings: Mapping[str, Any], target: int
) -> dict[str, float] | None:
    method = {**METHOD, "epochs": 2} if lab.quick else METHOD
    given = overridden(lab.base, {"seed": seed, "method": dict(method), "evaluation.twin_people": 0, **settings})
    if lies is not None:
        item = {"item": lab.parts.catalog.item_ids[target]} if lies["kind"] == "promote" else {}
        given = overridden(given, {"runtime.liars": {**lies, **item}})
    try:
        found = run(Experiment.checked(given, "the study"), progress=lab.progress, bench=lab.bench)
    except DivergedError:
        return None
    seen = {metric: float(found.result["metrics"][metric]) for metric in METRICS}
    return {**seen, "exposure": exposure(found.recommender, target), "refused": float(found.result["updates_refused"])}


def exposure(recommender: Recommender, item: int, k: int = 10) -> float:
    """Return the share of people without an item who would see it among their first `k` of all items."""
    train = recommender.clients
    scores = recommender.score(np.arange(len(train)))
    scores[train.rows, train.items] = -np.inf
    without = np.isfinite(scores[:, item])
    ahead = (scores[without] > scores[without, item][:, None]).sum(axis=1)
    return float((ahead < k).mean())


def _sheet(metric: str, attacks: Mapping[str, Any], rows: list[Row]) -> Sheet:
    lines = [[name, *(number(value_of(rows, f"{attack}; {name}", metric)) for attack in attacks)] for name in DEFENCES]
    return Sheet(metric, ["rule", *attacks], lines)
