"""`tacit device ...`: the file itself: passphrase, recovery code, backup, restore, erasure."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli import app as shell
from tacit.cli.app import Json
from tacit.cli.device import Keyring, device_app, device_path, keyring_name, open_device, read_passphrase, say_code
from tacit.cli.secret_input import read_secret
from tacit.errors import ConfigError, DeviceError

if TYPE_CHECKING:
    from tacit.field.device import Device

NEW_PASSPHRASE, CODE = "TACIT_NEW_PASSPHRASE", "TACIT_RECOVERY_CODE"
Forgotten = Annotated[bool, typer.Option("--forgotten", help="Open it with the recovery code, and set a passphrase.")]
CodeFile = Annotated[
    Path | None, typer.Option("--code-file", help=f"A file with the recovery code; default: ${CODE}, or a prompt.")
]
NewFile = Annotated[
    Path | None,
    typer.Option(help=f"A file whose first line is the new passphrase; default: ${NEW_PASSPHRASE}, or a prompt."),
]


def read_code_secret(file: Path | None) -> str:
    """Return the recovery code."""
    from tacit.field.device.recovery import read_code

    return read_code(read_secret("Recovery code", CODE, file))


def open_by_code(file: Path | None) -> Device:
    """Open the device of this command with its recovery code."""
    from tacit.field.device import Device
    from tacit.field.device.device_path import refuse_if_missing

    refuse_if_missing(device_path())
    return Device.open(device_path(), read_code_secret(file), by="recovery")


@device_app.command(epilog="Example: tacit device passphrase")
def passphrase(
    new_file: NewFile = None,
    forgotten: Forgotten = False,
    code_file: CodeFile = None,
    keyring: Keyring = False,
    as_json: Json = False,
) -> None:
    """Change the passphrase; with --forgotten, by the recovery code. Earlier copies still open with the old one."""
    from tacit.field.device.keyring import forget_secret, store_secret

    with open_by_code(code_file) if forgotten else open_device() as device:
        before, name = keyring_name(), ""
        if keyring:
            name, chosen = store_secret()
        else:
            chosen = read_secret("New passphrase", NEW_PASSPHRASE, new_file, confirm=True)
        try:
            device.change_passphrase(chosen, keeper=name)
        except BaseException:
            if name:
                forget_secret(name)
            raise
    if before:
        forget_secret(before)
    shell.screen.document({"changed": True})
    shell.screen.say("The key is in this machine's keyring now." if keyring else "The passphrase is changed.")


@device_app.command("recovery-code", epilog="Example: tacit device recovery-code")
def recovery_code(as_json: Json = False) -> None:
    """Make a new recovery code and print it once. The one before no longer opens this device, but earlier backups."""
    with open_device() as device:
        code = device.make_recovery_code()
    shell.screen.document({"recovery_code": code})
    say_code(code)


@device_app.command(epilog="Example: tacit device backup my-device.backup")
def backup(file: Annotated[Path, typer.Argument(help="The file to write.")], as_json: Json = False) -> None:
    """Write an encrypted copy of your device; it opens with the same passphrase and the same recovery code."""
    with open_device() as device:
        device.backup(file)
    shell.screen.document({"file": str(file), "encrypted": True})
    shell.screen.say(f"Written to {file}. To use it on another machine: tacit device restore.")


@device_app.command(epilog="Example: tacit device export my-data.json --readable")
def export(
    file: Annotated[Path, typer.Argument(help="The file to write.")],
    readable: Annotated[bool, typer.Option("--readable", help="As JSON, without encryption.")] = False,
    as_json: Json = False,
) -> None:
    """Write history, settings and ledger as JSON (--readable); without it, the same as `backup`."""
    if not readable:
        backup(file, as_json)
        return
    with open_device() as device:
        device.export_readable(file)
    shell.screen.document({"file": str(file), "encrypted": False})
    shell.screen.say(f"Written to {file}. It is not encrypted: anybody who has it can read it.")


@device_app.command(epilog="Example: tacit device restore my-device.backup")
def restore(
    copy: Annotated[Path, typer.Argument(help="A file that `backup` wrote.")],
    forgotten: Forgotten = False,
    code_file: CodeFile = None,
    new_file: NewFile = None,
    as_json: Json = False,
) -> None:
    """Restore your device from a backup. It sits out until it cannot contradict itself. Use one copy at a time."""
    from tacit.field.device import Device
    from tacit.field.device.copies import refuse_restore
    from tacit.field.device.store import Store

    refuse_restore(copy, device_path())
    if Store.keeper(copy) and not forgotten:
        raise DeviceError(
            "The key of this backup is in the keyring of the machine where it was made.",
            "Give its recovery code: --forgotten.",
        )
    if forgotten:
        secret, chosen = (
            read_code_secret(code_file),
            read_secret("New passphrase", NEW_PASSPHRASE, new_file, confirm=True),
        )
        with Device.restore(copy, device_path(), secret, by="recovery") as device:
            device.change_passphrase(chosen)
    else:
        Device.restore(copy, device_path(), read_passphrase()).close()
    shell.screen.document({"file": str(device_path()), "sits_out": True})
    shell.screen.say(
        f"Your device is {device_path()}. It sits out the first rounds that it is asked for, and the cool-down after "
        "them, so that it cannot contradict what it answered after the backup. From then on it shares in sums only; to "
        "undo that: tacit device share --also-readable. Do not use the device that it is a copy of any more."
    )


@device_app.command("import", hidden=True)
def import_copy(copy: Annotated[Path, typer.Argument()], as_json: Json = False) -> None:
    """Restore a backup: the former name of `restore`."""
    restore(copy, as_json=as_json)


@device_app.command(epilog="Example: tacit device erase --yes")
def erase(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False, as_json: Json = False
) -> None:
    """Delete everything on this device. What was sent stays in the shared model."""
    from tacit.field.device.device_path import refuse_if_missing

    refuse_if_missing(device_path())
    if not yes:
        if not sys.stdin.isatty():
            raise ConfigError("Erasing needs a confirmation, and there is no terminal to ask for it.", "Give --yes.")
        typer.confirm(f"Delete {device_path()} and everything in it?", abort=True, err=True)
    with open_device() as device:
        device.erase()
    shell.screen.document({"erased": str(device_path())})
    shell.screen.say("Erased. What was sent before stays in the shared model. Backups still exist.")
