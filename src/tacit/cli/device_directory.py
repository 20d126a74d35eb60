"""`tacit device directory`: whom this device trusts to say who the other participants are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli import app as shell
from tacit.cli.app import Json
from tacit.cli.device import device_app, open_device

if TYPE_CHECKING:
    from tacit.field.device import Sharing


@device_app.command(epilog="Example: tacit device directory --settled-hours 48")
def directory(
    witness: Annotated[str | None, typer.Option(help="Key of the witness that must sign; none: no witness.")] = None,
    settled_hours: Annotated[
        float | None, typer.Option(min=0, max=8760, help="Hours that others must be in the signed list.")
    ] = None,
    fresh_days: Annotated[
        float | None, typer.Option(min=0.001, max=3650, help="Days that the last signature may be old.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show who vouches for the other participants of a sum, and set what this device demands of it."""

    def decide(sharing: Sharing) -> Sharing:
        given = {"settled_hours": settled_hours, "fresh_days": fresh_days}
        chosen = {name: value for name, value in given.items() if value is not None}
        return sharing.model_copy(update={"directory": sharing.directory.model_copy(update=chosen)})

    with open_device() as device:
        if witness is not None:
            device.directory.name_witness("" if witness == "none" else witness)
        sharing = device.change(decide)
        known, named = device.directory.known, device.directory.witness
        trust = device.directory.describe_trust(sharing)
    seen = None if known is None else {"size": known.size, "root": known.root.hex(), "time": known.time}
    shell.screen.document({"witness": named or None, "seen": seen, **sharing.directory.model_dump()})
    shell.screen.say(trust)
    if known is not None:
        shell.screen.say(f"When it joined a sum last, {known.size} members were in the list.")
