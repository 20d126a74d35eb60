"""How a device shows who it is: every request carries a signed time, by the coordinator's clock.

A coordinator refuses times far from its own. A device whose clock is off takes the time from the coordinator's refusal
and continues. That reveals nothing: the key is known to this coordinator only, and is shown to no other party.
"""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from flwr.common.constant import TIMESTAMP_HEADER
from flwr.supercore.constant import (
    FLEET_HTTP_PUBLIC_KEY_HEADER,
    FLEET_HTTP_SIGNATURE_HEADER,
    FLWR_COMPONENT_NAME_METADATA_KEY,
    FLWR_PACKAGE_NAME_METADATA_KEY,
    FLWR_PACKAGE_VERSION_METADATA_KEY,
)
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message
from flwr.supercore.version import package_name, package_version

from tacit.wire.status import HEADER, CoordinatorStatus
from tacit.wire.versions import HEADER as VERSIONS
from tacit.wire.versions import OWN, VersionRanges

REFUSED = 401
ROUNDING = 2.0  # seconds by which a time in a header may be off


def local_time() -> datetime:
    """Return the time by this machine's clock."""
    return datetime.now(UTC)


class SignedRequests:
    """Signs each request of a device, and follows the coordinator's clock where it refuses the device's own."""

    def __init__(self, private_key: Any) -> None:
        self._private_key = private_key
        self._public_key = b64encode(public_key_to_bytes(private_key.public_key())).decode("ascii")
        self._version = {  # as Flower's own nodes say it; the class that writes it takes 20 MB of servers along
            FLWR_PACKAGE_NAME_METADATA_KEY: package_name,
            FLWR_PACKAGE_VERSION_METADATA_KEY: package_version,
            FLWR_COMPONENT_NAME_METADATA_KEY: "SuperNode",
        }
        self.status: CoordinatorStatus | None = None  # the last status of the coordinator
        self.versions = OWN  # of the coordinator, as it named them last
        self.ahead = 0.0  # seconds by which this machine's clock is taken to be ahead of the coordinator's

    def intercept(self, context: Any, call_next: Any) -> Any:
        """Sign a request, send it, and send it once more if only the clock was wrong."""
        response = call_next(self._signed(context))
        self.versions = VersionRanges.read(response.headers.get(VERSIONS, ""))
        self.status = CoordinatorStatus.read(response.headers.get(HEADER, "")) or self.status
        ahead = seconds_ahead(response)
        if response.status_code != REFUSED or ahead is None or abs(ahead - self.ahead) <= ROUNDING:
            return response
        self.ahead = ahead
        response.close()
        return call_next(self._signed(context))

    def _signed(self, context: Any) -> Any:
        stamp = (local_time() - timedelta(seconds=self.ahead)).isoformat()
        signature = b64encode(sign_message(self._private_key, stamp.encode("ascii"))).decode("ascii")
        context.request.headers.update(self._version)
        context.request.headers[VERSIONS] = OWN.write()
        context.request.headers[FLEET_HTTP_PUBLIC_KEY_HEADER] = self._public_key
        context.request.headers[TIMESTAMP_HEADER] = stamp
        context.request.headers[FLEET_HTTP_SIGNATURE_HEADER] = signature
        return context


def seconds_ahead(response: Any) -> float | None:
    """Return by how many seconds this machine's clock is ahead of the one that a response was written by."""
    try:
        return (local_time() - parsedate_to_datetime(response.headers["date"])).total_seconds()
    except (KeyError, ValueError, TypeError, OverflowError):
        return None
