"""What unknown senders can send to a coordinator, how often, and with which keys."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from tacit.field.carriers.enrolment_limits import (
    BODY_BYTES,
    BURST,
    ENROL,
    KEY_HEADER,
    MOST_ADDRESSES,
    SHORT_BYTES,
    BodyLimit,
    EnrolmentLimit,
    is_device_key,
)

PUSH, MEMBER = "/v1/fleet/push-object", b"a member's key"


def shown(key: bytes) -> tuple[bytes, bytes]:
    return KEY_HEADER, b64encode(key)


def sent(path: str, parts: list[bytes], headers: list[tuple[bytes, bytes]]) -> tuple[list[Any], int]:
    """Send a body in parts; return what was answered, and how many bytes the application was given."""
    answered: list[Any] = []
    given = 0

    async def application(scope: Any, receive: Any, send: Any) -> None:
        nonlocal given
        more = True
        while more:
            message = await receive()
            given += len(message["body"])
            more = message["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    left = list(parts)

    async def receive() -> Any:
        part = left.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(left)}

    async def send(message: Any) -> None:
        answered.append(message)

    scope = {"type": "http", "path": path, "headers": headers}
    asyncio.run(BodyLimit(application, MEMBER.__eq__)(scope, receive, send))
    return answered, given


@pytest.mark.parametrize("headers", [[], [(b"transfer-encoding", b"chunked")], [(b"content-length", b"10")]])
def test_bytes_are_counted_whatever_was_announced(headers: list[tuple[bytes, bytes]]) -> None:
    answered, given = sent(ENROL, [b"x" * 1000] * 1000, headers)
    assert answered[0]["status"] == 413
    assert given <= SHORT_BYTES
    answered, given = sent(ENROL, [b"x" * 1000] * 4, headers)
    assert (answered[0]["status"], given) == (200, 4000)
    answered, given = sent(PUSH, [b"x" * 1000] * 100, [*headers, shown(MEMBER)])
    assert (answered[0]["status"], given) == (200, 100_000)


@pytest.mark.parametrize("headers", [[], [shown(b"a stranger's key")], [(KEY_HEADER, b"\xff")]])
@pytest.mark.parametrize("path", [PUSH, "/v1/fleet/push-messages", "/v1/tacit/enrol/", "/v1/tacit/witness", "/"])
def test_only_members_send_large_bodies(path: str, headers: list[tuple[bytes, bytes]]) -> None:
    """Flower reads a whole body before it asks who sent it."""
    answered, given = sent(path, [b"x" * 1000] * 1000, headers)
    assert answered[0]["status"] == 413
    assert given <= SHORT_BYTES
    answered, given = sent(path, [b"x" * 1000] * 4, headers)
    assert (answered[0]["status"], given) == (200, 4000)


@pytest.mark.parametrize("size", [b"-1", b"x", b"", str(BODY_BYTES + 1).encode()])
def test_sizes_that_cannot_be_are_refused_unread(size: bytes) -> None:
    answered, given = sent(PUSH, [b"x"], [(b"content-length", size), shown(MEMBER)])
    assert (answered[0]["status"], given) == (413, 0)


def test_an_address_tries_again_and_again_and_others_do_not_wait_for_it() -> None:
    now = 0.0
    limit = EnrolmentLimit(lambda: now)
    assert [limit.allows("a") for _ in range(int(BURST) + 5)] == [True] * int(BURST) + [False] * 5
    assert limit.allows("b")
    now = 2.0
    assert [limit.allows("a") for _ in range(3)] == [True, True, False]
    for number in range(2 * MOST_ADDRESSES):
        limit.allows(str(number))
    assert len(limit._left) == MOST_ADDRESSES


def written(key: Any) -> bytes:
    return bytes(key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo))


def test_only_keys_as_devices_make_them_are_keys() -> None:
    right = written(ec.generate_private_key(ec.SECP384R1()).public_key())
    assert is_device_key(right)
    others = ec.generate_private_key(ec.SECP256R1()).public_key(), ed25519.Ed25519PrivateKey.generate().public_key()
    wrong = [written(key) for key in others]
    for key in (
        b"",
        b"\0",
        b"\0" * 900,
        right + b"\n",
        right[:-20],
        right.replace(b"\n", b"\r\n"),
        b"x" + right,
        *wrong,
    ):
        assert not is_device_key(key)
