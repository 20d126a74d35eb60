"""The style of a method: one colour, marker and line style in every figure, apart in colour, in grey and on dark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

INK = "#1f2430"  # text and reference lines
SOFT = "#6b7280"  # axes and remarks
GRID = "#dfe3e8"
PAPER = "#ffffff"
ALARM = "#c2410c"

# Okabe and Ito's colours, the pale ones darkened until they can be seen on white, and five more between them.
COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#d69400",
    "#3fa0db",
    "#7a5fd0",
    "#8c8b00",
    "#a0522d",
    "#7f8790",
    "#d6336c",
    "#12a5a5",
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "d")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)), (0, (9, 2)))
LONGEST = 24  # characters of a label in a figure

RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "text.color": INK,
    "text.parse_math": False,  # a label may hold a dollar sign
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.unicode_minus": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "lines.linewidth": 1.7,
    "lines.markersize": 6,
    "legend.frameon": False,
    "legend.fontsize": 8.8,
    "legend.handlelength": 2.6,
    "legend.columnspacing": 1.2,
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "svg.fonttype": "path",  # looks the same wherever it is opened
    "svg.hashsalt": "tacit",  # the same figure gives the same bytes
    "path.simplify": True,
}


@dataclass(frozen=True)
class LineStyle:
    """How one method is drawn."""

    colour: str
    marker: str
    dash: Any

    @property
    def line(self) -> dict[str, Any]:
        """Keywords for a line with sparse markers."""
        return {
            "color": self.colour,
            "linestyle": self.dash,
            "marker": self.marker,
            "markersize": 5,
            "markeredgecolor": PAPER,
            "markeredgewidth": 0.6,
        }


def line_styles(labels: Sequence[str]) -> dict[str, LineStyle]:
    """Return a style for each label, by its place among them; no two are alike up to 60 labels."""
    return {
        label: LineStyle(COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)], DASHES[i % len(DASHES)])
        for i, label in enumerate(labels)
    }


def shorten_label(label: str) -> str:
    """Return a label that fits a figure; the middle of a long one is left out, since grids differ at the end.

    >>> shorten_label("bpr-mf factors=64 learning_rate=0.05 reg=0.001")
    'bpr-mf facto…05 reg=0.001'
    """
    printable = "".join(character if character.isprintable() else " " for character in label)
    half = LONGEST // 2
    return printable if len(printable) <= LONGEST else f"{printable[:half]}…{printable[-half:]}"
