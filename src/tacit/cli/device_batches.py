"""`tacit device batches`: in how many batches this device is summed, where there is no guarantee."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli import app as shell
from tacit.cli.app import Json
from tacit.cli.device import device_app, open_device

if TYPE_CHECKING:
    from tacit.field.device import Sharing


@device_app.command(epilog="Example: tacit device batches 1")
def batches(
    most: Annotated[int | None, typer.Argument(min=1, help="Most batches of one federation; usual are 4.")] = None,
    as_json: Json = False,
) -> None:
    """Set in how many batches this device is summed; without an argument, show it. A guarantee needs no batches."""

    def decide(sharing: Sharing) -> Sharing:
        policy = sharing.device_policy.model_copy(update={"most_cohorts": most})
        return sharing.model_copy(update={"device_policy": policy})

    with open_device() as device:
        settled = device.sharing if most is None else device.change(decide)
    allowed = settled.device_policy.most_cohorts
    shell.screen.document({"most_batches": allowed})
    if allowed is None:
        shell.screen.say("This device is summed with any others, in as many batches as it is asked to.")
    elif allowed == 1:
        shell.screen.say("This device is summed in one batch: once another device of it is gone, never again.")
    else:
        shell.screen.say(
            f"This device joins {allowed} batches at most: groups of devices that are always summed together. Each "
            "further batch tells a little more of its history."
        )
