"""Names in figures: beside their points and lines where they can be, and never on top of each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.report.comparison import MethodRow
from tacit.report.marks import shorten_label
from tacit.types import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

BESIDE: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 8.8}


def name_lines(axes: Axes, rows: Sequence[MethodRow]) -> None:
    """Write the methods beside a horizontal chart, the first on top."""
    axes.set_yticks(range(len(rows)), [shorten_label(row.label) for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)


def name_ends(
    figure: Figure, axes: Axes, ends: Sequence[tuple[float, float]], names: Sequence[tuple[str, str]]
) -> None:
    """Write each name to the right of the axes, at the height of its line's end where that is free."""
    figure.draw_without_rendering()
    height = axes.get_window_extent().height / figure.dpi * 72
    across = axes.transData + axes.transAxes.inverted()  # a log scale too
    wanted = [float(across.transform(end)[1]) for end in ends]
    for (label, colour), end, y in zip(names, ends, spread_positions(wanted, 12.5 / height, 0.0, 1.0), strict=True):
        axes.annotate(
            shorten_label(label),
            end,
            (1.04, y),
            textcoords="axes fraction",
            va="center",
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.7, "alpha": 0.7, "shrinkA": 1, "shrinkB": 1},
            annotation_clip=False,
        )


def name_points(
    figure: Figure, axes: Axes, xs: Sequence[float], ys: Sequence[float], names: Sequence[tuple[str, str]]
) -> None:
    """Write each name beside its point, at the nearest of many places where it covers neither a point nor a name."""
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()
    scale = figure.dpi / 72
    points = axes.transData.transform(np.column_stack([xs, ys]))
    taken = [Bbox.from_bounds(x - 6 * scale, y - 6 * scale, 12 * scale, 12 * scale) for x, y in points]
    frame = axes.get_window_extent()
    for at, ((label, colour), point, x, y) in enumerate(zip(names, points, xs, ys, strict=True)):
        text = axes.annotate(shorten_label(label), (x, y), (0, 0), **{**BESIDE, "fontsize": 9.2})
        text.set_in_layout(False)
        size = text.get_window_extent()
        best: tuple[float, float, float, Bbox, bool] | None = None
        for dx, dy in _PLACES:
            left = point[0] + dx * scale - (size.width if dx < 0 else size.width / 2 if dx == 0 else 0)
            box = Bbox.from_bounds(left, point[1] + dy * scale - size.height / 2, size.width, size.height)
            cost = 40.0 * sum(box.overlaps(other) for other in taken) + float(np.hypot(dx, dy)) / 10
            inside = frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1
            has_line = float(np.hypot(dx, dy)) > 15 or _is_nearer_another(box, points, at)
            cost += (0.0 if inside else 25.0) + (2.0 if has_line else 0.0)
            if has_line:
                end = point + np.array([dx, dy]) * scale
                cost += 30.0 * _count_crossed(point, end, [other for place, other in enumerate(taken) if place != at])
            if best is None or cost < best[0]:
                best = (cost, dx, dy, box, has_line)
        assert best is not None
        _, dx, dy, box, has_line = best
        taken.append(box)
        text.set_position((dx, dy))
        text.set_horizontalalignment("right" if dx < 0 else "center" if dx == 0 else "left")
        if has_line:
            arrow = {"arrowstyle": "-", "color": colour, "linewidth": 0.7, "alpha": 0.7}
            axes.annotate("", (x, y), (dx, dy), textcoords="offset points", arrowprops=arrow).set_in_layout(False)


def _is_nearer_another(box: Bbox, points: Floats, own: int) -> bool:
    """Say whether a reader could take a name for that of another point: it is about as near, or nearer."""
    away = np.maximum(np.maximum([box.x0, box.y0] - points, points - [box.x1, box.y1]), 0)
    distances = np.hypot(away[:, 0], away[:, 1])
    return bool((np.delete(distances, own) < 1.5 * distances[own]).any())


def _count_crossed(start: Floats, end: Floats, boxes: Sequence[Bbox]) -> int:
    """Return how many boxes a line goes through."""
    steps = start + np.linspace(0, 1, 20)[:, None] * (end - start)
    return sum(any(box.contains(x, y) for x, y in steps) for box in boxes)


_PLACES: Sequence[tuple[float, float]] = [(8, 0), (-8, 0), (0, 11), (0, -11)] + [
    (side * across, up)
    for across in (7, 12, 20, 34, 52)
    for up in (11, -11, 20, -20, 32, -32, 46, -46)
    for side in (1, -1)
]


def _legend_columns(rows: Sequence[MethodRow | None]) -> int:
    longest = max(len(shorten_label(row.label)) if row else 8 for row in rows)
    return max(1, min(3, len(rows), 57 // (longest + 7)))


def legend_height(rows: Sequence[MethodRow | None]) -> float:
    """Return the inches that the legend of these lines needs; None stands for a line that is no method."""
    return 0.185 * -(-len(rows) // _legend_columns(rows))


def legend(figure: Figure, rows: Sequence[MethodRow | None]) -> None:
    """Name the lines below the axes: those of a distribution all end in the same corner."""
    figure.legend(loc="outside lower center", ncols=_legend_columns(rows))


def spread_positions(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move positions apart until neighbours are `gap` away from each other, inside [low, high], in the same order.

    >>> spread_positions([5.0, 5.0, 9.5], 2.0, 0.0, 10.0)
    [4.0, 6.0, 9.5]
    """
    if not wanted:
        return []
    gap = min(gap, (high - low) / max(len(wanted) - 1, 1))
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    groups: list[tuple[float, list[int]]] = []  # (centre, members): each group is a run of touching labels
    for i in order:
        groups.append((wanted[i], [i]))
        while True:
            centre, members = groups[-1]
            half = gap * (len(members) - 1) / 2
            groups[-1] = (min(max(centre, low + half), high - half), members)
            if len(groups) == 1:
                break
            (below, first), (above, second) = groups[-2:]
            if above - below >= gap * (len(first) + len(second)) / 2:
                break
            centre = (below * len(first) + above * len(second)) / (len(first) + len(second))
            groups[-2:] = [(centre, first + second)]
    placed = [0.0] * len(wanted)
    for centre, members in groups:
        for j, i in enumerate(members):
            placed[i] = centre + gap * (j - (len(members) - 1) / 2)
    return placed
