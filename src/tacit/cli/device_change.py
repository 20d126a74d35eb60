"""`tacit device change`: another method that the operator proposes, and the user's yes or no."""

from __future__ import annotations

from typing import Annotated

import typer

from tacit.cli import app as shell
from tacit.cli.app import Json
from tacit.cli.device import device_app, open_device
from tacit.errors import ConsentError


@device_app.command(epilog="Example: tacit device change --agree")
def change(
    agree: Annotated[
        bool | None, typer.Option("--agree/--decline", help="Say yes, and take part in it; or say no, and do not.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show in which way the group wants to learn from now on, if that changes, and say yes or no to it."""
    with open_device() as device:
        proposal = device.terms.proposal
        if proposal is None and agree is not None:
            raise ConsentError("There is nothing to say yes or no to.", "See what is the case: tacit device status.")
        if proposal is None:
            shell.screen.document({"proposal": None})
            shell.screen.say("The operator proposes no other way of learning.")
            return
        sentences = proposal.describe()
        if agree:
            device.terms.agree(proposal.after.digest)
        elif agree is False:
            device.terms.decline()
    answers = {True: "agreed", False: "declined", None: "declined" if proposal.is_declined else "open"}
    shell.screen.document({"proposal": sentences, "method": proposal.after.method, "answer": answers[agree]})
    for sentence in sentences:
        shell.screen.say(sentence)
    shell.screen.say(
        {
            "agreed": "You agreed. This device takes part again; the new model comes with the next exchange.",
            "declined": "You said no: nothing is sent, and suggestions stay. Later: tacit device change --agree.",
            "open": "Nothing is sent until you answer: tacit device change --agree, or --decline.",
        }[answers[agree]]
    )
