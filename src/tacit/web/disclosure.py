"""The figure over several runs: accuracy and exposure against pi."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tacit.random import Key
from tacit.report.canvas import keep_layout, new_figure, percent_axis, report_style
from tacit.report.comparison import ComparisonResult, MethodRow
from tacit.report.exposure import measure_exposures
from tacit.report.marks import line_styles

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CAPTION = (
    "Quality and exposure against pi.",
    "Each point is a row of runs with its own pi. Quality is relative to the best of them. If releases were kept "
    "(runtime.ledger=events), the other line is the share of a user's items that a server without secure aggregation "
    "would name with 90 % certainty from everything that was sent.",
)


EVER = 2**31  # rounds: all of them


def draw_disclosure(compared: ComparisonResult) -> Figure | None:
    """Draw quality and the share of items named over pi; none if fewer than two values of pi were run."""
    points = sorted(
        ((pi, row) for row in compared.rows if not row.leaking and (pi := _pi(row)) is not None), key=lambda at: at[0]
    )
    if len({pi for pi, _ in points}) < 2:
        return None
    best = max(row.metrics[compared.primary] for _, row in points)
    named = [(pi, share) for pi, row in points if (share := _share_named(row, pi)) is not None]
    names = [f"quality ({compared.primary})", "items named"]
    style = line_styles(names)
    with report_style():
        figure, (axes,) = new_figure(3.2)
        quality = [row.metrics[compared.primary] / best for _, row in points]
        axes.plot([pi for pi, _ in points], quality, label=names[0], **style[names[0]].line)
        if named:
            axes.plot(*zip(*named, strict=True), label=names[1], **style[names[1]].line)
        axes.set_ylim(0, 1.08)
        percent_axis(axes.yaxis)
        axes.set_xlabel("pi: probability that a positive is sent")
        axes.set_ylabel("share of the best; share of a user's items")
        axes.legend(loc="lower right", fontsize=8, frameon=False)
        keep_layout(figure)
    return figure


def _pi(row: MethodRow) -> float | None:
    """Return the pi of all clients in these runs, if there is one."""
    stated = [getattr(stage, "pi", None) for stage in row.runs[0].experiment.stages]
    numbers = [pi for pi in stated if isinstance(pi, float)]
    return numbers[0] if len(numbers) == 1 else None


def _share_named(row: MethodRow, pi: float) -> float | None:
    """Return the share of users' items that a server would name, if these runs kept their releases."""
    run = row.runs[0]
    if run.events is None or "local_steps" not in run.recommender.model.shared:
        return None
    found = measure_exposures(run, run.recommender.clients, pi, EVER, Key(run.experiment.seed))
    return float(np.mean([one.named / one.items for one in found]))
