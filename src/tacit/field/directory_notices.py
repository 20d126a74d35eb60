"""How a device learns who was revoked: with every sum, and by fetching notices, also when no round asks it any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.errors import DevicePolicyError, FieldError
from tacit.field.coordinator_requests import CoordinatorRequests, NoAnswerError
from tacit.protocols.notices import NoticeList
from tacit.reasons import ReasonCode

if TYPE_CHECKING:
    from tacit.field.device.device_file import DeviceFile

NOTICES = "/v1/tacit/notices"


def fetch_notices(address: str, roots: bytes | None, federation: str) -> NoticeList | None:
    """Ask a coordinator for all notices of a federation; none where it is of a version that has none."""
    silence = f"{address} does not show the list of members"
    try:
        with CoordinatorRequests(address, (roots or b"").decode()) as requests:
            answer = requests.get(f"{NOTICES}/{federation}")
    except NoAnswerError as error:
        raise FieldError(f"{silence}: {error.why}.", "It will be tried again.") from None
    if answer.status == 404:
        return None
    if answer.status != 200:
        raise FieldError(f"{silence}: HTTP {answer.status}.", "It will be tried again.")
    return NoticeList.decode(answer.content)


def is_noted_revoked(device: DeviceFile, shown: NoticeList | None) -> bool:
    """Store notices that may be trusted as much as the device's settings say; return whether this device is revoked.

    A coordinator that shows none is believed to be of an earlier version only where no witness is named.
    """
    if shown is None:
        if device.directory.witness:
            raise DevicePolicyError.because(ReasonCode.DIRECTORY_MISSING)
        return False
    members = device.directory.read_notices(device.sharing, device.federation_id, shown)
    with device.store.transaction():
        device.directory.keep_notices(shown)
    return device.identity in members.revoked
