"""Whoever opens connections and says nothing does not keep others out: real sockets, with short times."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from helpers.waiting import wait_until
from tacit.field.carriers import slow_connections
from tacit.field.carriers.slow_connections import PunctualProtocol

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"


async def application(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(slow_connections, "HEAD_SECONDS", 0.4)
    monkeypatch.setattr(slow_connections, "WHOLE_SECONDS", 1.2)
    listener = socket.create_server(("127.0.0.1", 0))
    how = {"log_config": None, "lifespan": "off", "ws": "none", "loop": "asyncio", "timeout_keep_alive": 30}
    config = uvicorn.Config(application, http=PunctualProtocol, **how)  # type: ignore[arg-type]
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    wait_until(lambda: server.started, 10, "the server starts")
    yield listener.getsockname()[1]
    server.should_exit = True
    thread.join(10)
    listener.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("begun", "then"),
    [
        (b"", b""),
        (b"POST / HTTP/1.1\r\nX: ", b"y"),
        (HEAD + b"\r\n", b""),
        (HEAD + b"\r\nfour", b""),
    ],
    ids=["says nothing", "a head by drops", "no content", "idle after an answer"],
)
def test_a_connection_that_takes_too_long_is_closed(port: int, begun: bytes, then: bytes) -> None:
    """uvicorn alone would keep it for 30 seconds after an answer, and for ever without a whole request."""
    with socket.create_connection(("127.0.0.1", port), timeout=0.05) as line:
        line.sendall(begun)
        assert any(is_closed(line, then) for _ in range(400))


def is_closed(line: socket.socket, then: bytes) -> bool:
    """Say whether the other side has ended a connection; send a little more where it has not."""
    try:
        return not line.recv(4096)
    except TimeoutError:
        with contextlib.suppress(OSError):
            line.sendall(then)
        return False
    except OSError:
        return True


def test_a_system_that_allows_fewer_files_than_it_says_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS names no hard limit, and refuses more than its kernel's own."""
    resource = pytest.importorskip("resource", reason="Windows has no such limit")

    asked = []

    def refuse(_: int, limits: tuple[int, int]) -> None:
        asked.append(limits)
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    slow_connections.allow_many_connections()
    assert asked == [(slow_connections.MOST_FILES, resource.RLIM_INFINITY)]


def test_a_head_without_an_end_is_not_kept_in_memory(port: int) -> None:
    """httptools has no bound on heads: whatever came within the time of a head would be kept."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as line:
        with contextlib.suppress(OSError):
            line.sendall(b"POST / HTTP/1.1\r\nHost: x\r\n")
            for _ in range(20):
                line.sendall(b"X: " + b"y" * slow_connections.MOST_HEAD + b"\r\n")
            line.sendall(b"Content-Length: 0\r\n\r\n")
        with contextlib.suppress(OSError):  # closed at once
            assert not line.recv(4096).startswith(b"HTTP/1.1 200")


def test_a_large_body_beside_a_small_head_is_read(port: int) -> None:
    size = 8 * slow_connections.MOST_HEAD
    with socket.create_connection(("127.0.0.1", port), timeout=5) as line:
        for _ in range(2):
            line.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size + b"z" * size)
            answer = b""
            while not answer.endswith(b"ok"):
                answer += line.recv(4096)
            assert answer.startswith(b"HTTP/1.1 200")
