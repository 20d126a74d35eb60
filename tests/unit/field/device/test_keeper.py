"""The system's keyring instead of a passphrase."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.commands import device_document
from helpers.small_federation import PASSPHRASE
from tacit.errors import DeviceError
from tacit.field.device import Device, ScryptCost
from tacit.field.device.keyring import SERVICE
from tacit.field.device.settings import USUAL_PI

pytest.importorskip("keyring", reason="keyring comes with the extra 'field'")
import keyring
from keyring.backend import KeyringBackend
from keyring.backends import fail, null
from keyring.errors import KeyringLocked


class InMemory(KeyringBackend):
    """A keyring as the system has one, without the system."""

    priority = 1  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[tuple[str, str], str] = {}
        self.locked = False

    def get_password(self, service: str, username: str) -> str | None:
        if self.locked:
            raise KeyringLocked("the collection is locked")
        return self.held.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.held[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.held[service, username]


@pytest.fixture
def ring() -> Iterator[InMemory]:
    before, made = keyring.get_keyring(), InMemory()
    keyring.set_keyring(made)
    yield made
    keyring.set_keyring(before)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TACIT_DEVICE", str(tmp_path / "device.db"))
    monkeypatch.delenv("TACIT_PASSPHRASE", raising=False)
    monkeypatch.setattr("tacit.field.device.device.ScryptCost", lambda: ScryptCost(log_n=10))
    return tmp_path / "device.db"


@pytest.mark.slow
def test_a_device_opens_with_the_keyring_until_the_user_chooses_a_passphrase(
    ring: InMemory,
    file: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert device_document(capsys, "init", "--keyring")["file"] == str(file)
    ((service, name),) = ring.held
    secret = ring.held[service, name]
    assert service == SERVICE
    assert len(secret) >= 43
    assert secret.encode() not in file.read_bytes(), "the key does not stand in the file"
    assert device_document(capsys, "share")["pi"] == USUAL_PI, "no passphrase is asked for"
    with pytest.raises(DeviceError, match="passphrase is wrong"):
        Device.open(file, PASSPHRASE)
    assert device_document(capsys, "backup", str(tmp_path / "backup"))["encrypted"], "the recovery code opens it"
    elsewhere = device_document(capsys, "--file", str(tmp_path / "new.db"), "restore", str(tmp_path / "backup"))
    assert "keyring" in elsewhere["error"]["message"]
    bare = Device.create(tmp_path / "none.db", PASSPHRASE, cost=ScryptCost(log_n=10), keeper="a name")
    with bare, pytest.raises(DeviceError, match="not be opened elsewhere"):
        bare.backup(tmp_path / "bare")
    assert "There is already a device" in device_document(capsys, "init", "--keyring")["error"]["message"]
    assert list(ring.held) == [(service, name)], "a secret for nothing is taken back"
    (tmp_path / "words").write_text(PASSPHRASE + "\n")
    assert device_document(capsys, "passphrase", "--new-file", str(tmp_path / "words"))["changed"]
    assert not ring.held
    with Device.open(file, PASSPHRASE) as device:
        device.backup(tmp_path / "copy")
    words = ("--passphrase-file", str(tmp_path / "words"))
    assert device_document(capsys, *words, "passphrase", "--keyring") == {"changed": True}
    monkeypatch.setenv("TACIT_PASSPHRASE", "another device's")
    assert device_document(capsys, "share")["pi"] == USUAL_PI
    assert device_document(capsys, "erase", "--yes")["erased"] == str(file)
    assert not ring.held
    assert not file.exists()


def test_a_keyring_that_is_locked_or_has_lost_the_key(
    ring: InMemory, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    device_document(capsys, "init", "--keyring")
    ring.locked = True
    error = device_document(capsys, "share")["error"]
    assert "cannot be used: the collection is locked" in error["message"]
    assert "unlock it" in error["hint"]
    assert "--keyring" not in error["hint"], "this command has no such option"
    ring.locked = False
    ring.held.clear()
    assert "does not hold the key" in device_document(capsys, "share")["error"]["message"]
    assert file.exists()


@pytest.mark.parametrize(("backend", "why"), [(fail.Keyring, "cannot be used"), (null.Keyring, "does not store")])
def test_a_machine_without_a_keyring_says_so_and_makes_nothing(
    ring: InMemory, file: Path, capsys: pytest.CaptureFixture[str], backend: type[KeyringBackend], why: str
) -> None:
    keyring.set_keyring(backend())
    error = device_document(capsys, "init", "--keyring")["error"]
    assert why in error["message"]
    assert "passphrase" in error["hint"]
    assert not file.exists()


def test_without_the_package_it_is_named(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "keyring", None)
    assert "not installed" in device_document(capsys, "init", "--keyring")["error"]["message"]
    assert not file.exists()


def test_a_keyring_in_the_clear_is_refused(ring: InMemory, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class InTheClear(InMemory):
        priority = 0.5  # type: ignore[assignment]

    keyring.set_keyring(in_the_clear := InTheClear())
    assert "does not protect" in device_document(capsys, "init", "--keyring")["error"]["message"]
    assert not in_the_clear.held
    assert not file.exists()


def test_a_passphrase_file_beside_a_keyring_is_not_ignored(
    ring: InMemory, file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    device_document(capsys, "init", "--keyring")
    refused = device_document(capsys, "--passphrase-file", str(tmp_path / "words"), "share")
    assert "in the keyring, not in a file" in refused["error"]["message"]


def test_no_secret_is_left_in_the_keyring(
    ring: InMemory, file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither of a change that failed, nor of a device that was erased, by whichever way."""

    def broken(*what: object, **more: object) -> None:
        raise DeviceError("The disk is full.", "")

    device_document(capsys, "init", "--keyring")
    ((service, name),) = ring.held
    with monkeypatch.context() as patched:
        patched.setattr(Device, "change_passphrase", broken)
        assert "full" in device_document(capsys, "passphrase", "--keyring")["error"]["message"]
    assert list(ring.held) == [(service, name)]
    with Device.open(file, ring.held[service, name]) as device:
        device.erase()
        assert device.is_erased
    assert not ring.held
