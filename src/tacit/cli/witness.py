"""`tacit witness`: watch over the list of members of a federation, by a party that is not its operator."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from tacit.cli import app as shell
from tacit.cli.app import Json, app
from tacit.cli.field import needs_flower
from tacit.errors import FieldError
from tacit.reasons import ReasonCode

witness_app = typer.Typer(no_args_is_help=True, help="Watch over who is a member of a federation, for its members.")
app.add_typer(witness_app, name="witness")
Folder = Annotated[Path, typer.Option(help="Folder of the witness's key and its copy of the lists.")]


@witness_app.command(epilog="Example: tacit witness key")
def key(folder: Folder = Path("witness"), as_json: Json = False) -> None:
    """Show the public key, which the operator and every member need; it is made the first time."""
    needs_flower()
    from tacit.field.witness import Witness

    witness = Witness(folder)
    witness.close()
    shell.screen.document({"key": witness.key.hex()})
    shell.screen.say(witness.key.hex())


@witness_app.command(epilog="Example: tacit witness run tacitw1:eyJh...")
def run(
    line: Annotated[str, typer.Argument(help="What the operator made with: tacit enroll FILE --witness.")],
    folder: Folder = Path("witness"),
    most_a_day: Annotated[int, typer.Option(min=1, help="New members that are signed in 24 hours, at most.")] = 200,
    every: Annotated[float, typer.Option(min=0.05, max=86_400, help="Seconds between two visits.")] = 60.0,
    once: Annotated[bool, typer.Option("--once", help="Come by once and end, for cron.")] = False,
    as_json: Json = False,
) -> None:
    """Come by at a coordinator, take the new members, sign the list. A list that is not its own is never signed."""
    needs_flower()
    from tacit.field.witness import Witness, WitnessLine, WitnessVisit

    witness = Witness(folder, most_a_day=most_a_day)
    visit, last = WitnessVisit(witness, WitnessLine.parse(line)), -1
    try:
        while True:
            try:
                held, waiting = visit.run()
            except FieldError as error:
                if once or error.code == ReasonCode.DIRECTORY_FORKED:
                    raise
                shell.screen.say(str(error))
            else:
                if once or held.size != last:
                    shell.screen.say(f"Signed: {held.size} members; {waiting} wait for another day.")
                    last = held.size
                if once:
                    shell.screen.document({"size": held.size, "root": held.root.hex(), "waiting": waiting})
                    return
            time.sleep(every)
    except KeyboardInterrupt:
        shell.screen.document({"size": max(0, last)})
        shell.screen.say("Stopped. Devices take part for as many days as they allow without a new signature.")
    finally:
        witness.close()
