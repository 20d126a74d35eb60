"""`tacit device draw`: how often it is drawn which items of the history are sent."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from tacit.cli import app as shell
from tacit.cli.app import Json
from tacit.cli.device import device_app, open_device


class Draws(Enum):
    """How often pi is drawn."""

    ROW = "row"
    ITEM = "item"
    ONCE = "once"


MEANINGS = {
    "row": "Every row is drawn by itself: a few rounds send nearly all of a short history.",
    "item": "Every item is drawn in each round: a few rounds send nearly all of a short history.",
    "once": "Every item is drawn once, for all rounds: what is kept back stays back. Lists may be worse.",
}


@device_app.command(epilog="Example: tacit device draw once")
def draw(
    how: Annotated[Draws | None, typer.Argument(help="By row, by item and round, or once for each item.")] = None,
    as_json: Json = False,
) -> None:
    """Set how often it is drawn, with probability pi, whether an item is sent; without an argument, show it."""
    with open_device() as device:
        settled = device.sharing
        if how is not None:
            settled = device.change(lambda before: before.model_copy(update={"coin": how.value}))
    shell.screen.document({"coin": settled.coin, "pi": settled.pi})
    shell.screen.say(f"pi = {settled.pi:g}. {MEANINGS[settled.coin]}")
