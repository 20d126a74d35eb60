"""FPL's tables made again: accuracy, diversity and bias of every method at its best.

Data as in the papers: unique pairs at their latest time, users with at least 20, the newest int(0.2 n) to test (at
equal times the smaller item id first), items that occur in training. Options are chosen on validation (fpl_choices).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tacit.evaluation.lists import CategoryBias, bias_disparity
from tacit.report.folder import Run
from tacit.studies import fpl_figures as draw
from tacit.studies import fpl_published as printed
from tacit.studies.base import StudyResult, reproduction
from tacit.studies.foursquare import to_top_level
from tacit.studies.fpl_choices import CONFIGURATIONS, SHORTENED, Choices, choices
from tacit.studies.fpl_time import estimate_seconds
from tacit.studies.setup import StudySetup
from tacit.studies.sheets import PublishedRow, Sheet, format_cell, side_by_side, value_of
from tacit.types import Labels

DATASETS = ("foursquare-brazil", "foursquare-canada", "foursquare-italy", "ml-1m")
PAPER = "Anelli et al., JIIS 2022"
POPULAR = "most-popular"
RATIO = " / Most Popular"
ONE_SEED = {POPULAR, "user-knn", "item-knn"}  # nothing in them is drawn
ORDER = ("random", POPULAR, "user-knn", "item-knn", "bpr-mf", "fcf")
MOST_CATEGORIES = 12
LOCAL_ONLY_USERS = 25  # users who learn alone for the leak verdict


def recipe(source: str) -> dict[str, Any]:
    """Return data, split and evaluation of the papers; the built-in town is taken as it is."""
    return {
        "data": {"source": source, "min_per_user": 0 if source == "town" else 20},
        "split": {"kind": "temporal", "test": 0.2, "ties": "smaller-item", "catalog": "train"},
        "evaluation": {"k": [10], "primary": "Precision@10"},
    }


@dataclass(frozen=True)
class FPLResult:
    """A method of the tables: its runs, one per seed, and with which options."""

    label: str
    runs: list[Run]
    settings: str = ""

    @property
    def leaks(self) -> bool:
        """True if users who learn alone with it beat Most Popular."""
        return any(run.result["leak"] is not None and run.result["leak"]["ok"] is False for run in self.runs)


@reproduction(
    "fpl-accuracy",
    "Accuracy of FPL",
    f"{PAPER}, table 2; thesis, table 4.2",
    DATASETS,
    recipe,
    estimate=estimate_seconds,
)
def accuracy_study(setup: StudySetup) -> StudyResult:
    """Precision and recall of every method at its best on validation."""
    chosen = choices(setup)
    measured = _all_methods(setup, chosen)
    rows = _rows(measured, printed.ACCURACY, published_rows(setup, printed.TABLE_2))
    ratios = _ratios(rows)
    sheets = [side_by_side("Accuracy at 10", rows), side_by_side("The same as ratios to Most Popular", ratios)]
    is_italy = setup.is_named and setup.name == "foursquare-italy"
    notes = _notes(chosen, measured)
    if is_italy:
        notes.append(
            "The published figures of Italy belong to another split than the documented one (Most Popular alone differs"
            " by 1.7 times): compare ratios to Most Popular."
        )
    shown = [
        row for row in (ratios if is_italy else rows) if row.method != "random"
    ]  # it would press the others together
    return StudyResult([*rows, *ratios], sheets, _beside(shown), notes, chosen.detail())


@reproduction(
    "fpl-diversity",
    "Diversity of FPL",
    f"{PAPER}, table 3; thesis, table 4.3",
    DATASETS,
    recipe,
    estimate=estimate_seconds,
)
def diversity_study(setup: StudySetup) -> StudyResult:
    """Item coverage and Gini of every method at its best on validation."""
    chosen = choices(setup)
    measured = _all_methods(setup, chosen)
    rows = _rows(measured, printed.DIVERSITY, published_rows(setup, printed.TABLE_3))
    return StudyResult(
        rows, [side_by_side("Diversity at 10", rows)], _beside(rows), _notes(chosen, measured), chosen.detail()
    )


@reproduction(
    "fpl-bias",
    "Bias disparity per category",
    f"{PAPER}, tables 5 and 6",
    DATASETS,
    recipe,
    estimate=estimate_seconds,
)
def bias(setup: StudySetup) -> StudyResult:
    """The bias of the training data towards categories, and how far each method's lists move it."""
    chosen = choices(setup)
    categories, notes = _categories(setup)
    if categories is None:
        return StudyResult(
            [], [], {}, [f"'{setup.name}' has no categories: there is nothing to compare."], chosen.detail()
        )
    measured = [method for method in _all_methods(setup, chosen) if method.runs and method.label not in SHORTENED]
    moved = {method.label: [_bias(run, categories) for run in method.runs] for method in measured}
    before = moved[POPULAR][0]
    names = _largest(categories, before.names)
    is_top = tuple(categories.names) == printed.TOP_LEVEL
    print_before = dict(zip(printed.TOP_LEVEL, published_rows(setup, printed.TABLE_5), strict=False)) if is_top else {}
    print_after = published_rows(setup, printed.TABLE_6) if is_top else {}
    rows = []
    for name in names:
        i = before.names.index(name)
        rows.append(PublishedRow.of("training data", f"B_T {name}", [float(before.source[i])], print_before.get(name)))
        for label, found in moved.items():
            printed_after = dict(zip(printed.TOP_LEVEL, print_after.get(label, ()), strict=False))
            values = [float(one.disparity[i]) for one in found]
            rows.append(PublishedRow.of(label, f"BD {name}", values, printed_after.get(name)))
    after = {label: [value_of(rows, label, f"BD {name}") for name in names] for label in moved}
    sheet = Sheet(
        "Bias of the training data (B_T), and how far each method's lists move it (bias disparity)",
        ["", *names],
        [
            *([["B_T published", *(format_cell(print_before.get(name)) for name in names)]] if print_before else []),
            ["B_T ours", *(format_cell(value_of(rows, "training data", f"B_T {name}")) for name in names)],
            *([label, *map(format_cell, values)] for label, values in after.items()),
            *([f"{label} published", *map(format_cell, values)] for label, values in print_after.items()),
        ],
    )
    return StudyResult(
        rows, [sheet], {"bias": draw.draw_by_category(names, after)}, [*notes, *chosen.notes()], chosen.detail()
    )


