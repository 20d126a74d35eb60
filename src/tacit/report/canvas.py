"""The canvas of figures: one style, one width, the same numbers along every axis."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tacit.report.marks import RC

if TYPE_CHECKING:  # matplotlib takes most of a second to import: only those who draw wait for it
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 4.5  # inches: half a page on a desk, the whole width of a phone


@contextmanager
def report_style() -> Iterator[None]:
    """Draw in the style of the reports; every figure is made and saved inside."""
    import matplotlib as mpl

    with mpl.rc_context(RC), warnings.catch_warnings():
        # A label in a script that the font lacks is drawn as boxes: the table has it in full.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        yield


def new_figure(height: float, columns: int = 1, *, share_y: bool = True) -> tuple[Figure, list[Axes]]:
    """Return an empty figure of so many inches height, and its axes side by side, by default along one scale."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, columns, sharey=share_y and columns > 1, squeeze=False)
    return figure, list(axes[0])


def plain_numbers(axis: Any) -> None:
    """Label a log axis 0.1, 1, 10, 1,000 instead of with powers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(numticks=7))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def percent_axis(axis: Any) -> None:
    """Label an axis of shares in per cent."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.6g} %"))


def legend_below(figure: Figure) -> None:
    """Put a legend under the axes: two columns where they fit into the width, else one."""
    legend = figure.legend(loc="outside lower center", ncols=2)
    figure.draw_without_rendering()
    if legend.get_window_extent().width > figure.bbox.width:
        legend.remove()
        figure.legend(loc="outside lower center", ncols=1)


def keep_layout(figure: Figure) -> None:
    """Find the layout once and keep it for every format."""
    import matplotlib as mpl

    figure.draw_without_rendering()
    with mpl.rc_context({"figure.autolayout": False, "figure.constrained_layout.use": False}):
        figure.set_layout_engine(None)  # with "none", each format would be drawn once more to look for a layout
