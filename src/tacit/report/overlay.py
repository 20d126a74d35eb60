"""The network behind a gossip run, drawn: how evenly nodes are known, how cliquish they are, and dead links."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.report.canvas import sheet
from tacit.report.compared import Compared
from tacit.report.labels import name_ends
from tacit.report.marks import looks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURES = {
    "in_degree_max": "letters of the busiest",
    "clustering": "cliquishness",
    "dead_links": "dead links",
}


def overlay(compared: Compared) -> Figure | None:
    """Draw each measure over the rounds, for those methods that gossip; nothing if none does."""
    rows = [row for row in compared.rows if row.runs[0].result.get("overlay")]
    if not rows:
        return None
    style = looks([row.label for row in compared.rows])
    figure, _ = sheet(2.8)
    figure.clear()
    axes = list(figure.subplots(1, len(MEASURES)))  # each has a scale of its own
    ends: list[tuple[float, float]] = []
    for one, (measure, label) in zip(axes, MEASURES.items(), strict=True):
        ends = []
        for row in rows:
            seen = row.runs[0].result["overlay"]
            rounds, values = [point["round"] for point in seen], [point[measure] for point in seen]
            look = style[row.label]
            one.plot(rounds, values, color=look.colour, linestyle=look.dash, marker=look.marker, markersize=3)
            ends.append((float(rounds[-1]), float(values[-1])))
        one.set_ylim(bottom=0, top=max(one.get_ylim()[1], 1e-3))
        one.set_xlabel("rounds")
        one.set_title(label, fontsize="small")
    name_ends(figure, axes[-1], ends, [(row.label, style[row.label].colour) for row in rows])
    return figure
