"""The figures of the FPL papers, drawn in the style of the reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit.report.canvas import keep_layout, new_figure, plain_numbers, report_style
from tacit.report.labels import name_ends, name_points
from tacit.report.marks import GRID, INK, PAPER, SOFT, line_styles
from tacit.studies.fpl_choices import CONFIGURATIONS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Points = Mapping[str, Sequence[tuple[float, float]]]  # configuration -> (x, y), in the order of pi
STYLES = line_styles(CONFIGURATIONS)
_NEVER, _ALWAYS = np.array([0.80, 0.24, 0.16]), np.array([0.0, 0.35, 0.70])  # pi = 0 red, pi = 1 blue


def draw_over_pi(points: Points, label: str, reference: float | None) -> Figure:
    """Draw a metric over pi, one line per configuration; the reference is Most Popular."""
    with report_style():
        figure, (axes,) = new_figure(3.2)
        for name, line in points.items():
            xs, ys = zip(*line, strict=True)
            axes.plot(xs, ys, **STYLES[name].line)
        ends, names = [line[-1] for line in points.values()], [(name, STYLES[name].colour) for name in points]
        if reference is not None:
            axes.axhline(reference, color=SOFT, linewidth=1, linestyle=(0, (2, 2)))
            ends.append((1.0, reference))
            names.append(("Most Popular", SOFT))
        axes.set_xlabel("π: share of positive updates that leave the device")
        axes.set_ylabel(label)
        axes.margins(x=0.02)
        name_ends(figure, axes, ends, names)
        return _settle(figure)


def draw_against(points: Points, x_label: str, y_label: str) -> Figure:
    """Draw one metric against another along growing pi; the white point is pi = 1."""
    with report_style():
        figure, (axes,) = new_figure(3.6)
        for name, line in points.items():
            style_of = STYLES[name]
            xs, ys = zip(*line, strict=True)
            axes.plot(xs, ys, **style_of.line)
            axes.plot(
                xs[-1], ys[-1], style_of.marker, color=PAPER, markeredgecolor=style_of.colour, markersize=7, zorder=5
            )
        _across(axes, [x for line in points.values() for x, _ in line], x_label)
        axes.set_ylabel(y_label)
        axes.margins(0.08)
        ends = [line[-1] for line in points.values()]
        xs, ys = zip(*ends, strict=True)
        name_points(figure, axes, xs, ys, [(name, STYLES[name].colour) for name in points])
        return _settle(figure)


def draw_cost(points: Mapping[str, tuple[float, float]]) -> Figure:
    """Draw precision against the total communication cost, one point per configuration: top left is best."""
    with report_style():
        figure, (axes,) = new_figure(3.2)
        for name, (x, y) in points.items():
            style_of = STYLES[name]
            axes.plot(x, y, style_of.marker, color=style_of.colour, markersize=9, markeredgecolor=PAPER, clip_on=False)
        xs, ys = zip(*points.values(), strict=True)
        axes.margins(0.15)
        _across(axes, xs, "TCC: millions of vectors sent and received")
        axes.set_ylabel("Precision@10")
        name_points(figure, axes, xs, ys, [(name, STYLES[name].colour) for name in points])
        return _settle(figure)


def draw_beside(methods: Sequence[str], panels: Mapping[str, Sequence[tuple[float | None, float | None]]]) -> Figure:
    """Draw published (hollow) and ours (filled) for every method, one panel per metric."""
    with report_style():
        figure, columns = new_figure(0.9 + 0.27 * len(methods), columns=len(panels))
        for axes, (metric, pairs) in zip(columns, panels.items(), strict=True):
            for y, (published, ours) in enumerate(pairs):
                known = [value for value in (published, ours) if value is not None]
                axes.plot(known, [y] * len(known), color=GRID, linewidth=3, zorder=1, solid_capstyle="round")
                if published is not None:
                    axes.plot(published, y, "o", color=PAPER, markeredgecolor=INK, markersize=6, zorder=2)
                if ours is not None:
                    axes.plot(ours, y, "o", color=STYLES["sFPL"].colour, markeredgecolor=PAPER, markersize=7, zorder=3)
            values = [value for pair in pairs for value in pair if value]
            if values and max(values) > 30 * min(values):
                axes.set_xscale("log")
                plain_numbers(axes.xaxis)
            axes.set_xlabel(metric.replace(" / ", "\n/ "))
            axes.grid(visible=False, axis="y")
            axes.tick_params(axis="y", length=0)
        first = columns[0]
        first.set_yticks(range(len(methods)), list(methods))
        first.set_ylim(len(methods) - 0.4, -0.6)
        if any(published is not None for pairs in panels.values() for published, _ in pairs):
            figure.legend(handles=_legend_of_both(), loc="outside lower center", ncols=2)
        return _settle(figure)


def draw_by_rank(
    panels: Mapping[str, Mapping[float, NDArray[np.float64]]], n: int, label: str, items: NDArray[np.float64] | None
) -> Figure:
    """Draw shares of items, the largest first, one line per pi from red (0) to blue (1); dashed: the training data."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    with report_style():
        figure, columns = new_figure(3.1, columns=len(panels))
        colours = LinearSegmentedColormap.from_list("pi", [_NEVER.tolist(), _ALWAYS.tolist()])
        for axes, (name, lines) in zip(columns, panels.items(), strict=True):
            for pi, shares in lines.items():
                top = np.sort(shares)[::-1][:n]
                axes.plot(np.arange(1, len(top) + 1), top, color=colours(pi), linewidth=1.2)
            if items is not None:
                top = np.sort(items)[::-1][:n]
                axes.plot(np.arange(1, len(top) + 1), top, color=INK, linewidth=1.4, linestyle=(0, (4, 2)))
            axes.set_xscale("log")
            axes.set_yscale("log")
            plain_numbers(axes.xaxis)
            plain_numbers(axes.yaxis)
            axes.set_title(name, fontsize=10)
        columns[0].set_ylabel(label)
        figure.supxlabel(f"the {n:,} foremost items (log scale)", fontsize=9.5)
        bar = figure.colorbar(ScalarMappable(Normalize(0, 1), colours), ax=columns, shrink=0.8, aspect=25)
        bar.set_label("π")
        bar.outline.set_visible(False)
        return _settle(figure)


