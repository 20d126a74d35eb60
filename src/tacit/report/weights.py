"""The weights of clients in rounds, and their criteria: tables and figures from `weights.parquet`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tacit.report.canvas import new_figure, report_style
from tacit.report.comparison import ComparisonResult, MethodRow
from tacit.report.marks import COLOURS, SOFT, shorten_label

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURED = " measured"
MOST_DRAWN = 400
MOST_ROUNDS = 8  # of the table over rounds: the first, the last, and some between
LEVELS = (0.0, 0.1, 0.5, 0.9, 1.0)  # of the users of a round, from the lightest to the heaviest
Lines = tuple[list[str], list[list[str]]]


def criteria_of(weights: pl.DataFrame) -> list[str]:
    """Return the criteria that weights were made of, in order of priority."""
    return [column.removesuffix(MEASURED) for column in weights.columns if column.endswith(MEASURED)]


def explain_weights(weights: pl.DataFrame, number: int | None = None, most: int = 5, *, named: bool = True) -> Lines:
    """Return columns and lines of a table: the heaviest and the lightest of a round, the last one if none is named.

    Each line says what a user measured, which share of the round's sum that is (or how it stands to the mean, 50 % for
    the average), and the client's weight. If all counted the same, each weight would be 1. Without names users are
    called by their places.
    """
    rows = _round(weights, number).with_row_index("place", 1)
    shown = rows if rows.height <= 2 * most else pl.concat([rows.head(most), rows.tail(most)])
    names = criteria_of(weights)
    kind = "of all" if all(_is_shared(rows[name]) for name in names) else "to the mean"
    columns = ["client" if named else "place", *(text for name in names for text in (name, kind)), "score", "counts"]
    lines = [
        [
            str(row["user"]) if named else f"{row['place']} of {rows.height}",
            *(text for name in names for text in (f"{row[name + MEASURED]:.4g}", f"{row[name]:.2%}")),
            f"{row['score']:.4g}",
            f"{row['factor']:.2f} times",
        ]
        for row in shown.iter_rows(named=True)
    ]
    return columns, lines


def over_rounds(weights: pl.DataFrame, most: int = MOST_ROUNDS) -> Lines:
    """Return columns and lines of a table: how unequally users counted in some rounds, and what the weight went by.

    A criterion decides as far as weights follow it: its correlation with them over the users of the round.
    """
    every, names = weights["round"].unique().sort().to_numpy(), criteria_of(weights)
    chosen = every[np.unique(np.linspace(0, len(every) - 1, min(most, len(every))).round().astype(int))]
    columns = ["round", "clients", "heaviest", "median", "lightest", "held by a tenth"]
    lines = []
    for number in chosen:
        rows = _round(weights, int(number))
        factor = rows["factor"].to_numpy()
        tenth = factor[: max(1, len(factor) // 10)].sum() / factor.sum()
        cells = [f"{factor[0]:.2f}", f"{np.median(factor):.2f}", f"{factor[-1]:.2f}", f"{tenth:.0%}"]
        lines.append([str(number + 1), str(rows.height), *cells, *(_follows(rows[name], factor) for name in names)])
    return [*columns, *(f"by {name}" for name in names)], lines


def _follows(criterion: pl.Series, factor: np.ndarray) -> str:
    values = criterion.to_numpy()
    if np.ptp(values) <= 1e-12 * abs(values).max(initial=0.0) or np.ptp(factor) <= 1e-12:
        return "alike"
    return f"{np.corrcoef(values, factor)[0, 1]:.2f}"


def draw_weights(weights: pl.DataFrame, number: int | None = None, whose: str = "") -> Figure:
    """Draw how much each client counts in a round, heaviest first, cut into what each criterion adds to it."""
    rows, names = _round(weights, number), criteria_of(weights)
    parts, score = _parts(rows.select(names).to_numpy().T, rows["score"].to_numpy()), rows["score"].replace(0.0, None)
    parts *= (rows["factor"] / score).fill_null(0.0).to_numpy()
    with report_style():
        figure, (axes,) = new_figure(3.2)
        shown = np.unique(np.linspace(0, rows.height - 1, MOST_DRAWN).astype(int))  # more cannot be distinguished
        edges, bottom = np.append(shown, rows.height) + 0.5, np.zeros(len(shown))
        fills = [(name if at == 0 else f"and {name}", COLOURS[at % len(COLOURS)]) for at, name in enumerate(names)]
        rest = rows["factor"].to_numpy() - parts.sum(axis=0)
        if rest.max() > 1e-6:  # no client meets any criterion
            parts, fills = np.vstack([parts, rest]), [*fills, ("alike", SOFT)]
        for part, (label, colour) in zip(parts[:, shown], fills, strict=True):
            low, high = (np.append(level, level[-1]) for level in (bottom, bottom + part))
            axes.fill_between(
                edges, low, high, step="post", color=colour, linewidth=0.3, label=label
            )  # one shape, not n
            bottom += part
        axes.axhline(1.0, color=SOFT, linewidth=1, linestyle=(0, (2, 2)))
        of = f"{shorten_label(whose)}: users" if whose else "users"
        axes.set_xlabel(f"{of} of round {rows['round'][0] + 1}, heaviest first")
        axes.set_ylabel("counts so many times")
        axes.legend(loc="upper right")
        return figure


def _parts(values: np.ndarray, score: np.ndarray) -> np.ndarray:
    """Return what each criterion adds to the score, [m, C]: products in order of priority, or equal parts of a mean."""
    products = np.cumprod(values, axis=0)
    return products if np.allclose(products.sum(axis=0), score) else values / len(values)


def _is_shared(criterion: pl.Series) -> bool:
    total = float(criterion.to_numpy().sum())
    return abs(total - 1.0) < 1e-6 or total == 0.0


def draw_rounds(weights: pl.DataFrame, whose: str = "") -> Figure:
    """Draw over the rounds how much the heaviest, the lightest and those between count."""
    levels = [pl.col("factor").quantile(level, "linear").alias(str(level)) for level in LEVELS]
    found = weights.group_by("round").agg(levels).sort("round")
    rounds = found["round"].to_numpy() + 1
    lightest, low, half, high, heaviest = (found[str(level)].to_numpy() for level in LEVELS)
    with report_style():
        figure, (axes,) = new_figure(3.2)
        axes.fill_between(rounds, lightest, heaviest, color=COLOURS[0], alpha=0.15, linewidth=0, label="all clients")
        axes.fill_between(rounds, low, high, color=COLOURS[0], alpha=0.35, linewidth=0, label="eight of ten")
        axes.plot(rounds, half, color=COLOURS[0], label="half count less", marker="o" if len(rounds) == 1 else "")
        axes.axhline(1.0, color=SOFT, linewidth=1, linestyle=(0, (2, 2)))
        axes.set_ylim(bottom=0)
        axes.set_xlabel("rounds")
        axes.set_ylabel(f"{shorten_label(whose)}: counts so many times" if whose else "counts so many times")
        axes.legend(loc="best")
        return figure


@dataclass(frozen=True)
class WeightReport:
    """The weights of one method in a report: tables without ids, which stay in the run folder."""

    label: str
    order: list[str]
    scale: str
    last: Lines
    rounds: Lines


def weight_reports(compared: ComparisonResult) -> list[WeightReport]:
    """Return the accounts of all methods whose users counted by criteria, of each method's first run."""
    found = []
    for row, weights in _find_weighed(compared):
        criteria = row.runs[0].experiment.runtime.rounds.criteria
        scale = "share" if criteria is None else criteria.scale
        found.append(
            WeightReport(
                row.label, criteria_of(weights), scale, explain_weights(weights, named=False), over_rounds(weights)
            )
        )
    return found


def weights(compared: ComparisonResult) -> Figure | None:
    """Draw the last round of the first method that weighs users; nothing if none does."""
    return next((draw_weights(found, None, _whose(row, compared)) for row, found in _find_weighed(compared)), None)


def weights_rounds(compared: ComparisonResult) -> Figure | None:
    """Draw all rounds of the first method that weighs users; nothing if none does."""
    return next((draw_rounds(found, _whose(row, compared)) for row, found in _find_weighed(compared)), None)


def _whose(row: MethodRow, compared: ComparisonResult) -> str:
    return row.label if len(compared.rows) > 1 else ""


def _find_weighed(compared: ComparisonResult) -> list[tuple[MethodRow, pl.DataFrame]]:
    each = [(row, row.runs[0].weights) for row in compared.rows if not row.leaking]
    return [(row, found) for row, found in each if found is not None and found.height]


def _round(weights: pl.DataFrame, number: int | None) -> pl.DataFrame:
    chosen = int(weights["round"].max()) if number is None else number  # type: ignore[arg-type]
    return weights.filter(pl.col("round") == chosen).sort("weight", "user", descending=[True, False])
