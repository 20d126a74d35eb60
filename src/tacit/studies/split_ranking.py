"""Do methods stand in the same order whatever the split? The README's methods by the last item and by the clock.

Options are those that the README's table found on validation (`tuned_table.py`); methods that read order have their
defaults. Rank correlations say how far the two orders agree: 1 is the same order, 0 is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from tacit.errors import MethodError
from tacit.studies.base import StudyResult, reproduction
from tacit.studies.order import METRICS, SPLITS, recipe
from tacit.studies.setup import StudySetup
from tacit.studies.sheets import PublishedRow, Sheet

DATASETS = ("ml-1m",)
LOCAL_ONLY_USERS = 12
FPL: dict[str, Any] = {"name": "fpl", "preset": "pFPL+", "epochs": 100, "reg_positive": 0.0}
ROWS: dict[str, dict[str, Any]] = {
    "most-popular": {"name": "most-popular"},
    "item-knn": {"name": "item-knn", "neighbours": 600, "similarity": "cosine", "shrink": 0.0, "normalise": False},
    "user-knn": {"name": "user-knn", "neighbours": 300, "similarity": "jaccard", "shrink": 50.0, "amplify": 2.0},
    "pure-svd": {"name": "pure-svd", "factors": 12},
    "bpr-mf": {
        "name": "bpr-mf",
        "epochs": 180,
        "factors": 100,
        "learning_rate": 0.01,
        "reg_user": 0.03,
        "reg_positive": 0.01,
        "reg_negative": 0.0,
    },
    "als": {"name": "als", "epochs": 3, "factors": 8, "alpha": 1.0, "reg": 80.0},
    "ease": {"name": "ease", "reg": 16000.0},
    "fpl": {**FPL, "factors": 50, "learning_rate": 0.005, "reg_user": 0.01, "reg_negative": 0.03},
    "fpl, pi = 0.1": {**FPL, "pi": 0.1, "factors": 100, "learning_rate": 0.02, "reg_user": 0.1, "reg_negative": 0.0},
    "fed-svd": {"name": "fed-svd", "epochs": 4, "factors": 24, "item_weight": 0.5},
    "fed-als": {"name": "fed-als", "epochs": 6, "factors": 32, "alpha": 5.0, "reg": 160.0},
    "fed-ease": {"name": "fed-ease", "epochs": 4, "sketch": 256, "reg": 8000.0},
    "markov": {"name": "markov"},
    "session-knn": {"name": "session-knn"},
    "slist": {"name": "slist"},
    "fed-slist": {"name": "fed-slist"},
}
WITH_ORDER = ("markov", "session-knn", "slist", "fed-slist")
Figures = Mapping[tuple[str, str], Mapping[str, float]]  # (row, split) -> metric -> mean over seeds


@reproduction(
    "split-ranking", "The order of methods by split", "The README's methods under two splits", DATASETS, recipe
)
def ranking_study(setup: StudySetup) -> StudyResult:
    """Every method of the README under both splits, and how far their orders agree."""
    names = ("most-popular", "ease", "slist") if setup.quick else tuple(ROWS)
    rows, found, notes = [], {}, []
    for split, changes in SPLITS.items():
        here = setup.vary(changes)
        for name in names:
            kept = _recall(here, split, name)
            if kept["refusal"]:
                notes.append(f"'{name}' cannot be run under {split}: {kept['refusal']}")
                continue
            values = kept["values"]
            rows += [PublishedRow.of(f"{name}, {split}", metric, values[metric]) for metric in METRICS]
            found[name, split] = {metric: float(np.mean(values[metric])) for metric in METRICS}
            if kept["is_clean"] is False:
                notes.append(f"'{name}' under {split}: the leak check failed.")
    both = [name for name in names if all((name, split) in found for split in SPLITS)]
    without = [name for name in both if name not in WITH_ORDER]
    agreement = [_agree("all methods", both, found), _agree("methods without order", without, found)]
    columns = ["methods", "Kendall's tau, NDCG@10", "Spearman's rho, NDCG@10"]
    detail = {"figures": {f"{name}, {split}": one for (name, split), one in found.items()}, "agreement": agreement}
    return StudyResult(rows, [_sheet(names, found), Sheet("Agreement", columns, agreement)], {}, notes, detail)


def _recall(setup: StudySetup, split: str, name: str) -> dict[str, Any]:
    """Return metric -> one value per seed, the leak verdict, and why a method refuses a split, if it does.

    A study that was stopped goes on where it was.
    """

    def measure() -> dict[str, Any]:
        try:
            runs = setup.runs(f"{name}, {split}", ROWS[name], local_only_users=LOCAL_ONLY_USERS)
        except MethodError as error:  # by the clock, some users have no history yet
            return {"values": {}, "is_clean": None, "refusal": str(error)}
        values = {metric: [run.metrics[metric] for run in runs] for metric in METRICS}
        return {"values": values, "is_clean": (runs[0].result.get("leak") or {}).get("ok"), "refusal": ""}

    asked = {"method": ROWS[name], "split": split, "seeds": [*setup.seeds]}
    return setup.recall(f"split-ranking-{name.replace(', ', '-').replace(' ', '')}", asked, measure)


def _agree(label: str, names: Sequence[str], found: Figures) -> list[str]:
    """Return both rank correlations between the two splits."""
    first, second = ([found[name, split]["NDCG@10"] for name in names] for split in SPLITS)
    return [
        label,
        f"{stats.kendalltau(first, second).statistic:.2f}",
        f"{stats.spearmanr(first, second).statistic:.2f}",
    ]


def _sheet(names: tuple[str, ...], found: Figures) -> Sheet:
    lines = []
    for name in names:
        line = [name]
        for split in SPLITS:
            if (name, split) not in found:
                line += ["–"] * (len(METRICS) + 1)
                continue
            own = found[name, split]
            others = [one for (_, where), one in found.items() if where == split]
            place = 1 + sum(one["NDCG@10"] > own["NDCG@10"] for one in others)
            line += [*(f"{own[metric]:.3f}" for metric in METRICS), str(place)]
        lines.append(line)
    columns = ["method", *(f"{split} {text}" for split in SPLITS for text in (*METRICS, "place"))]
    return Sheet("Full ranking, one list for both splits", columns, lines)
