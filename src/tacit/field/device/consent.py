"""The last check of a message: the settings now against those under which it was made."""

from __future__ import annotations

from tacit.errors import ConsentError
from tacit.field.device.settings import Sharing
from tacit.reasons import ReasonCode
from tacit.wire.federation import Federation


def refuse_if_silent(sharing: Sharing, before: Sharing | None = None) -> None:
    """Refuse while the device is paused, and if the settings are not those from `before` the message was made."""
    if sharing.paused:
        raise ConsentError.because(ReasonCode.PAUSED)
    if before is not None and sharing != before:
        raise ConsentError.because(ReasonCode.SETTINGS_CHANGED)


def refuse_readable(sharing: Sharing, federation: Federation) -> None:
    """Refuse a readable message if the settings allow masked rounds only, or if the federation has a guarantee."""
    if federation.privacy is not None:
        raise ConsentError.because(ReasonCode.NEEDS_MASKS)
    if sharing.masked_only:
        raise ConsentError.because(ReasonCode.MASKED_ONLY)


def refuse_if_narrowed(sharing: Sharing, under: str) -> None:
    """Refuse to repeat a message that was made `under` settings, as JSON, which allowed more than those of now.

    It is not made anew either: a second one, for the same round, would reveal what changed. A message of an older
    version of this program lacks its settings, and is not repeated.
    """
    if not under or sharing.forbids_more(Sharing.model_validate_json(under)):
        raise ConsentError.because(ReasonCode.SETTINGS_NARROWED)
