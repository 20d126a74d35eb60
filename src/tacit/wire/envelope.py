"""The head that every message has: what kind it is, of which version, for which federation and round.

    message   magic "TCIT" · version · kind · digest of the federation (32) · round (u32) · length (u32) · body

Programs that only pass messages on read no more than this; what is in the bodies is in `wire.messages`.
"""

from __future__ import annotations

import json
import struct
from typing import Any

from tacit.errors import WireError

MAGIC = b"TCIT"
VERSION, OLDEST = 2, 1  # the newest that is written and read, and the oldest
WELCOME, REQUEST, MODEL, UPDATE, SECURE_REQUEST, SECURE_REPLY, AMENDMENT = 1, 2, 3, 4, 5, 6, 7
KINDS = {
    WELCOME: "welcome",
    REQUEST: "request",
    MODEL: "model",
    UPDATE: "update",
    SECURE_REQUEST: "secure-request",
    SECURE_REPLY: "secure-reply",
    AMENDMENT: "amendment",
}
MOST_BYTES = 2**28  # of any message
_HEAD = struct.Struct("<4sBB32sII")
HEAD_BYTES = _HEAD.size
AGAIN = "It was damaged on its way, or its sender means no good: nothing was changed."
UPGRADE = "Its sender uses a newer version of Tacit: upgrade this one."
OUTDATED = "Its sender uses an older version of Tacit, which must be upgraded."


def version_of(content: bytes) -> int:
    """Return the version that a message is written in."""
    return content[len(MAGIC)]


def seal_message(kind: int, digest: bytes, number: int, body: bytes, version: int = OLDEST) -> bytes:
    """Put a head before the body of a message."""
    if HEAD_BYTES + len(body) > MOST_BYTES:
        raise WireError(f"A {KINDS[kind]} of {len(body):,} bytes is too large to send ({MOST_BYTES:,} at most).", "")
    return _HEAD.pack(MAGIC, version, kind, digest, number, len(body)) + body


def unseal_message(content: bytes, wanted: tuple[int, ...]) -> tuple[int, bytes, int, bytes]:
    """Return kind, federation's digest, round and body of a message of one of the wanted kinds."""
    if len(content) > MOST_BYTES:
        raise WireError(f"A message of {len(content):,} bytes is too large ({MOST_BYTES:,} at most).", AGAIN)
    if len(content) < HEAD_BYTES or content[:4] != MAGIC:
        raise WireError("This is not a message of Tacit.", AGAIN)
    _, version, kind, digest, number, length = _HEAD.unpack_from(content)
    if version > (newest := VERSION if kind == SECURE_REQUEST else OLDEST):  # others have not changed since
        raise WireError(f"This message is written in version {version}; this program reads up to {newest}.", UPGRADE)
    if version < OLDEST:
        raise WireError(f"This message is written in version {version}; this program reads from {OLDEST}.", OUTDATED)
    if kind not in wanted:
        expected = " or ".join(KINDS[one] for one in wanted)
        raise WireError(f"Expected a {expected}, but this is a {KINDS.get(kind, f'message of kind {kind}')}.", AGAIN)
    if length != len(content) - HEAD_BYTES:
        raise WireError(f"A message of {length:,} bytes arrived with {len(content) - HEAD_BYTES:,}.", AGAIN)
    return kind, digest, number, content[HEAD_BYTES:]


def terms_in(welcome: bytes) -> dict[str, Any]:
    """Return the terms in a welcome as they are written; they were checked when it was read as a whole."""
    _, _, _, body = unseal_message(welcome, (WELCOME,))
    (size,) = struct.unpack_from("<I", body)
    found: dict[str, Any] = json.loads(body[4 : 4 + size])
    return found


def phase_in(content: bytes) -> int | None:
    """Return the phase of a message of a secure sum to a device; none if it is something else."""
    if len(content) <= HEAD_BYTES or content[:4] != MAGIC or content[5] != SECURE_REQUEST:
        return None
    return content[HEAD_BYTES]


def message_kind(content: bytes) -> str:
    """Say what a message is: welcome, request, model, update, secure-request or secure-reply."""
    return KINDS[unseal_message(content, tuple(KINDS))[0]]


def digest_in(content: bytes) -> bytes:
    """Return the digest of the federation that a message names."""
    return unseal_message(content, tuple(KINDS))[1]
