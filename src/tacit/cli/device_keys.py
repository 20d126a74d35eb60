"""`tacit device new-key`: another key for the connection to the coordinator."""

from __future__ import annotations

from tacit.cli import app as shell
from tacit.cli.app import Json
from tacit.cli.device import device_app, open_device


@device_app.command("new-key", epilog="Example: tacit device new-key")
def new_key(as_json: Json = False) -> None:
    """Change the key by which the coordinator knows this device's connection; the identity in sums stays."""
    from tacit.field.key_rotation import change_key

    with open_device() as device:
        change_key(device)
    shell.screen.document({"changed": True})
    shell.screen.say("The coordinator knows this device by a new key. The old one is of no use any more.")
