"""The figures of a comparison, drawn without a display: `draw` makes them, `save_figures` writes PNG and SVG.

Leaking runs appear by name only. A figure that would say nothing (a trade-off of one method, curves of methods that
learn in one step) is left out.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.evaluation.lists import short_head
from tacit.report.canvas import keep_layout, new_figure, percent_axis, plain_numbers, report_style
from tacit.report.comparison import ComparisonResult, MethodRow
from tacit.report.epsilon_curve import epsilon
from tacit.report.folder import Run
from tacit.report.labels import BESIDE, legend, legend_height, name_ends, name_lines, name_points
from tacit.report.marks import ALARM, GRID, INK, PAPER, SOFT, line_styles, shorten_label
from tacit.report.overlay import overlay
from tacit.report.table import NOT_REPORTED, decimals, format_number, reportable_rows
from tacit.report.weights import weights, weights_rounds

if TYPE_CHECKING:  # matplotlib takes most of a second to import: only those who draw wait for it
    from matplotlib.figure import Figure

SHORTEST = 1e-3  # seconds: what is faster is drawn as this
MOST_POINTS = 200  # of a line: more cannot be seen
CAPTIONS = {
    "results": (
        "Who is best.",
        "A dot is the mean over users, the bar its 95 % confidence interval; of several seeds each has a small tick. "
        "Bars may overlap although two methods differ: the tests in the table compare them user by user.",
    ),
    "curves": (
        "How they learnt.",
        "Quality on the validation part at each checkpoint; the marker is the pass that was kept. The test part had "
        "no role in it.",
    ),
    "coverage": (
        "Accuracy against variety.",
        "Up: better lists. Right: more of the catalogue is shown to any user. A method is worth a try if no other "
        "is both above it and to its right.",
    ),
    "people": (
        "Whom it serves.",
        "Share of users whose lists score at most the value on the axis. Lower and further right is better; where a "
        "curve starts on the left is the share of users who got nothing.",
    ),
    "tail": (
        "How popular the recommendations are.",
        "Items from the most to the least popular in training, and the share of all places in lists that they take "
        "together. Above the thick line: more of the same popular items than users chose themselves. Below it: "
        "further into the long tail.",
    ),
    "cost": (
        "What it took.",
        "Learning time (each mark is ten times the one before) and peak memory of the process, data included.",
    ),
    "epsilon": (
        "What a guarantee costs.",
        "Quality over epsilon: further left, less can be learnt of any one client. Dotted lines have no guarantee. "
        "Quality is read without noise here, and choosing an epsilon by it is not accounted.",
    ),
    "weights": (
        "Who counted how much, and why.",
        "Everybody whom the last round asked, heaviest first: 1 is what each would count if all were alike. Colours "
        "cut a weight into what each criterion adds to it, the most important at the bottom.",
    ),
    "weights_rounds": (
        "How unequally users counted.",
        "From the lightest to the heaviest of each round; the darker band holds eight users of ten.",
    ),
    "overlay": (
        "Who talked to whom.",
        "The graph of the peers' views: how many models the busiest peer receives in a round, how many of a peer's "
        "neighbours know each other, how many parts the network has, and how many links lead to absent peers.",
    ),
}


def draw(compared: ComparisonResult) -> dict[str, Figure]:
    """Draw the comparison by name: results, curves, coverage, users, tail, cost, epsilon, weights, overlay."""
    drawers = (_results, _curves, _coverage, _people, _tail, _cost, epsilon, weights, weights_rounds, overlay)
    with report_style():
        drawn = {drawer.__name__.removeprefix("_"): drawer(compared) for drawer in drawers}
        figures = {name: figure for name, figure in drawn.items() if figure is not None}
        for figure in figures.values():
            keep_layout(figure)
    return figures


def save_figures(figures: Mapping[str, Figure], folder: Path) -> list[Path]:
    """Write every figure as PNG (200 dpi) and SVG under `folder`/figures; return the paths."""
    target = folder / "figures"
    target.mkdir(parents=True, exist_ok=True)
    paths = []
    with report_style():
        for name, figure in figures.items():
            figure.savefig(target / f"{name}.png", dpi=200, metadata={"Software": None})
            figure.savefig(target / f"{name}.svg", metadata=_NO_METADATA)
            paths += [target / f"{name}.png", target / f"{name}.svg"]
    return paths


def inline_svg(name: str, figure: Figure, description: str) -> str:
    """Return a figure to stand inside a page: ids of its own, the page's ink and paper, nothing to fetch.

    `description` must be escaped already; it is what a screen reader says.
    """
    out = io.StringIO()
    with report_style():
        figure.savefig(out, format="svg", metadata=_NO_METADATA)
    svg = out.getvalue()
    svg = re.sub(r"<!--.*?-->", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'\s+xmlns(?::\w+)?="[^"]*"', "", svg).replace("xlink:href=", "href=")
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    for colour, variable in ((INK, "ink"), (SOFT, "soft"), (GRID, "grid"), (PAPER, "card"), (ALARM, "alarm")):
        svg = svg.replace(colour, f"var(--{variable})")
    width, height = (72 * inches for inches in figure.get_size_inches())
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' style="([^"]*)"', _attributes, svg)
    joins = 'stroke-linejoin="round" stroke-linecap="butt"'
    head = f'<svg role="img" aria-label="{description}" viewBox="0 0 {width:g} {height:g}" {joins}>'
    return re.sub(r"\s*\n\s*", "\n", re.sub(r"<svg[^>]*>", lambda _: head, svg, count=1)).strip()


def _attributes(style: re.Match[str]) -> str:
    """Turn declarations into attributes, which the strictest policy of a page allows."""
    declared = (part.partition(":") for part in style[1].split(";") if part.strip())
    return "".join(f' {name.strip()}="{value.strip()}"' for name, _, value in declared)


_NO_METADATA: dict[str, Any] = dict.fromkeys(("Date", "Creator", "Format", "Type"))


def _rank(compared: ComparisonResult) -> list[MethodRow]:
    """Best first, as in the table."""
    return sorted(reportable_rows(compared), key=lambda row: -row.metrics[compared.primary])


def _styles(compared: ComparisonResult) -> dict[str, Any]:
    return line_styles([row.label for row in compared.rows])


def _results(compared: ComparisonResult) -> Figure:
    """One dot and interval per method."""
    rows, style, primary = _rank(compared), _styles(compared), compared.primary
    leaking = [row for row in compared.rows if row.leaking]
    names = [*rows, *leaking]
    figure, (axes,) = new_figure(0.95 + 0.3 * len(names))
    values = [row.metrics[primary] for row in rows]
    places = decimals(values)
    for y, row in enumerate(rows):
        low, high = row.ci.get(primary, (values[y], values[y]))
        style_of = style[row.label]
        axes.hlines(y, low, high, color=style_of.colour, linewidth=2.2)
        if len(row.runs) > 1:
            axes.plot([run.metrics[primary] for run in row.runs], [y] * len(row.runs), "|", color=INK, markersize=7)
        axes.plot(values[y], y, style_of.marker, color=style_of.colour, markersize=7.5, markeredgecolor=PAPER)
        axes.annotate(format_number(values[y], places), (1.02, y), xycoords=axes.get_yaxis_transform(), va="center")
    for y in range(len(rows), len(names)):
        where: dict[str, Any] = {
            "xycoords": axes.get_yaxis_transform(),
            "va": "center",
            "color": ALARM,
            "style": "italic",
        }
        axes.annotate(NOT_REPORTED, (0.02, y), **where)
    name_lines(axes, names)
    axes.set_xlabel(f"{primary}, mean over users and 95 % interval")
    if not rows:
        axes.set_xticks([])
    axes.locator_params(axis="x", nbins=6)
    return figure


def _curves(compared: ComparisonResult) -> Figure | None:
    """Validation over passes, the kept pass marked; names at the end of the lines."""
    primary, style = compared.primary, _styles(compared)
    rows = [row for row in reportable_rows(compared) if any(_has_curve(run.curve.columns, primary) for run in row.runs)]
    if not rows:
        return None
    figure, (axes,) = new_figure(3.2)
    ends: dict[str, tuple[float, float]] = {}
    for row in rows:
        style_of = style[row.label]
        for run in row.runs:
            if not _has_curve(run.curve.columns, primary):
                continue
            passes, values = run.curve["pass"].to_numpy(), run.curve[primary].to_numpy()
            axes.plot(passes, values, color=style_of.colour, linestyle=style_of.dash, linewidth=1.5)
            kept = np.flatnonzero(passes == run.result["passes"])
            axes.plot(
                passes[kept],
                values[kept],
                style_of.marker,
                color=style_of.colour,
                markeredgecolor=PAPER,
                markersize=7.5,
            )
            ends[row.label] = max(ends.get(row.label, (0.0, 0.0)), (float(passes[-1]), float(values[-1])))
    longest = [end for end, _ in ends.values()]
    if max(longest) > 15 * min(longest):
        axes.set_xscale("log")
        plain_numbers(axes.xaxis)
    axes.set_xlabel("passes over the data")
    axes.set_ylabel(f"{primary} on validation")
    axes.margins(x=0.02)
    name_ends(figure, axes, [ends[row.label] for row in rows], [(row.label, style[row.label].colour) for row in rows])
    return figure


def _has_curve(columns: Sequence[str], primary: str) -> bool:
    return "pass" in columns and primary in columns


def _coverage(compared: ComparisonResult) -> Figure | None:
    """Accuracy against how much of the catalogue is shown to any user."""
    rows, style, primary = _rank(compared), _styles(compared), compared.primary
    beyond = next((name for name in _beyond(primary, rows) if all(name in row.metrics for row in rows)), None)
    if beyond is None or len(rows) < 2:
        return None
    figure, (axes,) = new_figure(3.4)
    xs, ys = [row.metrics[beyond] for row in rows], [row.metrics[primary] for row in rows]
    if min(xs) > 0 and max(xs) > 20 * min(xs):
        axes.set_xscale("log")
        plain_numbers(axes.xaxis)
    for row, x, y in zip(rows, xs, ys, strict=True):
        style_of = style[row.label]
        axes.plot(x, y, style_of.marker, color=style_of.colour, markersize=8, markeredgecolor=PAPER, clip_on=False)
    axes.margins(0.12)
    axes.set_xlabel(f"{beyond} (more of the catalogue →)")
    axes.set_ylabel(primary)
    name_points(figure, axes, xs, ys, [(row.label, style[row.label].colour) for row in rows])
    return figure


def _beyond(primary: str, rows: Sequence[MethodRow]) -> list[str]:
    """What accuracy is set against: coverage or evenness, at the same list length if it was measured there."""
    cut = primary.partition("@")[2]
    measured = [name for row in rows[:1] for name in row.metrics]
    wanted = [f"ItemCoverage@{cut}", f"Gini@{cut}"]
    return wanted + [name for name in measured if name.startswith(("ItemCoverage@", "Gini@"))]


def _people(compared: ComparisonResult) -> Figure | None:
    """Share of users at or below each value."""
    rows, style, primary = _rank(compared), _styles(compared), compared.primary
    rows = [row for row in rows if all(primary in run.users.columns for run in row.runs)]
    if not rows:
        return None
    figure, (axes,) = new_figure(3.1 + legend_height(rows))
    for i, row in enumerate(rows):
        values = np.sort(np.concatenate([run.users[primary].to_numpy() for run in row.runs]))
        x = np.unique(np.append(values, 0.0))
        if len(x) > MOST_POINTS:
            x = np.linspace(min(values[0], 0.0), values[-1], MOST_POINTS)
        share = np.searchsorted(values, x, side="right") / len(values)
        axes.plot(
            x,
            share,
            drawstyle="steps-post",
            label=shorten_label(row.label),
            markevery=_sparse(i, len(x)),
            **style[row.label].line,
        )
    axes.set_ylim(0, 1.02)
    percent_axis(axes.yaxis)
    axes.set_xlabel(f"{primary} of a user")
    axes.set_ylabel("users with at most that")
    axes.margins(x=0.02)
    legend(figure, rows)
    return figure


def _tail(compared: ComparisonResult) -> Figure | None:
    """How much of training and of the recommendations falls on the most popular items."""
    rows, style = _rank(compared), _styles(compared)
    if not rows:
        return None
    figure, (axes,) = new_figure(3.1 + legend_height([*rows, None]))
    counts, _ = _count_by_item(rows[0].runs)
    ranks, share = _cumulative(counts, counts)
    axes.plot(ranks, share, color=INK, linewidth=2.6, alpha=0.85, label="training")
    for i, row in enumerate(rows):
        ranks, share = _cumulative(*_count_by_item(row.runs))
        axes.plot(
            ranks, share, label=shorten_label(row.label), markevery=_sparse(i, len(ranks)), **style[row.label].line
        )
    axes.set_xscale("log")
    plain_numbers(axes.xaxis)
    head = max(int(short_head(counts).sum()), 1)
    axes.axvline(head, color=SOFT, linewidth=1, linestyle=(0, (2, 2)))
    axes.annotate("long tail →", (head, 0.02), (4, 0), textcoords="offset points", color=SOFT, fontsize=8.5)
    axes.set_ylim(0, 1.02)
    axes.set_xlim(1, len(counts))
    percent_axis(axes.yaxis)
    axes.set_xlabel("items, the most popular first (log scale)")
    axes.set_ylabel("share of all places so far")
    legend(figure, [None, *rows])
    return figure


def _count_by_item(runs: Sequence[Run]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return how often each item was trained on and recommended; runs of other folds can have other catalogues."""
    tables = pl.concat([run.items.select("item", "train_count", "recommended") for run in runs])
    found = tables.group_by("item", maintain_order=True).sum()
    return found["train_count"].to_numpy(), found["recommended"].to_numpy()


