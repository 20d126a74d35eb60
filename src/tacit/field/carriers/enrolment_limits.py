"""What unknown senders can cost a coordinator: how much they may send, how often they may enrol, with which keys.

A member sends large bodies; all others send short ones. Flower reads a body before it checks who sent it, so that the
key in the head of a request decides here how much of it is read. Only the coordinator and the member know that key.
"""

from __future__ import annotations

import time
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER

from tacit.wire.envelope import MOST_BYTES

ENROL, WITNESS, HAND_OVER = "/v1/tacit/enrol", "/v1/tacit/witness", "/v1/tacit/hand-over"
NEW_IDENTITY_KEY = "/v1/tacit/new-identity-key"
FLEET = "/v1/fleet/"  # the routes of members
KEY_HEADER = FLEET_HTTP_PUBLIC_KEY_HEADER.lower().encode("ascii")
SHORT_BYTES = 4096  # an invitation's word, two keys and a proof
BODY_BYTES = MOST_BYTES + 2**16
AT_ONCE = 8  # enrolments that are checked at the same time
BURST, PER_SECOND = 60.0, 1.0  # tries of one address: so many at once, then so many a second
MOST_ADDRESSES = 10_000


class BodyLimit:
    """Ends requests whose bodies are larger than their senders may send; what was announced does not matter."""

    def __init__(self, app: Any, is_member: Callable[[bytes], bool]) -> None:
        self._app, self._is_member = app, is_member

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Count the bytes of a request as they come."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope.get("headers", ()))
        is_large = scope["path"].startswith(FLEET) and self._is_member(_decode_key(headers.get(KEY_HEADER, b"")))
        most, came, has_begun = (BODY_BYTES if is_large else SHORT_BYTES), 0, False

        async def count() -> Any:
            nonlocal came
            message = await receive()
            came += len(message.get("body", b""))
            if came > most:
                raise _BodyError
            return message

        async def note(message: Any) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        size = headers.get(b"content-length", b"0")
        try:
            if not size.isdigit() or int(size) > most:
                raise _BodyError
            await self._app(scope, count, note)
        except _BodyError:
            if not has_begun:
                await send({"type": "http.response.start", "status": 413, "headers": [(b"connection", b"close")]})
                await send({"type": "http.response.body", "body": b""})


class _BodyError(Exception):
    """A body is too large."""


def _decode_key(text: bytes) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        return b""


class EnrolmentLimit:
    """How often each address may try to enrol a device; addresses are kept in memory only, and not for long."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # address -> tries left, and when

    def allows(self, address: str) -> bool:
        """Count one try of an address; say whether it may."""
        now = self._clock()
        left, since = self._left.pop(address, (BURST, now))
        left = min(BURST, left + (now - since) * PER_SECOND)
        is_allowed = left >= 1
        self._left[address] = (left - 1 if is_allowed else left, now)
        while len(self._left) > MOST_ADDRESSES:
            self._left.popitem(last=False)
        return is_allowed


def is_device_key(key: bytes) -> bool:
    """Say whether some bytes are a public key as devices make it, written as they write it."""
    try:
        public = serialization.load_pem_public_key(key)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False
    if not isinstance(public, ec.EllipticCurvePublicKey) or not isinstance(public.curve, ec.SECP384R1):
        return False
    form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    return public.public_bytes(*form) == key
