"""How much each sender may send to a coordinator, whatever it announced and whoever shows whose key."""

from __future__ import annotations

import asyncio
import contextlib
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message

from tacit.field.carriers.body_limit import KEY_HEADER, PUSH, SHORT_BYTES, SIGNATURE_HEADER, TIME_HEADER, BodyLimit
from tacit.field.carriers.enrolment_limits import ENROL

HOLDER = ec.generate_private_key(ec.SECP384R1())
MEMBER = public_key_to_bytes(HOLDER.public_key())
MOST = 200_000  # bytes that the member may send now


class OneMember:
    """One member, of whom an answer is wanted."""

    def __init__(self) -> None:
        self.refused: list[bytes] = []

    def most_body(self, key: bytes) -> int:
        return MOST if key == MEMBER else 0

    def refuse_answer(self, key: bytes) -> None:
        self.refused.append(key)


def signed(holder: Any = HOLDER, age: float = 0.0) -> list[tuple[bytes, bytes]]:
    """What a request of the member shows, signed by somebody so many seconds ago."""
    stamp = (datetime.now(UTC) - timedelta(seconds=age)).isoformat().encode("ascii")
    return [shown(MEMBER), (TIME_HEADER, stamp), (SIGNATURE_HEADER, b64encode(sign_message(holder, stamp)))]


def shown(key: bytes) -> tuple[bytes, bytes]:
    return KEY_HEADER, b64encode(key)


def sent(
    path: str, parts: list[bytes], headers: list[tuple[bytes, bytes]], members: OneMember | None = None
) -> tuple[list[Any], int]:
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
    asyncio.run(BodyLimit(application, members or OneMember())(scope, receive, send))
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


@pytest.mark.parametrize("size", [b"-1", b"x", b"", str(MOST + 1).encode()])
def test_sizes_that_cannot_be_are_refused_unread(size: bytes) -> None:
    answered, given = sent(PUSH, [b"x"], [(b"content-length", size), shown(MEMBER)])
    assert (answered[0]["status"], given) == (413, 0)


@pytest.mark.parametrize("announced", [[], [(b"content-length", str(10 * MOST).encode())]])
def test_a_member_that_sends_more_than_an_honest_answer_is_refused(announced: list[tuple[bytes, bytes]]) -> None:
    """While it sends: no more of it is read, and the round need not wait for it any longer."""
    members = OneMember()
    answered, given = sent(PUSH, [b"x" * 1000] * 1000, [*signed(), *announced], members)
    assert answered[0]["status"] == 413
    assert given <= MOST
    assert members.refused == [MEMBER]
    assert sent(PUSH, [b"x" * 1000] * 200, signed(), members)[1] == MOST
    assert members.refused == [MEMBER]


def test_a_refusal_counts_though_the_application_answers_by_itself() -> None:
    """As Flower does: it makes an error of the server of whatever is raised while it reads a body."""
    members, answered = OneMember(), list[Any]()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        with contextlib.suppress(Exception):
            while True:
                await receive()
        await send({"type": "http.response.start", "status": 500, "headers": []})

    async def receive() -> Any:
        return {"type": "http.request", "body": bytes(1000), "more_body": True}

    async def send(message: Any) -> None:
        answered.append(message)

    scope = {"type": "http", "path": PUSH, "headers": signed()}
    asyncio.run(BodyLimit(application, members)(scope, receive, send))
    assert [message["status"] for message in answered if "status" in message] == [413]
    assert members.refused == [MEMBER]


def test_only_its_own_signature_brings_a_member_into_trouble() -> None:
    members, other = OneMember(), ec.generate_private_key(ec.SECP384R1())
    for path, headers in (
        (PUSH, [shown(MEMBER)]),
        (PUSH, signed(other)),
        (PUSH, [*signed()[:2], (SIGNATURE_HEADER, b"\xff")]),
        (PUSH, signed(age=86_400)),
        (PUSH, signed(age=-86_400)),
        ("/v1/fleet/push-messages", signed()),
    ):
        assert sent(path, [b"x" * (MOST + 1)], headers, members)[0][0]["status"] == 413
    assert members.refused == []


def test_a_member_sends_two_answers_at_once_at_most() -> None:
    """Each request alone may be as large as an answer; many at once would fill the memory."""
    limits, released, statuses = OneMember(), list[asyncio.Future[None]](), list[int]()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await asyncio.shield(released[0])
        await send({"type": "http.response.start", "status": 200, "headers": []})

    bounded = BodyLimit(application, limits)

    async def request(n_bytes: int) -> None:
        async def receive() -> Any:
            return {"type": "http.request", "body": bytes(n_bytes), "more_body": False}

        async def send(message: Any) -> None:
            if "status" in message:
                statuses.append(message["status"])
            if message.get("status") == 413:
                released[0].set_result(None)

        await bounded({"type": "http", "path": PUSH, "headers": signed()}, receive, send)

    async def many() -> None:
        released.append(asyncio.get_running_loop().create_future())
        await asyncio.gather(request(MOST), request(MOST), request(MOST), request(1000))

    asyncio.run(many())
    assert sorted(statuses) == [200, 200, 200, 413]
    assert limits.refused == [], "an answer that broke off may be sent again: this is no lie"
    assert not bounded._held
