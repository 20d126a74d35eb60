"""What each metric means in one line, which direction is better, and which ones a table shows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class MetricEntry:
    """A metric as reports show it."""

    name: str
    meaning: str
    better: int  # 1: higher is better, -1: lower is better
    accuracy: bool  # one value per user; the others describe the lists of all users together


MEASURES = {
    measure.name: measure
    for measure in (
        MetricEntry(
            "NDCG",
            "discounted gain: held-out items in the list, weighted more near its top; 1 is the best possible list",
            1,
            True,
        ),
        MetricEntry("HR", "share of users with at least one held-out item in the list", 1, True),
        MetricEntry("Precision", "share of the list that was held out", 1, True),
        MetricEntry("Recall", "share of the held-out items that are in the list", 1, True),
        MetricEntry("F1", "harmonic mean of precision and recall", 1, True),
        MetricEntry("MAP", "precision at each held-out item found, averaged over all held-out items", 1, True),
        MetricEntry("MRR", "one over the position of the first held-out item; 0 if none is in the list", 1, True),
        MetricEntry("AUC", "share of other candidates that a held-out item is ranked above; 0.5 is chance", 1, True),
        *(
            MetricEntry(f"{kind}{name}", f"{name} of held-out items without a training row, {among}", 1, True)
            for kind, among in (("Cold", "ranked among all items"), ("ColdAlone", "ranked among such items alone"))
            for name in ("Recall", "NDCG", "HR")
        ),
        MetricEntry("ItemCoverage", "number of different items over all lists", 1, False),
        MetricEntry("ItemCoverageRatio", "ItemCoverage as a share of the catalogue", 1, False),
        MetricEntry(
            "Gini",
            "1 − Gini index: 1 if all items are recommended equally often, 0 if only one item is recommended",
            1,
            False,
        ),
        MetricEntry(
            "ShannonEntropy", "entropy of the recommended items, in nats; 0 if only one item is recommended", 1, False
        ),
        MetricEntry("ACLT", "mean number of long-tail items in a list", 1, False),
        MetricEntry("PopREO", "difference in recall between popular and long-tail items; 0 is equal", -1, False),
        MetricEntry(
            "PopRSP", "difference in recommendation rate between popular and long-tail items; 0 is equal", -1, False
        ),
    )
}

MAIN = (
    *("NDCG", "HR", "Precision", "Recall", "MRR", "ColdRecall", "ColdAloneRecall"),
    *("ItemCoverage", "Gini", "ACLT", "PopREO", "PopRSP"),
)


def metric_entry(metric: str) -> MetricEntry | None:
    """Return what is known about a metric such as `NDCG@10`; None for one that a plug-in brought."""
    return MEASURES.get(metric.partition("@")[0])


def main_metrics(measured: Iterable[str], primary: str) -> list[str]:
    """Return the metrics that a table shows: the one that decides, then the usual ones at its list length.

    >>> main_metrics(["HR@10", "HR@20", "Recall@10", "Gini@10", "F1@10"], "Recall@10")
    ['Recall@10', 'HR@10', 'Gini@10']
    """
    known = set(measured)
    cut = primary.partition("@")[2] or _longest_cut(known)
    usual = [f"{name}@{cut}" for name in MAIN]
    return [primary, *(name for name in usual if name in known and name != primary)]


def _longest_cut(measured: set[str]) -> str:
    cuts = [name.partition("@")[2] for name in measured]
    return max((cut for cut in cuts if cut.isdigit()), key=int, default="10")
