"""A device's file, open, for a program that waits: settings, connection, ledger. Nothing here learns or reads models.

A program that takes part for months waits nearly all of that time. It holds this, and leaves learning to a process of
its own that ends with the round (`carriers.round_process`): what learning needs stays out of memory in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from pathlib import Path
from typing import Self

from tacit.errors import DeviceError
from tacit.field.device.directory import DeviceDirectory
from tacit.field.device.ledger import Clock, Ledger, system_clock
from tacit.field.device.participation import Participation
from tacit.field.device.sealed_root import RESTORE
from tacit.field.device.settings import Sharing
from tacit.field.device.store import LockName, Store
from tacit.plain_text import strip_controls
from tacit.protocols.secure_aggregation.identity import KEY_BYTES, Identity
from tacit.wire.envelope import digest_in, terms_in

NEXT_KEY = "next_key"  # in a connection: the key that its coordinator was asked to take in place of the old one
NEXT_IDENTITY = "next_identity"  # the same for the key that signs for the identity


def read_identity(store: Store) -> Identity:
    """Return the key by which others in this federation know a device; the name of a later key stands behind it."""
    stored = store.get("identity")
    if stored is None:
        raise DeviceError("This device's file has no identity.", RESTORE)
    return Identity(stored[:KEY_BYTES], stored[KEY_BYTES:])


class DeviceFile:
    """What of a device must be at hand while nothing is learnt."""

    def __init__(self, store: Store, clock: Clock = system_clock) -> None:
        self._store, self._clock = store, clock
        self.ledger = Ledger(store)
        self.participation = Participation(store, clock)
        self.directory = DeviceDirectory(store, clock)
        self.participation.keep_former_enrolment()

    @classmethod
    def open_waiting(cls, path: Path, passphrase: str, by: LockName = "lock") -> DeviceFile:
        """Open a file to wait with.

        One that was put back, copied or moved from an earlier format is settled first, which takes the whole device.
        """
        store = Store.open(path, passphrase, by)
        if store.is_copy or store.is_new:
            from tacit.field.device.device import Device

            return Device(store)
        return DeviceFile(store)

    def wait_again(self) -> DeviceFile:
        """Open the same file once more, to wait with in another thread; the passphrase is not needed a second time."""
        return DeviceFile(self._store.open_again(), self._clock)

    def close(self) -> None:
        """Let the file go."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *what: object) -> None:
        self.close()

    @property
    def store(self) -> Store:
        """The file, for what else a device takes part in: a network of peers keeps its state there."""
        return self._store

    def reread(self) -> None:
        """Notice that another program joined or left a federation: nothing of that is cached here."""

    @property
    def terms_digest(self) -> bytes | None:
        """The digest of the terms that this device agreed to; none where it is no member."""
        welcome = self._store.get("welcome")
        return None if welcome is None else digest_in(welcome)

    @property
    def federation_id(self) -> str:
        """The id of the federation; empty where this device is no member."""
        welcome = self._store.get("welcome")
        return "" if welcome is None else str(terms_in(welcome)["id"])

    @property
    def identity(self) -> bytes:
        """The name by which others in this federation know this device in secure sums."""
        return read_identity(self._store).public

    @property
    def sharing(self) -> Sharing:
        """What may leave, as it is on disk now."""
        stored = self._store.get("sharing")
        if stored is None:
            raise DeviceError("This device's file has no settings.", RESTORE)
        return Sharing.model_validate_json(stored)

    def put_sharing(self, sharing: Sharing) -> None:
        """Store what may leave, inside a transaction."""
        self._store.put("sharing", sharing.model_dump_json().encode())

    def now(self) -> str:
        """Return the time, as the ledger writes it."""
        return self._clock().astimezone(UTC).isoformat(timespec="seconds")

    def keep_connection(self, line: Mapping[str, str]) -> None:
        """Store what the carrier needs to reach the coordinator: an address, certificates, this device's key there."""
        with self._store.transaction():
            self._store.put_json("line", dict(line))

    @property
    def connection(self) -> dict[str, str]:
        """What the carrier needs to reach the coordinator; empty without one."""
        found: dict[str, str] = self._store.get_json("line") or {}
        return found

    @property
    def group(self) -> str:
        """The name and address of the federation, to be shown; empty where this device is no member."""
        welcome, address = self._store.get("welcome"), self._store.get_json("address")
        if welcome is None:
            return ""
        name = strip_controls(terms_in(welcome)["name"])
        return f"{name} ({address})" if address else name

    @property
    def has_model(self) -> bool:
        """Whether a model was received: recommendations work without a connection."""
        return self._store.get("model") is not None

    @property
    def is_erased(self) -> bool:
        """Whether its file is gone."""
        return not self._store.path.exists()
