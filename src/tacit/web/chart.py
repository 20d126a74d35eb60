"""The measured curve over pi, drawn as SVG in the page's colours; no library, no style attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from tacit.languages import translate

BOX: dict[str, float] = {"left": 44, "right": 500, "top": 16, "bottom": 210, "most": 1.1}  # in 520 by 252


def _x(pi: float) -> float:
    return round(BOX["left"] + pi * (BOX["right"] - BOX["left"]), 1)


def _y(value: float) -> float:
    return round(BOX["bottom"] - value / BOX["most"] * (BOX["bottom"] - BOX["top"]), 1)


def chart(curve: Sequence[Mapping[str, Any]], popular: float, pi: float, values: Mapping[str, float]) -> Markup:
    """Draw quality and the share of items named over pi, with a marker at the user's pi."""
    parts = []
    for share in (0, 0.25, 0.5, 0.75, 1):
        parts.append(
            f'<line class="gridline" x1="{BOX["left"]}" x2="{BOX["right"]}" y1="{_y(share)}" y2="{_y(share)}"/>'
        )
        parts.append(f'<text x="{BOX["left"] - 8}" y="{_y(share) + 4}" text-anchor="end">{share:.0%}</text>')
        parts.append(f'<text x="{_x(share)}" y="{BOX["bottom"] + 18}" text-anchor="middle">{100 * share:.0f}</text>')
    axis = escape(translate("hints in 100 that may be sent"))
    middle = (BOX["left"] + BOX["right"]) / 2
    parts.append(f'<text x="{middle}" y="{BOX["bottom"] + 36}" text-anchor="middle">{axis}</text>')
    parts.append(
        f'<line class="popular" x1="{BOX["left"]}" x2="{BOX["right"]}" y1="{_y(popular)}" y2="{_y(popular)}"/>'
    )
    lines = {
        "quality": [point["quality"] for point in curve],
        "named first": [point["named"]["1"] for point in curve],
        "named": [point["named"]["10"] for point in curve],
    }
    for name, line in lines.items():
        at = zip(curve, line, strict=True)
        points = " ".join(f"{_x(point['pi'])},{_y(min(value, BOX['most']))}" for point, value in at)
        parts.append(f'<polyline class="line {name}" points="{points}"/>')
    parts.append(
        f'<line class="here" data-mark="here" x1="{_x(pi)}" x2="{_x(pi)}" y1="{BOX["top"]}" y2="{BOX["bottom"]}"/>'
    )
    for name, value in values.items():
        parts.append(f'<circle class="{name}" data-mark="{name}" cx="{_x(pi)}" cy="{_y(value)}" r="6.5"/>')
    return Markup("\n".join(parts))
