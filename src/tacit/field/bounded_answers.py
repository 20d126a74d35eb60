"""Answers of a coordinator over HTTP, bounded in time and size."""

from __future__ import annotations

import time
from collections.abc import Iterable

from tacit.errors import FieldError

SECONDS = 30.0  # for each part of an answer
WHOLE_SECONDS = 300.0  # for a whole answer, once it begins
MOST_BYTES = 2**27


def read_whole(parts: Iterable[bytes]) -> bytes:
    """Put an answer together; one that has no end, or comes too slowly, is given up."""
    content, until = bytearray(), time.monotonic() + WHOLE_SECONDS
    for part in parts:
        content += part
        if len(content) > MOST_BYTES:
            raise FieldError("The answer of the coordinator is too large.", "Ask the operator.")
        if time.monotonic() > until:
            raise FieldError("The coordinator answers too slowly.", "Try again; nothing was changed.")
    return bytes(content)
