"""Whoever opens connections and says nothing does not keep others out: real sockets, with short times."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
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


def seconds_open(port: int, begun: bytes, then: bytes = b"") -> float:
    """Return how long a connection stays open that sends something, and then a byte now and then."""
    with socket.create_connection(("127.0.0.1", port)) as line:
        began = time.monotonic()
        line.sendall(begun)
        line.settimeout(0.05)
        while time.monotonic() - began < 10:
            try:
                if not line.recv(4096):
                    break
            except TimeoutError:
                with contextlib.suppress(OSError):
                    line.sendall(then)
            except OSError:
                break
        return time.monotonic() - began


@pytest.mark.parametrize(
    ("begun", "then", "least", "most"),
    [
        (b"", b"", 0.3, 5.0),
        (b"POST / HTTP/1.1\r\nX: ", b"y", 0.3, 5.0),
        (HEAD + b"\r\n", b"", 1.0, 8.0),
        (HEAD + b"\r\nfour", b"", 0.3, 5.0),
    ],
    ids=["says nothing", "a head by drops", "no content", "idle after an answer"],
)
def test_a_connection_that_takes_too_long_is_closed(
    port: int, begun: bytes, then: bytes, least: float, most: float
) -> None:
    assert least < seconds_open(port, begun, then) < most


def test_requests_that_follow_each_other_go_on(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as line:
        for _ in range(8):
            line.sendall(HEAD + b"\r\nfour")
            answer = b""
            while not answer.endswith(b"ok"):
                answer += line.recv(4096)
            assert answer.startswith(b"HTTP/1.1 200")
            time.sleep(0.15)
