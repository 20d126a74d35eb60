"""The figures of the FedNCF paper, drawn in the style of the reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tacit.report.canvas import keep_layout, new_figure, percent_axis, plain_numbers, report_style
from tacit.report.labels import name_ends
from tacit.report.marks import line_styles

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Line = Sequence[tuple[float, float]]


def curves(lines: Mapping[str, Line], label: str) -> Figure:
    """Draw a metric over passes, one line each."""
    return _lines(lines, "passes over all users", label)


def over_shares(lines: Mapping[str, Line]) -> Figure:
    """Draw what is reached by shares of the users."""
    return _lines(lines, "users who take part", "HR@10", shares=True)


def over_instances(lines: Mapping[str, Line]) -> Figure:
    """Draw seconds of a device's round over the length of its history, both on log scales."""
    return _lines(lines, "observations of a device (log scale)", "seconds of a round (log scale)", logarithmic=True)


def _lines(
    lines: Mapping[str, Line], x_label: str, y_label: str, *, shares: bool = False, logarithmic: bool = False
) -> Figure:
    with report_style():
        figure, (axes,) = new_figure(3.2)
        marks = line_styles(list(lines))
        for name, line in lines.items():
            axes.plot(*zip(*line, strict=True), **marks[name].line)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.margins(x=0.02)
        if shares:
            percent_axis(axes.xaxis)
        if logarithmic:
            axes.set_xscale("log")
            axes.set_yscale("log")
            plain_numbers(axes.xaxis)
            plain_numbers(axes.yaxis)
        name_ends(figure, axes, [line[-1] for line in lines.values()], [(name, marks[name].colour) for name in lines])
        keep_layout(figure)
        return figure
