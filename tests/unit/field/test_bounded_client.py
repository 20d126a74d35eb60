"""A coordinator that answers without end, in disguise, or with another address: a device gives up, and goes nowhere."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

pytest.importorskip("flwr", reason="the field needs Flower")
from flwr.proto.fleet_pb2 import PullMessagesRequest
from flwr.proto.message_pb2 import PullObjectRequest, PullObjectResponse

from tacit.field.carriers import bounded_client
from tacit.field.carriers.bounded_client import BoundedFleetClient

Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def coordinator(answer: Answer) -> Iterator[tuple[BoundedFleetClient, list[str]]]:
    """A server that answers every request in one way, a client of it, and the paths that were asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.rfile.read(int(self.headers["content-length"]))
            with suppress(OSError):
                answer(self)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"127.0.0.1:{server.server_address[1]}"
    try:
        with BoundedFleetClient.from_server_address(address, True, None, interceptors=[]) as client:
            yield client, asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def begin(handler: BaseHTTPRequestHandler, **headers: str) -> None:
    handler.send_response(200)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()


def test_an_answer_is_read() -> None:
    content = PullObjectResponse(object_found=True, object_content=b"x" * 2**20).SerializeToString()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        begin(handler, content_length=str(len(content)))
        handler.wfile.write(content)

    with coordinator(answer) as (client, _):
        assert client.PullObject(PullObjectRequest()).object_content == b"x" * 2**20


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(status: int) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Location", f"http://{handler.headers['host']}/a-router-of-the-user")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    with coordinator(answer) as (client, asked), pytest.raises(httpx.HTTPStatusError):
        client.PullMessages(PullMessagesRequest())
    assert asked == ["/v1/fleet/pull-messages"]


def test_an_answer_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_client, "BODY_BYTES", 2**20)

    def answer(handler: BaseHTTPRequestHandler) -> None:
        begin(handler)
        while True:
            handler.wfile.write(bytes(2**16))

    with coordinator(answer) as (client, _), pytest.raises(httpx.ReadError):
        client.PullMessages(PullMessagesRequest())


def test_an_answer_by_drops_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_client, "WHOLE_SECONDS", 0.1)
    over = threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        begin(handler)
        while True:
            handler.wfile.write(b"\0")
            handler.wfile.flush()
            over.wait(0.02)

    with coordinator(answer) as (client, _), pytest.raises(httpx.ReadTimeout):
        client.PullMessages(PullMessagesRequest())


def test_a_packed_answer_is_not_unpacked() -> None:
    packed = gzip.compress(PullObjectResponse(object_content=bytes(2**24)).SerializeToString())

    def answer(handler: BaseHTTPRequestHandler) -> None:
        begin(handler, content_length=str(len(packed)), content_encoding="gzip")
        handler.wfile.write(packed)

    with coordinator(answer) as (client, _), pytest.raises(ValueError, match="payload"):
        client.PullObject(PullObjectRequest())
