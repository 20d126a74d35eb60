"""`tacit device service ...`: take part in the background, from login on."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import typer

from tacit.cli import app as shell
from tacit.cli.app import Json
from tacit.cli.device import device_app, device_path, given_passphrase_file, keyring_name, open_device
from tacit.cli.field import needs_flower
from tacit.errors import DeviceError

service_app = typer.Typer(no_args_is_help=True, help="Take part in the background, from login on.")
device_app.add_typer(service_app, name="service")


def _command() -> list[str]:
    """Return the command of the service: this Python, this device, and a passphrase that is not asked for."""
    command = [sys.executable, "-m", "tacit", "device", "--file", str(device_path().absolute())]
    file = given_passphrase_file()
    if keyring_name():
        return [*command, "run", "--stay", "--poll", "5"]
    if file is None:
        raise DeviceError(
            "A service cannot ask for the passphrase of this device.",
            "Move its key into the keyring (tacit device passphrase --keyring), or name a file with it: "
            "tacit device --passphrase-file FILE service install.",
        )
    _refuse_if_shared(file)
    return [*command, "--passphrase-file", str(file.absolute()), "run", "--stay", "--poll", "5"]


def _refuse_if_shared(file: Path) -> None:
    """Refuse a passphrase that other users of this machine can read."""
    if os.name == "posix" and file.exists() and file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise DeviceError(f"Other users of this machine can read '{file}'.", f"Protect it first: chmod 600 {file}")


@service_app.command(epilog="Example: tacit device --passphrase-file ~/.tacit-passphrase service install")
def install(as_json: Json = False) -> None:
    """Install and start a service of your own user that takes part in the background (systemd, launchd, Windows)."""
    needs_flower()
    from tacit.field.service_units import ServiceUnit

    unit = ServiceUnit.build(_command())
    open_device().close()  # a wrong passphrase is noticed now
    unit.install()
    shell.screen.document({"file": str(unit.path)})
    shell.screen.say(f"Installed: {unit.path}. This device takes part from now on, and after every login.")
    if unit.platform == "linux":
        shell.screen.say("To take part while you are logged out too: loginctl enable-linger")
    shell.screen.say("Services are new and were not tried on many systems yet. Check: tacit device service status.")


@service_app.command(epilog="Example: tacit device service remove")
def remove(as_json: Json = False) -> None:
    """End the service and remove it. The device and its membership stay."""
    from tacit.field.service_units import ServiceUnit

    was_there = ServiceUnit.build(()).remove()
    shell.screen.document({"removed": was_there})
    shell.screen.say("Removed. Nothing takes part in the background." if was_there else "There is no service.")


@service_app.command("status", epilog="Example: tacit device service status")
def service_status(as_json: Json = False) -> None:
    """Show whether the service is installed and runs, and what the device does."""
    from tacit.field.service_units import ServiceUnit

    unit = ServiceUnit.build(())
    is_active = unit.is_installed and unit.is_active()
    shell.screen.document({"installed": unit.is_installed, "active": is_active, "file": str(unit.path)})
    if not unit.is_installed:
        shell.screen.say("No service is installed. To install it: tacit device service install.")
    else:
        shell.screen.say(f"The service is installed and {'runs' if is_active else 'does not run'} ({unit.path}).")
    shell.screen.say("What the device does: tacit device status.")
