"""The background service: one file and a few commands of the system, or one clear message and nothing left behind."""

from __future__ import annotations

import os
import plistlib
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from helpers.commands import run_command
from helpers.small_federation import CHEAP, PASSPHRASE
from tacit.errors import DeviceError, FieldError
from tacit.field.device import Device
from tacit.field.service_units import ServiceUnit

pytest.importorskip("flwr", reason="the field needs Flower")
COMMAND = ("/usr/bin/python3", "-m", "tacit", "device", "--file", "/home/a b/100%.db", "run", "--stay")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a device, and a `systemctl` that writes down what it is told and then does as `answer` says."""
    script = tmp_path / "bin" / "systemctl"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\necho "$@" >> "{tmp_path}/told"\n. "{tmp_path}/answer"\n')
    script.chmod(0o755)
    (tmp_path / "answer").write_text("exit 0\n")
    secret = tmp_path / "secret"
    secret.write_text(PASSPHRASE + "\n")
    secret.chmod(0o600)
    Device.create(tmp_path / "device.db", PASSPHRASE, cost=CHEAP).close()
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("TACIT_DEVICE", str(tmp_path / "device.db"))
    return tmp_path


linux = pytest.mark.skipif(sys.platform != "linux", reason="systemd")


@linux
def test_it_is_installed_asked_for_and_removed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = ("device", "--passphrase-file", str(home / "secret"))
    code, _, err = run_command(capsys, *secret, "service", "install")
    assert code == 0, err
    unit = home / "config" / "systemd" / "user" / "tacit-device.service"
    assert unit.stat().st_mode & 0o077 == 0
    assert f'"{home / "device.db"}"' in unit.read_text()
    assert PASSPHRASE not in unit.read_text()
    assert run_command(capsys, "device", "service", "status")[0] == 0
    assert run_command(capsys, "device", "service", "remove")[0] == 0
    assert not unit.exists()
    told = (home / "told").read_text().splitlines()
    name = "tacit-device.service"
    assert told == [
        "--user daemon-reload",
        f"--user enable --now {name}",
        f"--user is-active {name}",
        f"--user disable --now {name}",
    ]


@linux
def test_without_rights_there_is_one_message_and_nothing_is_left(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "answer").write_text("echo Failed to connect to bus: No medium found >&2; exit 1\n")
    secret = ("device", "--passphrase-file", str(home / "secret"))
    code, _, err = run_command(capsys, *secret, "service", "install")
    assert code == FieldError.exit_code
    assert "No medium found" in err
    assert "Traceback" not in err
    assert not list((home / "config").rglob("*.service"))
    (home / "config" / "systemd" / "user").rmdir()
    (home / "config" / "systemd" / "user").write_text("a file where a folder should be")
    assert run_command(capsys, *secret, "service", "install")[0] == FieldError.exit_code


@linux
def test_what_was_installed_stays_where_a_change_is_refused(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = ("device", "--passphrase-file", str(home / "secret"))
    assert run_command(capsys, *secret, "service", "install")[0] == 0
    unit = home / "config" / "systemd" / "user" / "tacit-device.service"
    unit.write_text(unit.read_text() + "# as the user changed it\n")
    before = unit.read_bytes()
    (home / "answer").write_text("echo Access denied >&2; exit 1\n")
    for words in ((*secret, "service", "install"), ("device", "service", "remove")):
        code, _, err = run_command(capsys, *words)
        assert (code, "Access denied" in err, "Traceback" in err) == (FieldError.exit_code, True, False)
        assert unit.read_bytes() == before
    assert Device.open(home / "device.db", PASSPHRASE).membership is None, "the device still opens"


@linux
def test_a_passphrase_must_be_there_private_and_right(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(capsys, "device", "service", "install")[0] == DeviceError.exit_code
    (home / "secret").chmod(0o644)
    secret = ("device", "--passphrase-file", str(home / "secret"), "service", "install")
    assert run_command(capsys, *secret)[0] == DeviceError.exit_code
    (home / "secret").chmod(0o600)
    (home / "secret").write_text("another one entirely\n")
    assert run_command(capsys, *secret)[0] == DeviceError.exit_code
    assert not (home / "told").exists()


def test_each_system_gets_its_own_file(tmp_path: Path) -> None:
    agent = ServiceUnit.build(COMMAND, "darwin", tmp_path)
    assert plistlib.loads(agent.content)["ProgramArguments"] == list(COMMAND)
    task = ServiceUnit.build(COMMAND, "win32", tmp_path)
    found = ET.fromstring(task.content.decode("utf-16"))
    assert [one.text for one in found.iter() if one.tag.endswith("}Command")] == [COMMAND[0]]
    with pytest.raises(FieldError):
        ServiceUnit.build(COMMAND, "plan9", tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_accepts_the_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    unit = ServiceUnit.build((sys.executable, *COMMAND[1:]), "linux", tmp_path)
    unit.path.parent.mkdir(parents=True)
    unit.path.write_bytes(unit.content)
    done = subprocess.run(
        ["systemd-analyze", "--user", "verify", str(unit.path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
