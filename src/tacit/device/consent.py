"""What stops a message at the last moment: her settings as they are now, against those that it was made under."""

from __future__ import annotations

from tacit.device.settings import Sharing
from tacit.errors import ConsentError


def refuse_if_silent(sharing: Sharing, before: Sharing | None = None) -> None:
    """Refuse while she has paused, and where her settings are not those from `before` the message was made."""
    if sharing.paused:
        raise ConsentError("This device is paused: nothing leaves it.", "Resume it first: tacit device resume.")
    if before is not None and sharing != before:
        raise ConsentError("The settings changed while the message was made; it was not kept.", "Ask again.")


def refuse_readable(sharing: Sharing) -> None:
    """Refuse what a receiver could read, where she lets nothing leave but under masks."""
    if sharing.masked_only:
        raise ConsentError(
            "This device sends nothing but under masks, and is asked in the clear.",
            "If they may read you: tacit device share --also-readable.",
        )


def refuse_if_narrowed(sharing: Sharing, under: str) -> None:
    """Refuse to repeat a message that was made `under` settings, as JSON, which allowed more than those of now.

    It is not made anew either: a second one, for the same round, would tell what changed. One of an older version of
    this program does not say under which settings it was made, and is not repeated.
    """
    if not under or sharing.forbids_more(Sharing.model_validate_json(under)):
        raise ConsentError(
            "What was made for this round may hold what the settings forbid by now; it does not leave.",
            "The device takes part again in a later round.",
        )
