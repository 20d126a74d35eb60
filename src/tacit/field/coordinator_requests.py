"""Short requests to a coordinator over HTTPS: its certificate is checked, and its answers are bounded.

Invitations, notices, new keys, amendments and the visits of a witness go this way; rounds have a connection of their
own (`carriers`). What an answer means, and how a user reads it, is up to the caller.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import httpx

from tacit.errors import FieldError
from tacit.field.bounded_answers import SECONDS, read_whole


@dataclass(frozen=True)
class CoordinatorAnswer:
    """The answer to one request; its content is read only if the status is 200."""

    status: int
    content: bytes
    headers: Mapping[str, str]


class NoAnswerError(FieldError):
    """A coordinator gives no answer, or has another certificate than it should have."""

    def __init__(self, address: str, why: str) -> None:
        super().__init__(f"{address} gives no answer: {why}.", "It will be tried again.")
        self.why = why


class DamagedAddressError(FieldError):
    """What should be an address is none: no try will help."""


class DamagedCertificateError(FieldError):
    """What should be a certificate is none: no try will help."""


class CoordinatorRequests:
    """A connection to one coordinator, by its authority's certificate or, without one, by the machine's own roots."""

    def __init__(self, address: str, roots: str = "") -> None:
        self.address = address
        try:
            context = ssl.create_default_context(cadata=roots or None)
        except (ssl.SSLError, TypeError, ValueError):  # not a certificate, or not even text of the right kind
            raise DamagedCertificateError(
                "The certificate of the coordinator is damaged.", "Ask the operator for another line."
            ) from None
        self._client = httpx.Client(verify=context, timeout=SECONDS, headers={"accept-encoding": "identity"})

    def __enter__(self) -> Self:
        """Use it until the block ends."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it at the end of a block."""
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def get(self, path: str) -> CoordinatorAnswer:
        """Ask for what lies under a path."""
        return self._ask("GET", path)

    def post(
        self, path: str, body: bytes | Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> CoordinatorAnswer:
        """Send bytes, or a document as JSON."""
        given = {"content": body} if isinstance(body, bytes) else {"json": dict(body)}
        return self._ask("POST", path, headers=dict(headers or {}), **given)

    def _ask(self, method: str, path: str, **given: Any) -> CoordinatorAnswer:
        try:
            with self._client.stream(method, f"https://{self.address}{path}", **given) as response:
                content = read_whole(response.iter_raw()) if response.status_code == 200 else b""
                return CoordinatorAnswer(response.status_code, content, dict(response.headers))
        except (httpx.InvalidURL, UnicodeError):
            raise DamagedAddressError(
                f"The address of the coordinator is damaged: {self.address!r}.",
                "Ask the operator for another line.",
            ) from None
        except httpx.HTTPError as error:
            raise NoAnswerError(self.address, str(error)) from None
