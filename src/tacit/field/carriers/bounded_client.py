"""Flower's client, for a coordinator that is not trusted: what it answers has bounds, and it sends a device nowhere.

Flower follows redirects: a coordinator could let the devices of its members send requests to any address, also inside
their own networks. It also keeps whole answers in memory, unpacked, however large they are.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
from flwr.supernode.fleet_http_client import FleetHttpClient

from tacit.field.bounded_answers import WHOLE_SECONDS
from tacit.field.carriers.body_limit import BODY_BYTES


class BoundedFleetClient(FleetHttpClient):  # type: ignore[misc]  # Flower has no types that are checked
    """A client that follows no redirects, unpacks nothing, and gives up answers that are too long or too slow."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._client.follow_redirects = False
        self._client.headers["accept-encoding"] = "identity"
        self._client.event_hooks = {"response": [_limit_content]}


def _limit_content(response: httpx.Response) -> None:
    """Bound the content of an answer, before any of it is read."""
    response.headers.pop("content-encoding", None)
    response.stream = _BoundedStream(response.stream)


class _BoundedStream(httpx.SyncByteStream):  # type: ignore[misc]
    """The content of an answer, up to a number of bytes and seconds."""

    def __init__(self, parts: Any) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[bytes]:
        """Yield the parts until there are too many."""
        left, until = BODY_BYTES, time.monotonic() + WHOLE_SECONDS
        for part in self._parts:
            left -= len(part)
            if left < 0:
                raise httpx.ReadError("the answer is too large")
            if time.monotonic() > until:
                raise httpx.ReadTimeout("the answer comes too slowly")
            yield part

    def close(self) -> None:
        """Close what the parts come from."""
        self._parts.close()
