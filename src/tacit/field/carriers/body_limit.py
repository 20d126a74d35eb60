"""How much each sender may send to a coordinator.

A member sends bodies as large as the answer that it was asked for; all others send short ones. Flower reads a body
before it checks who sent it, so that the key in the head of a request decides here how much of it is read. Only the
coordinator and the member know that key.
"""

from __future__ import annotations

from base64 import b64decode
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Protocol

from cryptography.exceptions import UnsupportedAlgorithm
from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_HEADER, TIMESTAMP_TOLERANCE
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.date import now as flower_now
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature

from tacit.wire.envelope import MOST_BYTES

FLEET = "/v1/fleet/"  # the routes of members
PUSH = f"{FLEET}push-object"  # where parts of answers are sent
KEY_HEADER, SIGNATURE_HEADER, TIME_HEADER = (
    name.lower().encode("ascii")
    for name in (FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER, TIMESTAMP_HEADER)
)
SHORT_BYTES = 4096  # an invitation's word, two keys and a proof
PARTS_BYTES = 2**16  # of a message, at most, beside its content
BODY_BYTES = MOST_BYTES + PARTS_BYTES  # of what a coordinator answers
TOGETHER = 2  # times the largest body, of all requests of one member at once: an answer, and one that broke off


class MemberLimits(Protocol):
    """What decides how much a request may send: who is a member, and what it was asked for."""

    def most_body(self, key: bytes) -> int:
        """Return how many bytes a request with this key may have now; 0 if it is no member's."""
        ...

    def refuse_answer(self, key: bytes) -> None:
        """Give up the answer that a member is sending: more of it came than an honest one can have."""
        ...


class BodyLimit:
    """Ends requests whose bodies are larger than their senders may send; what was announced does not matter."""

    def __init__(self, app: Any, members: MemberLimits) -> None:
        self._app, self._members = app, members
        self._held: Counter[bytes] = Counter()  # bytes of requests that are not answered yet, by the member's key

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Count the bytes of a request as they come."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope.get("headers", ()))
        key = _decode(headers.get(KEY_HEADER, b"")) if scope["path"].startswith(FLEET) else b""
        from_member = self._members.most_body(key)
        most, came, has_begun = from_member or SHORT_BYTES, 0, False
        refused: _BodyError | None = None

        async def count() -> Any:
            nonlocal came, refused
            message = await receive()
            n_bytes = len(message.get("body", b""))
            came += n_bytes
            self._held[key] += n_bytes
            if came > most:
                refused = _OverlongError()
            elif came > PARTS_BYTES and self._held[key] > TOGETHER * most:
                refused = _BodyError()
            if refused is not None:
                raise refused
            return message

        async def note(message: Any) -> None:
            nonlocal has_begun
            if refused is None:  # Flower answers by itself where a body cannot be read
                has_begun = True
                await send(message)

        size = headers.get(b"content-length", b"0")
        try:
            if not size.isdigit():
                refused = _BodyError()
            elif int(size) > most:
                refused = _OverlongError()
            else:
                with suppress(_BodyError):
                    await self._app(scope, count, note)
            if isinstance(refused, _OverlongError) and from_member and scope["path"] == PUSH:
                await self._refuse_answer(key, headers)
            if refused is not None and not has_begun:
                await send({"type": "http.response.start", "status": 413, "headers": [(b"connection", b"close")]})
                await send({"type": "http.response.body", "body": b""})
        finally:
            self._held[key] -= came
            if not self._held[key]:
                del self._held[key]

    async def _refuse_answer(self, key: bytes, headers: Mapping[bytes, bytes]) -> None:
        """Give up the answer of a member, if the member itself sends it."""
        from starlette.concurrency import run_in_threadpool

        if await run_in_threadpool(is_signed, key, headers):
            await run_in_threadpool(self._members.refuse_answer, key)


class _BodyError(Exception):
    """A body is too large, or a member sends too much at once."""


class _OverlongError(_BodyError):
    """One body is too large."""


def is_signed(key: bytes, headers: Mapping[bytes, bytes]) -> bool:
    """Say whether the holder of a key made a request: who only knows the key must not bring its member into trouble.

    Nor who has an old request of it: a time that Flower does not accept is not accepted here either.
    """
    stamp, signature = headers.get(TIME_HEADER, b""), _decode(headers.get(SIGNATURE_HEADER, b""))
    try:
        age = (flower_now() - datetime.fromisoformat(stamp.decode("ascii"))).total_seconds()
        if not -SYSTEM_TIME_TOLERANCE < age < TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE:
            return False
        return bool(verify_signature(bytes_to_public_key(key), stamp, signature))
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False


def _decode(text: bytes) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        return b""
