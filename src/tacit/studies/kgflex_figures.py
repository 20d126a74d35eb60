"""The figures of KGFlex: accuracy against diversity, hops, and words as large as they are telling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tacit.report.canvas import new_figure, report_style
from tacit.report.labels import name_points
from tacit.report.marks import COLOURS, INK, line_styles

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONGEST = 44  # characters of a word


def draw_tradeoff(points: Mapping[str, tuple[float, float]]) -> Figure:
    """Draw (hit rate, entropy) of every method; right and up is better."""
    with report_style():
        figure, (axes,) = new_figure(3.6)
        marks = line_styles(list(points))
        for name, (x, y) in points.items():
            axes.plot([x], [y], marks[name].marker, color=marks[name].colour)
        axes.margins(0.15)
        axes.set_xlabel("HR@10")
        axes.set_ylabel("Shannon entropy@10")
        named = [(name, marks[name].colour) for name in points]
        name_points(figure, axes, [x for x, _ in points.values()], [y for _, y in points.values()], named)
        return figure


def draw_hops(found: Mapping[tuple[str, int], tuple[float, float]]) -> Figure:
    """Draw (nDCG, Gini) by the hops that features come from; a marker per hop, a colour per length of vectors."""
    with report_style():
        figure, (axes,) = new_figure(3.6)
        labels, sizes = list(dict.fromkeys(key[0] for key in found)), sorted({key[1] for key in found})
        marks = line_styles(labels)
        for (label, size), (x, y) in found.items():
            axes.plot([x], [y], marks[label].marker, color=COLOURS[sizes.index(size)])
        for size in sizes:
            axes.plot([], [], "s", color=COLOURS[sizes.index(size)], label=f"{size} factors")
        axes.legend(loc="best")
        axes.margins(0.18)
        axes.set_xlabel("NDCG@10")
        axes.set_ylabel("Gini@10")
        firsts = [next((x, y) for (name, _), (x, y) in found.items() if name == label) for label in labels]
        named = [(label, INK) for label in labels]
        name_points(figure, axes, [x for x, _ in firsts], [y for _, y in firsts], named)
        return figure


def draw_words(weighed: Sequence[tuple[str, float]]) -> Figure:
    """Write words row by row, the heaviest first and largest."""
    with report_style():
        figure, (axes,) = new_figure(5.2)
        axes.axis("off")
        figure.set_layout_engine("none")
        axes.set_position((0.02, 0.02, 0.96, 0.96))
        renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
        frame = axes.get_window_extent(renderer)
        heaviest = max((weight for _, weight in weighed), default=1.0) or 1.0
        left, top, tallest = frame.x0, frame.y1, 0.0
        for at, (word, weight) in enumerate(weighed):
            size = 4.6 + 9.0 * weight / heaviest
            short = word if len(word) <= LONGEST else f"{word[: LONGEST - 1]}…"
            font: dict[str, Any] = {
                "fontsize": size,
                "color": COLOURS[at % len(COLOURS)],
                "va": "top",
                "transform": axes.transAxes,
            }
            text = axes.text(0, 0, short, **font)
            box = text.get_window_extent(renderer)
            if left > frame.x0 and left + 1.1 * box.width > frame.x1:
                left, top, tallest = frame.x0, top - tallest * 1.15, 0.0
            if top - box.height < frame.y0:
                text.remove()
                break
            text.set_position(((left - frame.x0) / frame.width, (top - frame.y0) / frame.height))
            left, tallest = left + 1.1 * box.width + 6, max(tallest, box.height)  # small words are drawn wider
        return figure
