"""An old copy of a device's file never makes a second ciphertext, nor a second vector, under keys that were used."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from helpers.hostile_sessions import EASY, PHASES, HostileCoordinator
from helpers.killed_processes import was_killed
from helpers.refusals import refused
from helpers.small_federation import CATALOG, CHEAP, PASSPHRASE, copy_file, founded, made, noon, request
from tacit.errors import ConsentError, DeviceError, SecureSumError, WireError
from tacit.field.device import Device, Sharing
from tacit.field.device.history import HistoryEntry
from tacit.field.device.masked_rounds import DeviceFileJournal
from tacit.field.device.recovery import read_code
from tacit.protocols.secure_aggregation import Identity
from tacit.protocols.secure_aggregation.device import SecureDevice
from tacit.protocols.secure_aggregation.server import ServerPhase
from tacit.protocols.secure_aggregation.two_stage import RoundContext, SecureAggregationConfig
from tacit.random import Key
from tacit.reasons import ReasonCode
from tacit.wire.messages import model_in

ONE_STAGE = SecureAggregationConfig(two_stage=False, n_min=2, k_min=1, spare=0, corrupted=0.0, dropped=0.0)


class Copied(HostileCoordinator):
    """Keeps the device's file as it is before each turn."""

    def __init__(self, device: Device, path: Path) -> None:
        super().__init__(founded(), device)
        self.path = path

    def before_turn(self, phase: ServerPhase) -> None:
        copy_file(self.path, self.copy(phase))

    def copy(self, phase: ServerPhase) -> Path:
        return self.path.with_name(f"{phase.name}.db")


@pytest.fixture
def session(tmp_path: Path) -> Copied:
    federation, path = founded(), tmp_path / "device.db"
    device = made(path, federation)
    device.share(Sharing(device_policy=EASY, masked_only=False))
    held, opening = Copied(device, path), request(federation, 0)
    shapes = federation.built.shapes(federation.first_model(CATALOG, Key(7)))
    here = RoundContext(federation.digest.hex(), 0, model_in(opening), bytes(32))
    steps = held.hold(0, opening, [here.adding_all(shapes, federation.ring, 3, ONE_STAGE)])
    assert [step[1] for step in steps] == [phase.name for phase in PHASES]
    return held


def restored(session: Copied, phase: ServerPhase) -> Device:
    """The device as it was before a phase, with another history than it went on with."""
    device = Device.open(session.copy(phase), PASSPHRASE, noon)
    device.history.add([HistoryEntry(CATALOG.item_ids[14], 1_700_000_100)], CATALOG)
    return device


@pytest.mark.parametrize("phase", PHASES[1:], ids=lambda phase: phase.name.lower())
def test_a_copy_from_within_a_session_gives_the_same_bytes_though_its_history_changed(
    session: Copied, phase: ServerPhase
) -> None:
    with restored(session, phase) as device:
        for at in range(phase, len(PHASES)):
            assert device.answers.step_session(session.turns[at])[0] == session.answers[at]


def test_a_copy_from_before_the_session_draws_new_keys(session: Copied) -> None:
    with restored(session, ServerPhase.ADVERTS) as device:
        advert, _ = device.answers.step_session(session.turns[0])
        assert advert != session.answers[0]
        with pytest.raises(SecureSumError):  # the roster holds keys that this copy does not have
            device.answers.step_session(session.turns[2])


def test_what_was_prepared_does_not_leave_once_settings_forbid_more(session: Copied) -> None:
    with Device.open(session.copy(ServerPhase.VECTORS), PASSPHRASE, noon) as device:
        device.share(Sharing(pi=0.1, device_policy=EASY, masked_only=False))
        with refused(ConsentError, ReasonCode.SETTINGS_NARROWED):
            device.answers.step_session(session.turns[2])
        assert not device.ledger.list()


def test_a_restored_backup_leaves_the_session(session: Copied, tmp_path: Path) -> None:
    with Device.open(session.copy(ServerPhase.VECTORS), PASSPHRASE, noon) as device:
        device.backup(tmp_path / "copy")
    with Device.restore(tmp_path / "copy", tmp_path / "restored.db", PASSPHRASE, noon) as device:
        with refused(WireError, ReasonCode.OUT_OF_TURN):
            device.answers.step_session(session.turns[2])
        with refused(ConsentError, ReasonCode.SITS_OUT, round=1):
            device.answers.step_session(session.turns[0])


# --- a whole file that was put back ----------------------------------------------------------------------------------


def answered(device: Device, number: int, **more: Any) -> bytes:
    return device.release(device.learn(request(founded(), number, **more)))


def also_readable(device: Device) -> None:
    device.share(device.sharing.model_copy(update={"masked_only": False}))


def put_back(path: Path, way: str) -> Device:
    """A device whose file is again as it was before round 1, in one of the ways in which that happens."""
    with made(path) as device:
        device.share(Sharing(pi=1.0, device_policy=EASY, masked_only=False))
        answered(device, 0)
        device.backup(path.with_suffix(".backup"))
        shutil.copy(path, path.with_suffix(".copy"))
        answered(device, 1)
        answered(device, 2)
    if way == "restored":
        return Device.restore(path.with_suffix(".backup"), path.with_name("new.db"), PASSPHRASE, noon)
    if way == "copied elsewhere":
        return Device.open(path.with_suffix(".copy"), PASSPHRASE, noon)
    shutil.copy(path.with_suffix(".copy"), path)  # over the device itself
    return Device.open(path, PASSPHRASE, noon)


