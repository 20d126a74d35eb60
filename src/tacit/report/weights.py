"""Who counted how much in a round, and why: a table and a figure from `weights.parquet`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tacit.report.canvas import sheet, styled
from tacit.report.marks import COLOURS, SOFT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURED = " measured"


def criteria_of(weights: pl.DataFrame) -> list[str]:
    """Return the criteria that weights were made of, in order of priority."""
    return [column.removesuffix(MEASURED) for column in weights.columns if column.endswith(MEASURED)]


def explained(weights: pl.DataFrame, number: int | None = None, most: int = 5) -> tuple[list[str], list[list[str]]]:
    """Return columns and lines of a table: the heaviest and the lightest of a round, the last one if none is named.

    Each line says what a person measured, which share of the round's sum that is, and what her weight came to: 1 is
    what everybody would have if all counted alike.
    """
    rows = _round(weights, number)
    shown = rows if rows.height <= 2 * most else pl.concat([rows.head(most), rows.tail(most)])
    names = criteria_of(weights)
    columns = ["person", *(text for name in names for text in (name, "of all")), "score", "counts"]
    lines = [
        [
            str(row["user"]),
            *(text for name in names for text in (f"{row[name + MEASURED]:.4g}", f"{row[name]:.2%}")),
            f"{row['score']:.4g}",
            f"{row['factor']:.2f} times",
        ]
        for row in shown.iter_rows(named=True)
    ]
    return columns, lines


def draw_weights(weights: pl.DataFrame, number: int | None = None) -> Figure:
    """Draw how much everybody counts in a round, heaviest first, cut into what each criterion adds to it."""
    rows, names = _round(weights, number), criteria_of(weights)
    values = rows.select(names).to_numpy().T  # [m, C]
    parts = np.cumprod(values, axis=0) * (rows["factor"] / rows["score"].replace(0.0, None)).fill_null(0.0).to_numpy()
    with styled():
        figure, (axes,) = sheet(3.2)
        bottom = np.zeros(rows.height)
        for at, (name, part) in enumerate(zip(names, parts, strict=True)):
            label = name if at == 0 else f"and {name}"
            axes.bar(np.arange(rows.height), part, 1.0, bottom, color=COLOURS[at % len(COLOURS)], label=label)
            bottom += part
        axes.axhline(1.0, color=SOFT, linewidth=1, linestyle=(0, (2, 2)))
        axes.set_xlabel(f"people of round {rows['round'][0] + 1}, heaviest first")
        axes.set_ylabel("counts so many times")
        axes.legend(loc="upper right")
        return figure


def _round(weights: pl.DataFrame, number: int | None) -> pl.DataFrame:
    chosen = int(weights["round"].max()) if number is None else number  # type: ignore[arg-type]
    return weights.filter(pl.col("round") == chosen).sort("weight", "user", descending=[True, False])
