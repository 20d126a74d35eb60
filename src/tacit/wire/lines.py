"""Lines of text that people copy: invitations and the like. A prefix names the kind, base64url JSON follows."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any


def encode_text(content: bytes) -> str:
    """Return bytes as base64url without padding."""
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def decode_text(text: str) -> bytes:
    """Return the bytes of base64url without padding; raise ValueError if it is none."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def write_line(prefix: str, about: Mapping[str, Any]) -> str:
    """Return a line with a prefix and a document."""
    return prefix + encode_text(json.dumps(about, separators=(",", ":")).encode())


def read_line(prefix: str, line: str) -> dict[str, Any]:
    """Return the document of a line, which mail programs may have broken; raise ValueError for any other text."""
    text = "".join(line.split())
    if not text.startswith(prefix):
        raise ValueError(f"the line does not begin with '{prefix}'")
    try:
        about = json.loads(decode_text(text.removeprefix(prefix)))
    except RecursionError:
        raise ValueError("the line is nested too deeply") from None
    if not isinstance(about, dict):
        raise ValueError("the line holds no document")
    return about
