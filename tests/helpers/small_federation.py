"""A small federation that tests share: a catalogue, its terms, devices made cheaply."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from tacit.field.device import Device, ScryptCost
from tacit.field.device.history import HistoryEntry
from tacit.random import Key
from tacit.reasons import ReasonCode
from tacit.types import Array, Catalog, Labels, Vocabulary
from tacit.wire.federation import Federation
from tacit.wire.messages import Request, write_request, write_welcome

CHEAP = ScryptCost(log_n=10)
PASSPHRASE = "three small boats"
NAMES = [
    "Kiosk Aurora", "Bar Benedetta", "Cinema Corallo", "Dune Deli", "Eel House", "Fig Garden", "Grotto Gallery",
    "Hill Hotel", "Ink Library", "Jetty Jazz", "Kite Shop", "Lido Lounge", "Mill Museum",
    "North Noodles", "Opal Opera", "Pine Park",
]  # fmt: skip
KINDS = ["drinks", "culture", "outdoors", "food"]
CATALOG = Catalog(
    Vocabulary(np.array([f"place-{i:04d}-{name.split()[0].lower()}" for i, name in enumerate(NAMES)], dtype=object)),
    NAMES,
    Labels(np.arange(len(NAMES) + 1), (np.arange(len(NAMES)) % 4).astype(np.int32), KINDS),
)
OPTIONS: dict[str, dict[str, Any]] = {
    "fpl": {"factors": 4, "local_steps": 6, "learning_rate": 0.05},
    "fed-gmf": {"factors": 6, "learning_rate": 0.05},
}


def noon() -> datetime:
    return datetime(2026, 3, 1, 12, tzinfo=UTC)


def founded(method: str = "fpl", catalog: Catalog = CATALOG, **more: Any) -> Federation:
    return Federation.create("ab" * 16, "the small field", method, {**OPTIONS[method], **more}, catalog)


def first_shared(federation: Federation, catalog: Catalog = CATALOG, seed: int = 7) -> dict[str, Array]:
    return federation.first_model(catalog, Key(seed).child("learn", "init"))


def request(
    federation: Federation,
    number: int,
    shared: Mapping[str, Array] | None = None,
    *,
    learn: bool = True,
    counted: int | None = None,
) -> bytes:
    """A request in which the round before counted, unless it is said otherwise."""
    model = first_shared(federation) if shared is None else shared
    return write_request(
        federation, Request(number, federation.download(model), learn, number - 1 if counted is None else counted)
    )


def made(
    path: Path, federation: Federation | None = None, items: tuple[int, ...] = (1, 2, 5, 9), **given: Any
) -> Device:
    """A member with a history."""
    device = Device.create(path, PASSPHRASE, cost=CHEAP, clock=noon, **given)
    device.join(write_welcome(federation or founded(), CATALOG), "127.0.0.1", accepts={ReasonCode.NO_GUARANTEE})
    device.change(lambda before: before.model_copy(update={"masked_only": False}))
    device.history.add([HistoryEntry(CATALOG.item_ids[item], 1_700_000_000 + item) for item in items], CATALOG)
    return device


def copy_file(path: Path, to: Path) -> None:
    """Copy a device's file with the note beside it, as if there had never been another."""
    shutil.copy(path, to)
    shutil.copy(f"{path}.lock", f"{to}.lock")


__all__ = [
    *("CATALOG", "CHEAP", "KINDS", "NAMES", "PASSPHRASE"),
    *("copy_file", "first_shared", "founded", "made", "noon", "request"),
]
