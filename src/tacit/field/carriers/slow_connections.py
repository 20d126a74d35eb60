"""Limits of connections: many idle ones must not lock others out, and none may fill the memory with a head.

A process has a limited number of open files, and each connection is one. uvicorn closes connections that are idle after
an answer, but waits for ever for the rest of a request. Here a request has a time in which its head must come, and one
for its content and answer. TLS handshakes end after a minute (asyncio). A head may have as many bytes as h11 allows.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEAD_SECONDS = 40.0  # without a whole head of a request: more than uvicorn keeps a connection that was answered
WHOLE_SECONDS = 330.0  # for the content and the answer: more than a device waits
MOST_HEAD = 2**16  # bytes
CHECKS = 8  # in the time of a head
MOST_FILES = 65_536


class PunctualProtocol(AutoHTTPProtocol):  # type: ignore[misc]  # httptools or h11, whichever is installed
    """uvicorn's protocol of a connection, closed once a request takes too long."""

    def connection_made(self, transport: Any) -> None:
        """Begin to watch."""
        super().connection_made(transport)
        self._seen: tuple[Any, str] = (None, "")
        self._since = self.loop.time()
        self._is_head, self._has_begun, self._head = False, False, 0
        self._next_check: asyncio.TimerHandle | None = None
        self._check()

    def data_received(self, data: bytes) -> None:
        """Close the connection once the head of a request is too long; h11 has a bound of its own."""
        was_head, self._has_begun = self._is_head, False
        super().data_received(data)
        if was_head and self._is_head and not self._has_begun:
            self._head += len(data)
            if self._head > MOST_HEAD:
                self.transport.abort()

    def on_message_begin(self) -> None:
        """Note that a head begins."""
        self._is_head, self._has_begun, self._head = True, True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Note that a head is over."""
        self._is_head = False
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """End watching."""
        if self._next_check is not None:
            self._next_check.cancel()
        super().connection_lost(exc)

    def _check(self) -> None:
        """Close the connection if the same step of the same request takes too long."""
        request, now = self.cycle, self.loop.time()
        is_head = request is None or request.response_complete
        step = "head" if is_head else "content" if request.more_body else "answer"
        if self._seen[0] is not request or self._seen[1] != step:
            self._seen, self._since = (request, step), now
        elif now - self._since > (HEAD_SECONDS if is_head else WHOLE_SECONDS):
            self.transport.abort()
            return
        self._next_check = self.loop.call_later(HEAD_SECONDS / CHECKS, self._check)


def allow_many_connections() -> None:
    """Raise the number of files that this process may open at once, as far as the system lets it."""
    if sys.platform != "win32":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            with contextlib.suppress(OSError, ValueError):  # macOS allows fewer than it names as the hard limit
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
