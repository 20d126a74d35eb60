"""A background service that takes part: a systemd user unit, a launchd agent or a task of Windows' scheduler.

The service runs `tacit device run --stay` as the user, with no rights of its own. None of the three was started in a
real login session by its makers yet (`systemd-analyze verify` accepts the unit); the commands say so.
"""

from __future__ import annotations

import os
import plistlib
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.sax.saxutils import escape

from tacit.errors import FieldError

Platform = Literal["linux", "darwin", "win32"]
NAME = "tacit-device"
LABEL = "org.tacit.device"
SECONDS = 30
BY_HAND = "Without a service: tacit device run --stay, in any terminal, or keep the page open."


@dataclass(frozen=True)
class ServiceUnit:
    """A file that describes the service, and the commands that start, end and ask for it."""

    platform: Platform
    path: Path
    content: bytes
    start: tuple[tuple[str, ...], ...]
    end: tuple[tuple[str, ...], ...]
    ask: tuple[str, ...]

    @classmethod
    def build(cls, command: Sequence[str], platform: str = sys.platform, home: Path | None = None) -> ServiceUnit:
        """Return the service of a platform that runs a command."""
        home = home or Path.home()
        if platform == "linux":
            config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
            unit = f"{NAME}.service"
            ctl = ("systemctl", "--user")
            return cls(
                "linux",
                config / "systemd" / "user" / unit,
                _systemd(command).encode(),
                ((*ctl, "daemon-reload"), (*ctl, "enable", "--now", unit)),
                ((*ctl, "disable", "--now", unit),),
                (*ctl, "is-active", unit),
            )
        if platform == "darwin":
            path, domain = home / "Library" / "LaunchAgents" / f"{LABEL}.plist", f"gui/{os.getuid()}"
            return cls(
                "darwin",
                path,
                _launchd(command),
                (("launchctl", "bootstrap", domain, str(path)),),
                (("launchctl", "bootout", f"{domain}/{LABEL}"),),
                ("launchctl", "print", f"{domain}/{LABEL}"),
            )
        if platform == "win32":
            path = home / "AppData" / "Local" / "tacit" / f"{NAME}.xml"
            return cls(
                "win32",
                path,
                _task(command).encode("utf-16"),
                (
                    ("schtasks", "/Create", "/TN", NAME, "/XML", str(path), "/F"),
                    ("schtasks", "/Run", "/TN", NAME),
                ),
                (("schtasks", "/End", "/TN", NAME), ("schtasks", "/Delete", "/TN", NAME, "/F")),
                ("schtasks", "/Query", "/TN", NAME),
            )
        raise FieldError(f"There is no background service for the platform '{platform}'.", BY_HAND)

    def install(self) -> None:
        """Write the file and start the service; if that is refused, nothing of it stays."""
        before = self.path.read_bytes() if self.path.is_file() else None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_bytes(self.content)
            self.path.chmod(0o600)
        except OSError as error:
            raise FieldError(
                f"The service cannot be installed: '{self.path}' cannot be written ({error.strerror}).", BY_HAND
            ) from None
        try:
            for command in self.start:
                _run(command)
        except FieldError:
            if before is None:
                self.path.unlink(missing_ok=True)
            else:
                self.path.write_bytes(before)
            raise

    def remove(self) -> bool:
        """End the service and remove its file; return whether there was one."""
        if not self.path.is_file():
            return False
        for command in self.end:
            _run(command)
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise FieldError(f"'{self.path}' cannot be removed: {error.strerror}.", "Remove it by hand.") from None
        return True

    @property
    def is_installed(self) -> bool:
        """Whether its file is there."""
        return self.path.is_file()

    def is_active(self) -> bool:
        """Say whether the system says that it runs."""
        try:
            _run(self.ask)
        except FieldError:
            return False
        return True


def _run(command: Sequence[str]) -> None:
    """Run a command of the system; a refusal is one clear message."""
    shown = " ".join(command)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except FileNotFoundError:
        raise FieldError(
            f"There is no '{command[0]}' on this machine, so no service can be installed.", BY_HAND
        ) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FieldError(f"'{shown}' did not work ({type(error).__name__}).", BY_HAND) from None
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()
        why = words[0] if words else f"exit code {done.returncode}"
        raise FieldError(f"The system refused '{shown}': {why}", BY_HAND)


def _systemd(command: Sequence[str]) -> str:
    quoted = " ".join('"' + part.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"' for part in command)
    return f"""[Unit]
Description=Tacit takes part for you
After=network-online.target

[Service]
ExecStart={quoted}
Restart=on-failure
RestartSec=60
Nice=10
NoNewPrivileges=yes

[Install]
WantedBy=default.target
"""


def _launchd(command: Sequence[str]) -> bytes:
    return plistlib.dumps(
        {
            "Label": LABEL,
            "ProgramArguments": list(command),
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": 60,
            "ProcessType": "Background",
        }
    )


def _task(command: Sequence[str]) -> str:
    program, arguments = command[0], subprocess.list2cmdline(command[1:])
    return f"""<?xml version="1.0" encoding="UTF-16"?>
<Task version="1.2" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task">
  <Triggers><LogonTrigger><Enabled>true</Enabled></LogonTrigger></Triggers>
  <Principals><Principal id="Author">
    <LogonType>InteractiveToken</LogonType><RunLevel>LeastPrivilege</RunLevel>
  </Principal></Principals>
  <Settings>
    <MultipleInstancesPolicy>IgnoreNew</MultipleInstancesPolicy>
    <DisallowStartIfOnBatteries>false</DisallowStartIfOnBatteries>
    <ExecutionTimeLimit>PT0S</ExecutionTimeLimit>
    <RestartOnFailure><Interval>PT1M</Interval><Count>3</Count></RestartOnFailure>
  </Settings>
  <Actions Context="Author"><Exec>
    <Command>{escape(program)}</Command><Arguments>{escape(arguments)}</Arguments>
  </Exec></Actions>
</Task>
"""
