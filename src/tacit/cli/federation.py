"""`tacit federation`: what an operator does beside `tacit serve`: invitations, roll-backs, copies of the folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli import app as shell
from tacit.cli.app import Json, Set, app
from tacit.cli.field import File, needs_flower
from tacit.errors import FieldError

federation_app = typer.Typer(no_args_is_help=True, help="Invite devices, roll a federation back, back it up.")
app.add_typer(federation_app, name="federation")


@federation_app.command(epilog="Example: tacit federation rollback examples/field.yaml 41")
def rollback(
    file: File,
    number: Annotated[int, typer.Argument(metavar="ROUND", min=0, help="The round whose model is in force again.")],
    settings: Set = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Go back to the model after an earlier round; devices are told by a signed amendment. Stop `tacit serve` first."""
    needs_flower()
    from tacit.config import read_config
    from tacit.field.coordinator_folder import find_journal, hold_folder
    from tacit.field.serve import ServeConfig, open_federation

    config = read_config(ServeConfig, file, settings)
    find_journal(config.folder)
    with hold_folder(config.folder):
        journal = open_federation(config)
        try:
            journal.roll_back(number)
            amendment = journal.federation.number
        finally:
            journal.close()
    shell.screen.document({"rolled_back_to": number, "amendment": amendment})
    shell.screen.say(f"The model after round {number} is in force again (amendment {amendment}). Start: tacit serve.")