def draw_by_category(names: Sequence[str], lines: Mapping[str, Sequence[float]]) -> Figure:
    """Draw the bias disparity of every category, one mark per method; 0 is the bias users had before."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    with report_style():
        figure, (axes,) = new_figure(1.3 + 0.33 * len(names))
        marks = line_styles(list(lines))
        for place, (method, values) in enumerate(lines.items()):
            offset = (place - (len(lines) - 1) / 2) * 0.55 / max(len(lines) - 1, 1)
            style_of = marks[method]
            axes.plot(
                values,
                np.arange(len(names)) + offset,
                style_of.marker,
                color=style_of.colour,
                markersize=5.5,
                markeredgecolor=PAPER,
                label=method,
            )
        axes.axvline(0, color=SOFT, linewidth=1)
        axes.set_xscale("symlog", linthresh=1)
        most = max(2.0, *(value for values in lines.values() for value in values))
        axes.set_xticks([-1, -0.5, 0, 0.5, 1, *(tick for tick in (2, 5, 10, 20, 50, 100) if tick <= 1.5 * most)])
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_yticks(range(len(names)), list(names))
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("bias disparity (0: as in the histories)")
        figure.legend(loc="outside lower center", ncols=4)
        return _settle(figure)


def _across(axes: Axes, values: Sequence[float], label: str) -> None:
    """Label the x axis; numbers that span a decade stand on a log scale."""
    if max(values) < 10 * min(values):
        axes.set_xlabel(label)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        return
    axes.set_xscale("log")
    plain_numbers(axes.xaxis)
    axes.set_xlabel(f"{label} (log scale)")


def _legend_of_both() -> list[Any]:
    from matplotlib.lines import Line2D

    hollow: dict[str, Any] = {"color": PAPER, "markeredgecolor": INK, "linestyle": "none"}
    filled: dict[str, Any] = {"color": STYLES["sFPL"].colour, "markeredgecolor": PAPER, "linestyle": "none"}
    return [Line2D([], [], marker="o", label="published", **hollow), Line2D([], [], marker="o", label="ours", **filled)]


def _settle(figure: Figure) -> Figure:
    keep_layout(figure)
    return figure
