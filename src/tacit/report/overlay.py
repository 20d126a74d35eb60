"""Figures of the overlay of a gossip run: in-degree, clustering, components, dead links."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.report.canvas import new_figure
from tacit.report.comparison import ComparisonResult
from tacit.report.labels import name_ends
from tacit.report.marks import line_styles

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURES = {
    "in_degree_max": "largest in-degree",
    "clustering": "clustering coefficient",
    "components": "components",
    "dead_links": "dead links",
}
SHARES = {"clustering": 0.01, "dead_links": 0.01}  # in per cent, at least so high an axis


def overlay(compared: ComparisonResult) -> Figure | None:
    """Draw each measure over the rounds, for those methods that gossip; nothing if none does."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    rows = [row for row in compared.rows if row.runs[0].result.get("overlay")]
    if not rows:
        return None
    style = line_styles([row.label for row in compared.rows])
    figure, _ = new_figure(3.6)
    figure.clear()
    axes = figure.subplots(2, 2, sharex=True).ravel().tolist()  # each has a scale of its own
    for one, (measure, label) in zip(axes, MEASURES.items(), strict=True):
        curves = [[(point["round"], point[measure]) for point in row.runs[0].result["overlay"]] for row in rows]
        for row, curve in zip(rows, curves, strict=True):
            style_of = style[row.label]
            one.plot(
                *zip(*curve, strict=True),
                color=style_of.colour,
                linestyle=style_of.dash,
                marker=style_of.marker,
                markersize=3,
            )
        one.set_title(label, fontsize="small")
        one.set_ylim(0, 1.1 * max(SHARES.get(measure, 1.0), *(value for curve in curves for _, value in curve)))
        one.yaxis.set_major_locator(MaxNLocator(4, integer=measure not in SHARES))
        if measure in SHARES:
            one.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.3g} %"))
        if measure == "clustering":  # at the right of the upper row
            at_right, ends = one, [curve[-1] for curve in curves]
    for one in axes[2:]:
        one.set_xlabel("rounds")
    name_ends(figure, at_right, ends, [(row.label, style[row.label].colour) for row in rows])
    return figure
