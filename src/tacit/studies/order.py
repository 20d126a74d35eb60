"""What order is worth: methods that read it beside those that do not, by each user's last item and by the clock.

Options of every row are chosen on the validation part of the same split with one seed, by NDCG@10. Under leave-last-out
each user's newest item is held out; under global time the newest tenth of all rows, of which each user's next item
counts. All unseen items are ranked. At equal times the smaller item is later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.studies.base import StudyResult, reproduction
from tacit.studies.setup import StudySetup
from tacit.studies.sheets import PublishedRow, Sheet

DATASETS = ("ml-1m", "ml-100k", "foursquare-nyc", "lastfm-2k")
METRICS = ("HR@10", "NDCG@10")
LOCAL_ONLY_USERS = 12
SPLITS: dict[str, dict[str, Any]] = {
    "leave-last-out": {"split.kind": "leave-last-out"},
    "global time": {"split.kind": "global-time", "split.test": 0.1, "split.targets": "next"},
}
RECENCY = (2.0, 5.0, 20.0)
ROWS: dict[str, tuple[dict[str, Any], dict[str, Sequence[Any]]]] = {  # row -> method, values that are tried
    "most-popular": ({"name": "most-popular"}, {}),
    "item-knn": ({"name": "item-knn"}, {"neighbours": (20, 80)}),
    "item-knn, recency": ({"name": "item-knn"}, {"recency": RECENCY}),
    "ease": ({"name": "ease"}, {"reg": (100.0, 300.0, 1000.0, 4000.0)}),
    "ease, recency": ({"name": "ease"}, {"reg": (300.0, 1000.0), "recency": RECENCY}),
    "fed-svd": ({"name": "fed-svd", "epochs": 4}, {"factors": (32, 96)}),
    "fed-svd, recency": ({"name": "fed-svd", "epochs": 4, "factors": 96}, {"recency": RECENCY}),
    "fed-ease": ({"name": "fed-ease"}, {"reg": (300.0, 1000.0)}),
    "fed-ease, recency": ({"name": "fed-ease"}, {"recency": RECENCY}),
    "markov": ({"name": "markov"}, {"smoothing": (1.0, 10.0, 100.0)}),
    "session-knn": ({"name": "session-knn"}, {"window": (3, 10), "neighbours": (100, 500)}),
    "slist": ({"name": "slist"}, {"decay": (2.0, 3.0, 6.0), "target_decay": (0.0, 1.0, 3.0)}),
    "fed-slist": ({"name": "fed-slist"}, {"decay": (2.0, 3.0, 6.0), "target_decay": (0.0, 1.0, 3.0)}),
}


def recipe(source: str) -> dict[str, Any]:
    """Return data, split and evaluation. Places and artists of few users are left out: slist is dense."""
    extra: dict[str, Any] = {"table": "tags"} if source == "lastfm-2k" else {}
    least = {"min_per_item": 5} if source in ("foursquare-nyc", "lastfm-2k") else {}
    return {
        "data": {"source": source, "min_per_user": 5, **least, **extra},
        "split": {"kind": "leave-last-out"},
        "evaluation": {"protocol": "full", "k": [10], "primary": "NDCG@10"},
    }


@dataclass(frozen=True)
class OrderRow:
    """A method under one split: what was chosen, and metric -> one value per seed."""

    name: str
    split: str
    method: Mapping[str, Any]
    values: Mapping[str, Sequence[float]]
    is_clean: bool | None  # the leak verdict
    up: float | None  # bytes of all users and rounds
    down: float | None


@reproduction("order-quality", "What order is worth", "Next items, by the last item and by the clock", DATASETS, recipe)
def order_study(setup: StudySetup) -> StudyResult:
    """Methods with and without order under two splits."""
    names = ("most-popular", "ease, recency", "slist", "fed-slist") if setup.quick else tuple(ROWS)
    found = [_measure(setup.vary(changes), split, name) for split, changes in SPLITS.items() for name in names]
    rows = [
        PublishedRow.of(f"{one.name}, {one.split}", metric, one.values[metric], None, _describe(one.method))
        for one in found
        for metric in METRICS
    ]
    notes = [f"'{one.name}' under {one.split}: the leak check failed." for one in found if one.is_clean is False]
    notes.append("At equal times the smaller item is later (split.ties).")
    return StudyResult(rows, [_sheet(found, names)], {}, notes, {"rows": [vars(one) for one in found]})


def _measure(setup: StudySetup, split: str, name: str) -> OrderRow:
    """Choose options on the validation part, and run them on the test part."""
    given, values = ROWS[name]
    grid = {f"method.{option}": tried[:1] if setup.quick else tried for option, tried in values.items()}

    def search() -> dict[str, Any]:
        best = setup.search(f"{name}, {split}", given, grid).best.settings
        return {path.removeprefix("method."): value for path, value in best.items()}

    chosen = setup.recall(f"order-{name.replace(', ', '-')}", {"method": given, "values": grid}, search) if grid else {}
    method = {**given, **chosen}
    runs = setup.runs(f"{name}, {split}", method, local_only_users=LOCAL_ONLY_USERS)
    return OrderRow(
        name,
        split,
        method,
        {metric: [run.metrics[metric] for run in runs] for metric in METRICS},
        (runs[0].result.get("leak") or {}).get("ok"),
        runs[0].result.get("bytes_up"),
        runs[0].result.get("bytes_down"),
    )


def _sheet(found: Sequence[OrderRow], names: Sequence[str]) -> Sheet:
    """Lay both splits side by side, with the place of each method."""
    at = {(one.name, one.split): one for one in found}
    mean = {key: {metric: float(np.mean(one.values[metric])) for metric in METRICS} for key, one in at.items()}
    columns = ["method", *(f"{split} {text}" for split in SPLITS for text in ("HR@10", "NDCG@10", "place"))]
    lines = []
    for name in names:
        line = [name]
        for split in SPLITS:
            own = mean[name, split]
            place = 1 + sum(mean[other, split]["NDCG@10"] > own["NDCG@10"] for other in names)
            line += [f"{own['HR@10']:.3f}", f"{own['NDCG@10']:.3f}", str(place)]
        lines.append(line)
    return Sheet("Full ranking, options from validation", columns, lines)


def _describe(method: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in method.items() if key != "name")
