"""Everything that can be read from a device's file, and a file to damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helpers.hostile_sessions import EASY, HostileCoordinator
from helpers.small_federation import CATALOG, PASSPHRASE, copy_file, founded, made, noon, request
from tacit.field.device import Device, Sharing
from tacit.protocols.secure_aggregation.server import ServerPhase
from tacit.protocols.secure_aggregation.two_stage import RoundContext, SecureAggregationConfig
from tacit.random import Key
from tacit.wire.messages import model_in

ONE_STAGE = SecureAggregationConfig(two_stage=False, n_min=2, k_min=1, spare=0, corrupted=0.0, dropped=0.0)
PLACES = (
    *("root", "identity", "sharing", "hidden", "welcome", "address", "line", "model", "private", "learnt"),
    *("outbox", "opening", "prepared", "turn", "turned", "masked", "known", "measured", "uses"),
    *("witness", "directory"),
)


class StoppedSession(HostileCoordinator):
    """Keeps the device's file as it is before its vector is asked for."""

    path: Path

    def before_turn(self, phase: ServerPhase) -> None:
        if phase == ServerPhase.VECTORS:
            copy_file(self.path, self.path.with_suffix(".kept"))


def full_device(path: Path) -> Path:
    """A member with a history, a ledger with marks, something hidden, and a secure sum that has begun."""
    federation = founded()
    with made(path, federation, seed=7, lane=2) as device:
        device.share(Sharing(pi=0.7, coin="row", never_categories=("food",), device_policy=EASY, masked_only=False))
        device.keep_connection({"address": "127.0.0.1:1", "roots": "", "key": "none"})
        for number in range(2):
            entry = device.learn(request(federation, number))
            device.release(entry)
            device.answers.mark_sent(entry)
        device.preferences.hide("Pine Park")
        opening, shapes = request(federation, 2), federation.built.shapes(federation.first_model(CATALOG, Key(7)))
        session = StoppedSession(federation, device)
        session.path = path
        here = RoundContext(federation.digest.hex(), 2, model_in(opening), bytes(32))
        session.hold(2, opening, [here.adding_all(shapes, federation.ring, 3, ONE_STAGE)])
    copy_file(path.with_suffix(".kept"), path)
    return path


def read_everything(path: Path) -> dict[str, Any]:
    """Open a device and return all that it knows, as values that can be compared."""
    with Device.open(path, PASSPHRASE, noon) as device:
        member = device.membership
        return {
            "readable": device.readable(),
            "identity": device.identity,
            "recommended": [str(found.item) for found in device.recommend(5)],
            "places": {name: device._store.get(name) for name in PLACES},
            "turns": device._store.rows("turns"),
            "federation": None if member is None else member.federation.digest,
        }
