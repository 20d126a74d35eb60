"""How well aggregation rules withstand attacks: a study of our own, one attack and one rule at a time.

Leave-last-out, clean negatives, fed-gmf. A share of clients are adversaries (`tacit.lab.adversaries`). The
server adds up as usual, gives rare rows less weight (`shrink`), or combines the sums of groups by a robust rule
(`tacit.protocols.robust`). Quality is that of all users, adversaries included. The exposure of the promoted item is
the share of users without it who would see it among their first ten of all items.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tacit.config import Experiment, apply_overrides
from tacit.errors import DivergedError
from tacit.lab.experiments import run
from tacit.serving.recommender import Recommender
from tacit.studies.base import StudyResult, reproduction
from tacit.studies.setup import StudySetup
from tacit.studies.sheets import PublishedRow, Sheet, format_cell, value_of

METRICS = ("HR@10", "NDCG@10")
METHOD = {"name": "fed-gmf", "epochs": 30, "clients_per_round": 100, "learning_rate": 0.005}
ATTACKS: dict[str, dict[str, Any] | None] = {
    "no adversaries": None,
    "5 % NaN": {"kind": "nan", "share": 0.05},
    "20 % sign-flip": {"kind": "sign-flip", "share": 0.2},
    "5 % noise": {"kind": "noise", "share": 0.05, "strength": 1.0},
    "5 % promote": {"kind": "promote", "share": 0.05, "strength": 20.0},
}
DEFENCES: dict[str, dict[str, Any]] = {
    "plain sum": {},
    "shrink 3": {"method.shrink": 3.0},
    "trimmed mean, 20 groups": {"runtime.rounds.robust": {"rule": "trimmed-mean", "groups": 20, "adversaries": 0.25}},
    "median, alone": {"runtime.rounds.robust": {"rule": "median"}},
    "krum, 20 groups": {"runtime.rounds.robust": {"rule": "krum", "groups": 20, "adversaries": 0.25}},
}


def recipe(source: str) -> dict[str, Any]:
    """Return data, split and evaluation: 100 candidates on MovieLens 100K, all items of other data."""
    return {
        "data": {"source": source, "min_per_user": 5},
        "split": {"kind": "leave-last-out"},
        "evaluation": {"protocol": "sampled-100" if source == "ml-100k" else "full", "k": [10], "primary": METRICS[1]},
    }


@reproduction(
    "robust-adversaries", "Attacks and aggregation rules", "A study of our own", ("ml-100k",), recipe, seeds=1
)
def adversary_study(setup: StudySetup) -> StudyResult:
    """Run every attack against every rule."""
    target = unpopular_item(setup)
    rows: list[PublishedRow] = []
    attacks = dict(list(ATTACKS.items())[: 3 if setup.quick else None])
    for attack, options in attacks.items():
        for defence, settings in DEFENCES.items():
            found = [_measure(setup, seed, options, settings, target) for seed in setup.seeds]
            for metric in (*METRICS, "exposure", "refused"):
                values = [one[metric] for one in found if one is not None]
                rows.append(PublishedRow.of(f"{attack}; {defence}", metric, values))
    title = str(setup.parts.catalog.title(target))
    notes = [
        f"Promoted: '{title}', which {int(_counts(setup)[target])} users have.",
        "'–': learning diverged, and the run stopped.",
        *(["Quick: few passes and attacks. These numbers say nothing about the rules."] if setup.quick else []),
    ]
    sheets = [_sheet(metric, attacks, rows) for metric in (METRICS[1], METRICS[0], "exposure")]
    return StudyResult(rows, sheets, notes=notes, detail={"target": title})


def unpopular_item(setup: StudySetup) -> int:
    """Return the item that nine tenths of the items are more popular than; the first of equals."""
    order = np.argsort(-_counts(setup), kind="stable")
    return int(order[int(0.9 * len(order))])


def _counts(setup: StudySetup) -> np.ndarray:
    return np.bincount(setup.parts.train.items, minlength=setup.parts.catalog.n_items)


def _measure(
    setup: StudySetup, seed: int, options: Mapping[str, Any] | None, settings: Mapping[str, Any], target: int
) -> dict[str, float] | None:
    method = {**METHOD, "epochs": 2} if setup.quick else METHOD
    given = apply_overrides(
        setup.base, {"seed": seed, "method": dict(method), "evaluation.local_only_users": 0, **settings}
    )
    if options is not None:
        item = {"item": setup.parts.catalog.item_ids[target]} if options["kind"] == "promote" else {}
        given = apply_overrides(given, {"runtime.adversaries": {**options, **item}})
    try:
        found = run(Experiment.from_options(given, "the study"), progress=setup.progress, prepared=setup.prepared)
    except DivergedError:
        return None
    seen = {metric: float(found.result["metrics"][metric]) for metric in METRICS}
    return {
        **seen,
        "exposure": item_exposure(found.recommender, target),
        "refused": float(found.result["updates_refused"]),
    }


def item_exposure(recommender: Recommender, item: int, k: int = 10) -> float:
    """Return the share of users without an item who would see it among their first `k` of all items."""
    train = recommender.clients
    scores = recommender.score(np.arange(len(train)))
    scores[train.rows, train.items] = -np.inf
    without = np.isfinite(scores[:, item])
    ahead = (scores[without] > scores[without, item][:, None]).sum(axis=1)
    return float((ahead < k).mean())


def _sheet(metric: str, attacks: Mapping[str, Any], rows: list[PublishedRow]) -> Sheet:
    lines = [
        [name, *(format_cell(value_of(rows, f"{attack}; {name}", metric)) for attack in attacks)] for name in DEFENCES
    ]
    return Sheet(metric, ["rule", *attacks], lines)
