"""Start a page on this machine and stop it again: one socket on 127.0.0.1, one link."""

from __future__ import annotations

import errno
import gc
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Thread

import uvicorn
from starlette.types import ASGIApp

from tacit.errors import FieldError
from tacit.web.guard import Guard, PageAddress

ADDRESS = "127.0.0.1"
STOP_SECONDS = 10.0


@dataclass(frozen=True)
class Page:
    """A page that can be served: the application, and the bytes that a request may have where those are many."""

    app: ASGIApp
    caps: Mapping[str, int]


def serve_page(page: Page, port: int, say: Callable[[str], None]) -> None:
    """Serve a page until Ctrl-C; `say` receives the link that opens it. Port 0 takes any free port."""
    with _listening(port) as listener, suppress(KeyboardInterrupt):  # the usual way to close it
        address = PageAddress(listener.getsockname()[1])
        say(address.link)
        freeze_loaded_objects()
        _server(Guard(page.app, address, page.caps)).run(sockets=[listener])


@contextmanager
def serving_app(make: Callable[[int], ASGIApp], port: int = 0) -> Iterator[int]:
    """Serve an application with a guard of its own while the block runs; `make` is given the port."""
    with _listening(port) as listener:
        taken = int(listener.getsockname()[1])
        with _running(_server(make(taken)), listener):
            yield taken


def freeze_loaded_objects() -> None:
    """Exclude the objects so far from garbage collection, which would pause a request for a tenth of a second."""
    gc.collect()
    gc.freeze()


@contextmanager
def serving(page: Page, port: int = 0) -> Iterator[PageAddress]:
    """Serve a page in a thread of its own while the block runs."""
    with _listening(port) as listener:
        address = PageAddress(listener.getsockname()[1])
        with _running(_server(Guard(page.app, address, page.caps)), listener):
            yield address


@contextmanager
def _running(server: uvicorn.Server, listener: socket.socket) -> Iterator[None]:
    thread = Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(STOP_SECONDS)


@contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        try:
            listener.bind((ADDRESS, port))
            listener.listen()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise FieldError(
                    f"Port {port} is taken by another program.", "Give another with --port, or none for a free one."
                ) from None
            raise FieldError(f"Port {port} cannot be used: {error.strerror}.", "Give another with --port.") from None
        yield listener
    finally:
        listener.close()


def _server(app: ASGIApp) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        log_level="error",
        access_log=False,
        lifespan="off",
        ws="none",
        http="h11",
        loop="asyncio",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)