def _cumulative(popularity: NDArray[Any], counts: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    order = np.argsort(-popularity, kind="stable")
    share = np.cumsum(counts[order]) / max(float(counts.sum()), 1.0)
    ranks = np.unique(np.geomspace(1, len(counts), MOST_POINTS).round().astype(np.int64))
    return ranks, share[ranks - 1]


def _cost(compared: ComparisonResult) -> Figure | None:
    """Learning time and memory."""
    rows, style = _rank(compared), _styles(compared)
    if not rows:
        return None
    figure, (time, memory) = new_figure(0.95 + 0.3 * len(rows), columns=2)
    colours = [style[row.label].colour for row in rows]
    seconds = [max(row.mean("train_seconds"), SHORTEST) for row in rows]
    time.barh(range(len(rows)), seconds, color=colours, height=0.62)
    time.set_xscale("log")
    time.set_xlim(min(seconds) / 3, max(seconds) * 12)  # room for the figure at the end of the longest bar
    plain_numbers(time.xaxis)
    time.set_xlabel("learning, seconds (log)")
    megabytes = [row.mean("peak_mb") for row in rows]
    lengths = [value if isfinite(value) else 0.0 for value in megabytes]  # Windows does not say
    memory.barh(range(len(rows)), lengths, color=colours, height=0.62)
    memory.set_xlim(0, max(lengths) * 1.4 or 1)
    memory.set_xlabel("peak memory, MB")
    memory.locator_params(axis="x", nbins=4)
    for axes, values, ends in ((time, seconds, seconds), (memory, megabytes, lengths)):
        for y, (value, end) in enumerate(zip(values, ends, strict=True)):
            axes.annotate(_brief(value), (end, y), (3, 0), **BESIDE)
    name_lines(time, rows)
    memory.tick_params(axis="y", length=0)
    memory.grid(visible=False, axis="y")
    return figure


def _brief(value: float) -> str:
    if not isfinite(value):
        return "not known"
    if value <= SHORTEST:
        return f"< {SHORTEST:g}"
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"


def _sparse(i: int, n: int) -> tuple[int, int]:
    """A marker now and then, at other places for each line, so that lines can be distinguished in grey."""
    every = max(n // 6, 1)
    return (i * max(every // 5, 1)) % every, every