@pytest.mark.parametrize("way", ["restored", "copied elsewhere", "put over the file"])
def test_a_file_that_was_put_back_sits_out_until_it_cannot_contradict_itself(tmp_path: Path, way: str) -> None:
    with put_back(tmp_path / "device.db", way) as device:
        path = device._store.path
        assert device.participation.sits_out_until == -1
        assert device.sharing.masked_only
        also_readable(device)
        with refused(ConsentError, ReasonCode.SITS_OUT, round=3):  # round 2 was answered, the file does not know
            answered(device, 2)
    with Device.open(path, PASSPHRASE, noon) as device:
        assert device.participation.sits_out_until == 3
        with refused(ConsentError, ReasonCode.SITS_OUT, round=3):
            answered(device, 3)
        assert answered(device, 4)
        assert device.participation.sits_out_until is None
        assert [entry.round for entry in device.ledger.list()] == [0, 4]


def test_the_draws_of_a_restored_device_are_new(tmp_path: Path) -> None:
    path = tmp_path / "device.db"
    with made(path, seed=7, lane=2) as device:
        device.share(Sharing(pi=1.0, device_policy=EASY, masked_only=False))
        device.backup(tmp_path / "copy")
        rounds = [answered(device, number) for number in (0, 1, 2)]
    with Device.restore(tmp_path / "copy", tmp_path / "new.db", PASSPHRASE, noon) as device:
        also_readable(device)
        with refused(ConsentError, ReasonCode.SITS_OUT):
            answered(device, 0)  # a coordinator that lies about the round it is in
        assert answered(device, 2, counted=-1) not in rounds


def test_a_file_that_only_moved_on_does_not_sit_out(tmp_path: Path) -> None:
    path = tmp_path / "device.db"
    made(path).close()
    for _ in range(3):
        with Device.open(path, PASSPHRASE, noon) as device, Device.open(path, PASSPHRASE, noon) as other:
            other.pause()
            device.resume()
    with Device.open(path, PASSPHRASE, noon) as device:
        assert device.participation.sits_out_until is None


def test_sums_that_may_have_been_joined_since_are_counted(tmp_path: Path) -> None:
    policy = EASY.model_copy(update={"cool_down": 5, "most_rounds": 40})
    with made(tmp_path / "device.db") as device:
        device.share(Sharing(device_policy=policy, masked_only=False))
        device.backup(tmp_path / "copy")
    with Device.restore(tmp_path / "copy", tmp_path / "new.db", PASSPHRASE, noon) as device:
        also_readable(device)
        with refused(ConsentError, ReasonCode.SITS_OUT, round=65):
            answered(device, 60)
        history = SecureDevice(Identity.fresh(), policy, DeviceFileJournal(device._store)).history
        assert history.rounds == set(range(0, 61, 6))
        assert history.latest[0] == 60


# --- one program at a time -------------------------------------------------------------------------------------------


def test_two_programs_do_not_take_part_with_one_file(tmp_path: Path) -> None:
    path = tmp_path / "device.db"
    with made(path) as one, Device.open(path, PASSPHRASE, noon) as other:
        answered(one, 0)
        with pytest.raises(DeviceError, match="only one can at a time"):
            answered(other, 1)
        with pytest.raises(DeviceError, match="only one can at a time"):
            other.erase()
        other.pause()  # what a person decides needs no lock
        assert one.sharing.paused
        other.resume()
        one.close()
        answered(other, 1)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_killed_program_leaves_no_lock_behind(tmp_path: Path) -> None:
    path = tmp_path / "device.db"
    made(path).close()

    def take_part() -> None:
        device = Device.open(path, PASSPHRASE, noon)
        answered(device, 0)
        os.kill(os.getpid(), signal.SIGKILL)

    assert was_killed(take_part)
    with Device.open(path, PASSPHRASE, noon) as device:
        assert device.participation.sits_out_until is None
        answered(device, 1)


# --- a forgotten passphrase ------------------------------------------------------------------------------------------


def test_a_recovery_code_opens_the_device_and_its_backups(tmp_path: Path) -> None:
    path = tmp_path / "device.db"
    with made(path) as device:
        with pytest.raises(DeviceError, match="no recovery code"):
            Device.open(path, "x", by="recovery")
        first = device.make_recovery_code()
        device.backup(tmp_path / "copy")
        second = device.make_recovery_code()
    assert len(first) == 29
    assert second.encode() not in path.read_bytes()
    with pytest.raises(DeviceError, match="wrong"):
        Device.open(path, first, noon, by="recovery")
    typed = read_code(second.lower().replace("-", " ").replace("0", "o").replace("1", "l"))
    with Device.open(path, typed, noon, by="recovery") as device:
        device.change_passphrase("a longer walk", CHEAP)
    with Device.open(path, "a longer walk", noon) as device:
        assert len(device.history) == 4
    with Device.restore(tmp_path / "copy", tmp_path / "new.db", first, noon, by="recovery") as device:
        assert len(device.history) == 4
    for wrong in ("", "abc", second + "A", "U" * 25):
        with pytest.raises(DeviceError, match="not a recovery code"):
            read_code(wrong)
