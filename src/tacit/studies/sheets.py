"""Rows of a reproduction, and the tables that users read them in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np


@dataclass(frozen=True)
class PublishedRow:
    """One published number beside ours; None where there is none."""

    method: str
    metric: str
    published: float | None
    ours: float | None
    sd: float | None  # over seeds; None with one seed
    seeds: int
    settings: str = ""  # with which options, chosen on validation
    sampling: Literal["clean", "legacy"] = "clean"

    @classmethod
    def of(
        cls, method: str, metric: str, values: Sequence[float], published: float | None = None, settings: str = ""
    ) -> PublishedRow:
        """Return the row of one value per seed."""
        ours = float(np.mean(values)) if len(values) else None
        sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
        return cls(method, metric, published, ours, sd, len(values), settings)


@dataclass(frozen=True)
class Sheet:
    """A table as users read it."""

    title: str
    columns: Sequence[str]
    lines: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """Return it for a Markdown file."""
        rows = [self.columns, ["---", *["---:"] * (len(self.columns) - 1)], *self.lines]
        return "\n".join([f"### {self.title}", "", *("| " + " | ".join(row) + " |" for row in rows)])


def value_of(rows: Sequence[PublishedRow], method: str, metric: str) -> float:
    """Return our number of a method and metric, NaN where there is none."""
    found = next((row.ours for row in rows if row.method == method and row.metric == metric), None)
    return float("nan") if found is None else found


def side_by_side(title: str, rows: Sequence[PublishedRow]) -> Sheet:
    """Lay rows out: methods down, metrics across, published beside ours, options last."""
    metrics = list(dict.fromkeys(row.metric for row in rows))
    at = {(row.method, row.metric): row for row in rows}
    columns = ["method", *(text for metric in metrics for text in (f"{metric} published", "ours")), "options"]
    lines = []
    for label in dict.fromkeys(row.method for row in rows):
        found = [at[label, metric] for metric in metrics]
        cells = [text for row in found for text in (format_cell(row.published), _spread(row))]
        lines.append([label, *cells, found[0].settings])
    return Sheet(title, columns, lines)


def over_pi(title: str, lines: Mapping[str, Mapping[float, float]]) -> Sheet:
    """Lay out one metric: pi down, configurations across."""
    pis = sorted({pi for by_pi in lines.values() for pi in by_pi})
    return Sheet(
        title, ["pi", *lines], [[f"{pi:g}", *(format_cell(by.get(pi)) for by in lines.values())] for pi in pis]
    )


def format_cell(value: float | None) -> str:
    """Return a number as tables print it: a dash for none, whole from a thousand on.

    >>> format_cell(0.11805), format_cell(1236.0), format_cell(12.5), format_cell(None)
    ('0.1181', '1,236', '12.50', '–')
    """
    if value is None or not np.isfinite(value):
        return "–"
    size = abs(value)
    return f"{value:,.0f}" if size >= 1000 else f"{value:.1f}" if size >= 100 else f"{value:.{2 if size >= 10 else 4}f}"


def _spread(row: PublishedRow) -> str:
    return format_cell(row.ours) + (f" ± {format_cell(row.sd)}" if row.sd is not None else "")
