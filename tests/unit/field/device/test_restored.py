"""An old copy of a device's file never makes a second ciphertext, nor a second vector, under keys that were used."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from helpers.hostile_sessions import EASY, PHASES, HostileCoordinator
from helpers.refusals import refused
from helpers.small_federation import CATALOG, PASSPHRASE, founded, made, noon, request
from tacit.errors import ConsentError, SecureSumError, WireError
from tacit.field.device import Device, Sharing
from tacit.field.device.history import HistoryEntry
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
        shutil.copy(self.path, self.copy(phase))

    def copy(self, phase: ServerPhase) -> Path:
        return self.path.with_name(f"{phase.name}.db")


@pytest.fixture
def session(tmp_path: Path) -> Copied:
    federation, path = founded(), tmp_path / "device.db"
    device = made(path, federation)
    device.share(Sharing(guards=EASY))
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
            assert device.turn(session.turns[at])[0] == session.answers[at]


def test_a_copy_from_before_the_session_draws_new_keys(session: Copied) -> None:
    with restored(session, ServerPhase.ADVERTS) as device:
        advert, _ = device.turn(session.turns[0])
        assert advert != session.answers[0]
        with pytest.raises(SecureSumError):  # the roster holds keys that this copy does not have
            device.turn(session.turns[2])


def test_what_was_prepared_does_not_leave_once_settings_forbid_more(session: Copied) -> None:
    with Device.open(session.copy(ServerPhase.VECTORS), PASSPHRASE, noon) as device:
        device.share(Sharing(pi=0.1, guards=EASY))
        with refused(ConsentError, ReasonCode.SETTINGS_NARROWED):
            device.turn(session.turns[2])
        assert not device.ledger.list()


def test_an_imported_copy_sits_the_session_out(session: Copied, tmp_path: Path) -> None:
    with Device.open(session.copy(ServerPhase.VECTORS), PASSPHRASE, noon) as device:
        device.export(tmp_path / "copy")
    with Device.import_copy(tmp_path / "copy", tmp_path / "imported.db", PASSPHRASE, noon) as device:
        with refused(WireError, ReasonCode.OUT_OF_TURN):
            device.turn(session.turns[2])
        with refused(SecureSumError, ReasonCode.ROUND_REPEATED):
            device.turn(session.turns[0])
