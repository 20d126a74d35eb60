"""Quality over epsilon: the curve of a comparison whose rows have guarantees of several strengths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.report.canvas import legend_below, new_figure, plain_numbers
from tacit.report.comparison import ComparisonResult, MethodRow
from tacit.report.marks import SOFT, line_styles, shorten_label
from tacit.report.table import reportable_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_LEVELS = 5  # methods without a guarantee that are drawn, the best ones


def epsilon(compared: ComparisonResult) -> Figure | None:
    """Draw what each epsilon costs, one line per method and mode; without two epsilons of one method, nothing."""
    rows = reportable_rows(compared)
    lines = gather_curves(rows, compared.primary)
    if not any(len(points) > 1 for points in lines.values()):
        return None
    figure, (axes,) = new_figure(3.4 + 0.18 * len(lines))
    styles = line_styles(list(lines))
    for name, points in lines.items():
        axes.plot(list(points), list(points.values()), label=shorten_label(name), **styles[name].line)
    exact = [(row.metrics[compared.primary], row.label) for row in rows if row.runs[0].result.get("privacy") is None]
    for level, label in sorted(exact, reverse=True)[:MOST_LEVELS]:
        axes.axhline(level, color=SOFT, linewidth=1, linestyle=(0, (2, 2)))
        text = f"{shorten_label(label)}, no guarantee"
        axes.annotate(text, (0.01, level), (0, 2), ("axes fraction", "data"), "offset points", color=SOFT, fontsize=8)
    axes.set_xscale("log")
    plain_numbers(axes.xaxis)
    ticks = sorted({x for points in lines.values() for x in points})
    axes.set_xticks(ticks, [f"{x:.2g}" for x in ticks])
    axes.set_ylim(0)
    axes.set_xlabel("epsilon against the server (log scale)")
    axes.set_ylabel(compared.primary)
    legend_below(figure)
    return figure


def gather_curves(rows: list[MethodRow], metric: str) -> dict[str, dict[float, float]]:
    """Return, by method and mode, the quality at each epsilon, ascending; of equal epsilons the first row counts."""
    lines: dict[str, dict[float, float]] = {}
    for row in rows:
        found, method = row.runs[0].result.get("privacy"), row.runs[0].experiment.method
        if found is not None:
            points = lines.setdefault(f"{method.called}, {found['mode']}", {})
            points.setdefault(float(found["epsilon_server"]), row.metrics[metric])
    return {name: dict(sorted(points.items())) for name, points in lines.items()}
