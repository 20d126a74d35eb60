"""Text from elsewhere, made safe to show: without the characters that steer a terminal or turn a line around."""

from __future__ import annotations

import re

# C0 (with ESC), DEL and C1, which begin escape sequences; and marks that reorder the text around them
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_BUT_LINES = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def strip_controls(text: str, *, keep_lines: bool = False) -> str:
    """Return a text without control characters; with `keep_lines`, tabs and ends of lines stay."""
    return (_BUT_LINES if keep_lines else _CONTROLS).sub("", text)