def published_rows(setup: StudySetup, tables: Mapping[str, Any]) -> Any:
    """Return what is printed for this dataset, nothing for data of one's own."""
    return tables.get(setup.name, {}) if setup.is_named else {}


def _all_methods(setup: StudySetup, chosen: Choices) -> list[FPLResult]:
    plain = {name: {"name": name} for name in ("random", POPULAR)} | chosen.baselines
    made = []
    for name in (name for name in ORDER if name in plain):
        given = {key: value for key, value in plain[name].items() if key != "name" and value is not None}
        options = " ".join(f"{key}={value}" for key, value in given.items())
        seeds = 1 if name in ONE_SEED else None
        made.append(
            FPLResult(name, setup.runs(name, plain[name], seeds=seeds, local_only_users=LOCAL_ONLY_USERS), options)
        )
    for name in (*CONFIGURATIONS, *SHORTENED):
        choice = chosen.fpl[name]
        made.append(
            FPLResult(name, setup.runs(name, choice.method(), local_only_users=LOCAL_ONLY_USERS), choice.describe())
        )
    return made


def _rows(
    measured: Sequence[FPLResult], metrics: Sequence[str], known: Mapping[str, Sequence[float | None]]
) -> list[PublishedRow]:
    return [
        PublishedRow.of(
            method.label,
            metric,
            [] if method.leaks else [run.metrics[metric] for run in method.runs],
            known[method.label][at] if method.label in known else None,
            method.settings,
        )
        for method in measured
        for at, metric in enumerate(metrics)
    ]


def _ratios(rows: Sequence[PublishedRow]) -> list[PublishedRow]:
    """Return every number divided by Most Popular's, published by published and ours by ours."""
    base = {row.metric: row for row in rows if row.method == POPULAR}

    def over(value: float | None, by: float | None) -> float | None:
        return None if value is None or not by else value / by

    return [
        replace(
            row,
            metric=row.metric + RATIO,
            published=over(row.published, base[row.metric].published),
            ours=over(row.ours, base[row.metric].ours),
            sd=over(row.sd, base[row.metric].ours),
        )
        for row in rows
    ]


def _beside(rows: Sequence[PublishedRow]) -> dict[str, Any]:
    metrics = dict.fromkeys(row.metric for row in rows)
    panels = {metric: [(row.published, row.ours) for row in rows if row.metric == metric] for metric in metrics}
    return {"beside": draw.draw_beside(list(dict.fromkeys(row.method for row in rows)), panels)}


def _notes(chosen: Choices, measured: Sequence[FPLResult]) -> list[str]:
    leaking = [method.label for method in measured if method.leaks]
    verdict = (
        f"users who learn alone know what was held out: {', '.join(leaking)} (not reported)" if leaking else "no leak"
    )
    return [
        *chosen.notes(),
        "An epoch of sFPL+ and pFPL+ in the papers trains T = R+/|U| times as long as the text says (table 4 shows it),"
        " so these two go on while validation improves; '(50 passes)' is the text's reading.",
        f"Leak test with at most {LOCAL_ONLY_USERS} local-only models of each method: {verdict}.",
        "The papers' VAE is not run here.",
    ]


def _categories(setup: StudySetup) -> tuple[Labels | None, list[str]]:
    own = setup.parts.catalog.categories
    if own is None or not setup.name.startswith("foursquare"):
        return own, [f"Categories are those of the catalogue; {MOST_CATEGORIES} of the largest are shown."]
    return to_top_level(own), [
        "The files name fine categories only: the papers' nine were put together by hand (studies/foursquare.py)."
    ]


def _largest(categories: Labels, names: Sequence[str]) -> list[str]:
    size = dict(zip(categories.names, np.bincount(categories.ids, minlength=len(categories.names)), strict=True))
    kept = sorted(names, key=lambda name: -size[name])[:MOST_CATEGORIES]
    return [name for name in names if name in kept]


def _bias(run: Run, categories: Labels) -> CategoryBias:
    return bias_disparity(run.items["recommended"].to_numpy(), run.items["train_count"].to_numpy(), categories)
