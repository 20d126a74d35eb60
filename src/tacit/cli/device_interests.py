"""`tacit device interests`: what stands in for a history while there is none."""

from __future__ import annotations

from typing import Annotated

import typer

from tacit.cli import app as shell
from tacit.cli.app import Json
from tacit.cli.device import device_app, open_device
from tacit.errors import DeviceError


@device_app.command(epilog='Example: tacit device interests Bakery "Café Luna"')
def interests(
    names: Annotated[
        list[str] | None, typer.Argument(help="Categories, titles or ids; they replace those before.")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Choose none.")] = False,
    as_json: Json = False,
) -> None:
    """Choose what you like, for suggestions while your history is empty. It is never sent. Without names: show it."""
    if names and clear:
        raise DeviceError("Names and --clear contradict each other.", "Give one of the two.")
    with open_device() as device:
        found = device.preferences.choose_interests(names or []) if names or clear else device.preferences.interests
        titles = [device.catalog.called(item) for item in found.items] if found.items else []
    chosen = [*found.categories, *titles]
    shell.screen.document(found.to_json())
    if chosen:
        shell.screen.say(f"Your interests: {', '.join(chosen)}. They stay on this device.")
    else:
        shell.screen.say("You have chosen no interests.")
