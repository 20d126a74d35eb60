"""When order helps: methods by how long a user paused before the item that is asked for, under two splits.

The pause is the time between the newest item of the history and the held-out one. Under leave-last-out most last items
of MovieLens follow within a minute; by the clock, users come back after weeks. Options are fixed. All unseen items are
ranked, and at equal times the smaller item is later.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import DataError
from tacit.report.folder import Run
from tacit.studies.base import StudyResult, reproduction
from tacit.studies.order import SPLITS, recipe
from tacit.studies.setup import StudySetup
from tacit.studies.sheets import PublishedRow, Sheet

DATASETS = ("ml-1m", "ml-100k")
METRIC = "HR@10"
DAY = 86_400
PAUSES: dict[str, float] = {  # name -> the longest, in seconds
    "at most a minute": 60,
    "up to an hour": 3600,
    "up to a week": 7 * DAY,
    "a week to 60 days": 60 * DAY,
    "more than 60 days": np.inf,
}
ROWS: dict[str, dict[str, Any]] = {
    "ease": {"name": "ease", "reg": 1000.0},
    "ease, recency 5": {"name": "ease", "reg": 1000.0, "recency": 5.0},
    "slist": {"name": "slist"},
}


@reproduction("order-pauses", "When order helps", "Next items by the pause before them", DATASETS, recipe, seeds=1)
def pauses_study(setup: StudySetup) -> StudyResult:
    """Methods with and without order, by the pause before the item that is asked for."""
    rows, lines, medians = [], [[name] for name in PAUSES], {}
    for split, changes in SPLITS.items():
        here = setup.vary(changes)
        found = {name: here.runs(f"{name}, {split}", method)[0] for name, method in ROWS.items()}
        pauses = _pauses(here, found["ease"])
        medians[split] = float(np.median(pauses))
        groups = np.searchsorted([*PAUSES.values()], pauses)
        for at, line in enumerate(lines):
            line.append(f"{int((groups == at).sum()):,}")
        for name, run in found.items():
            assert run.evaluation is not None
            hits = run.evaluation.of(METRIC)
            for at, (pause, line) in enumerate(zip(PAUSES, lines, strict=True)):
                own = hits[groups == at]
                line.append(f"{own.mean():.3f}" if len(own) else "–")
                if len(own):
                    rows.append(PublishedRow.of(f"{name}, {split}, {pause}", METRIC, [float(own.mean())]))
    columns = ["pause", *(f"{split}: {text}" for split in SPLITS for text in ("users", *ROWS))]
    notes = [f"Median pause, {split}: {_describe(median)}." for split, median in medians.items()]
    return StudyResult(rows, [Sheet(f"{METRIC} by pause", columns, lines)], {}, notes, {"medians": medians})


def _pauses(setup: StudySetup, run: Run) -> NDArray[np.int64]:
    """Return the seconds between the history and the held-out item of each user who is tested."""
    assert run.evaluation is not None
    truth, seen = (part.take(run.evaluation.rows) for part in setup.parts.test.open())
    if truth.times is None or seen.times is None:
        raise DataError("The data has no times, so that there are no pauses.", "Use data with a column of times.")
    first = np.minimum.reduceat(truth.times, truth.ptr[:-1])
    newest = np.maximum.reduceat(seen.times, seen.ptr[:-1])
    return np.asarray(first - newest, np.int64)


def _describe(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < DAY else f"{seconds / DAY:.0f} days"