@federation_app.command("replace-method", epilog="Example: tacit federation replace-method examples/field.yaml")
def replace_the_method(
    file: File,
    settings: Set = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Publish the method that the file names now. Each device takes part once its user agrees. Stop `serve` first."""
    needs_flower()
    from tacit.config import read_config
    from tacit.field.coordinator_folder import find_journal, hold_folder
    from tacit.field.serve import ServeConfig, replace_method

    config = read_config(ServeConfig, file, settings)
    find_journal(config.folder)
    with hold_folder(config.folder):
        after = replace_method(config)
    shell.screen.document({"method": after.method, "amendment": after.number})
    shell.screen.say(
        f"The method is {after.method} (amendment {after.number}), and its model begins anew. Devices keep their last "
        "model and send nothing until their users agree. Start: tacit serve."
    )


@federation_app.command(epilog="Example: tacit federation backup examples/field.yaml town.tar.gz")
def backup(
    file: File,
    to: Annotated[Path, typer.Argument(help="The file to write; it holds secret keys.")],
    settings: Set = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Copy journal and certificates into one file, also while `tacit serve` runs."""
    needs_flower()
    from tacit.config import read_config
    from tacit.field.coordinator_folder import write_backup
    from tacit.field.serve import ServeConfig

    size = write_backup(read_config(ServeConfig, file, settings).folder, to)
    shell.screen.document({"backup": str(to), "bytes": size})
    shell.screen.say(f"'{to}' has {size:,} bytes. Keep it secret: whoever has it can play your coordinator.")


@federation_app.command(epilog="Example: tacit federation restore examples/field.yaml town.tar.gz")
def restore(
    file: File,
    copy: Annotated[Path, typer.Argument(help="A file that `backup` wrote.")],
    settings: Set = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Put a backup into the coordinator's folder; a journal that is there is never replaced."""
    needs_flower()
    from tacit.config import read_config
    from tacit.field.coordinator_folder import restore_backup
    from tacit.field.serve import ServeConfig

    journal = restore_backup(copy, read_config(ServeConfig, file, settings).folder)
    number = journal.rounds.next_number
    journal.close()
    shell.screen.document({"restored": str(copy), "next_round": number})
    shell.screen.say(f"Restored. Rounds go on with number {number}: devices may have answered those before.")


@federation_app.command(epilog="Example: tacit federation invite examples/field.yaml --count 20 --label 'class 4b'")
def invite(
    file: File,
    count: Annotated[int, typer.Option(min=1, max=10_000, help="How many invitations; each enrols one device.")] = 1,
    label: Annotated[str, typer.Option(help="A label that only you see, here and with the devices.")] = "",
    days: Annotated[float, typer.Option(min=0.001, max=365, help="Days that they are valid.")] = 7.0,
    codes: Annotated[Path | None, typer.Option("--qr", help="Folder for QR codes, one SVG file each.")] = None,
    settings: Set = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Make invitations, one line each: links that begin with tacit1:."""
    needs_flower()
    from tacit.config import read_config
    from tacit.field.qr_codes import code_files, prepare_folder, write_codes
    from tacit.field.serve import ServeConfig, make_invitations, open_federation

    config = read_config(ServeConfig, file, settings)
    journal = open_federation(config)
    try:
        if codes is not None:
            prepare_folder(codes)
        lines = make_invitations(config, journal, days, count, label)
    finally:
        journal.close()
    files = [] if codes is None else code_files(lines, codes)
    shell.screen.document({"invitations": lines, "days": days, "label": label, "qr": [str(one) for one in files]})
    for line in lines:
        shell.screen.say(line)
    if codes is not None:
        write_codes(lines, codes)  # last: whatever happens to the codes, the lines are told


@federation_app.command("login-key", epilog="Example: tacit federation login-key login.key")
def login_key(
    file: Annotated[Path, typer.Argument(help="The file to write, for your login server only.")], as_json: Json = False
) -> None:
    """Make the key with which your login server signs tokens; its public half is the option `login.key`."""
    from tacit.field.coordinator.login import make_login_key

    public = make_login_key(file)
    shell.screen.document({"key": public, "file": str(file)})
    shell.screen.say(public)


@federation_app.command(epilog="Example: tacit federation login examples/field.yaml --key login.key --account ann")
def login(
    file: File,
    key: Annotated[Path, typer.Option(help="The key that `login-key` made.")],
    account: Annotated[str, typer.Option(help="Who has logged in; only a pseudonym of it leaves.")],
    days: Annotated[float, typer.Option(min=0.001, max=365, help="Days that the line is valid.")] = 1.0,
    settings: Set = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Make a line that enrols a device of a user who has logged in at your own server."""
    needs_flower()
    from tacit.config import read_config
    from tacit.field.serve import ServeConfig, make_login_line, open_federation

    config = read_config(ServeConfig, file, settings)
    journal = open_federation(config)
    try:
        line = make_login_line(config, journal, key, account, days)
    finally:
        journal.close()
    shell.screen.document({"invitation": line, "days": days})
    shell.screen.say(line)


@federation_app.command(epilog="Example: tacit federation invitations examples/field.yaml --revoke 'class 4b'")
def invitations(
    file: File,
    revoke: Annotated[str | None, typer.Option(help="Take back pending ones of this short name or label.")] = None,
    settings: Set = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """List the invitations that can still be used and the labels of devices, or take invitations back."""
    needs_flower()
    import time

    from tacit.config import read_config
    from tacit.field.serve import ServeConfig, open_federation

    journal = open_federation(read_config(ServeConfig, file, settings))
    try:
        gone = None if revoke is None else journal.invitations.revoke(revoke)
        now = time.time()
        pending, devices = journal.invitations.pending(int(now)), journal.members.devices()
    finally:
        journal.close()
    if gone == 0:
        raise FieldError(f"There is no pending invitation '{revoke}'.", "List them: tacit federation invitations.")
    about = [{"name": one.name, "label": one.label, "days": round((one.expires - now) / 86_400, 2)} for one in pending]
    known = [{"device": one.number, "label": one.label, "revoked": one.revoked} for one in devices]
    shell.screen.document({"pending": about, "devices": known, **({} if gone is None else {"taken_back": gone})})
    if gone is not None:
        shell.screen.say(f"{gone} taken back.")
    shell.screen.table("pending", ["invitation", "label", "days"], [[str(v) for v in one.values()] for one in about])
    rows = [[str(one.number), one.label, "revoked" if one.revoked else ""] for one in devices]
    shell.screen.table("devices", ["device", "label", ""], rows)
