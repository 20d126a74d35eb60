"""The command `tacit device api`: an interface for applications on the same machine."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Annotated

import typer

from tacit.cli import app as shell
from tacit.cli.app import Json
from tacit.cli.device import device_app, device_path, open_device
from tacit.cli.pages import Port, need_page, stop_on_sigterm


@device_app.command(epilog="Example: tacit device api --port 7433")
def api(
    port: Port = 0,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", help="File of the token; made if it is missing. Default: beside the device."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Let applications on this machine ask for recommendations and record interactions, with a token."""
    need_page()
    from tacit.web.api import build_api, open_token_file
    from tacit.web.device_view import DeviceView
    from tacit.web.server import freeze_loaded_objects, serving_app

    place = token_file or device_path().with_name("api-token")
    with open_device() as device, stop_on_sigterm():
        token, view = open_token_file(place), DeviceView(device)
        with serving_app(lambda taken: build_api(view, token, taken), port) as taken, suppress(KeyboardInterrupt):
            freeze_loaded_objects()
            address = f"http://127.0.0.1:{taken}/v1"
            shell.screen.document({"address": address, "token_file": str(place)})
            shell.screen.say(
                f"Applications on this machine find your device at\n\n  {address}\n\n"
                f"The token is in {place}. Ctrl-C closes it."
            )
            Event().wait()
