"""The sealed root of an open file: what it knows of every row, as it was read last, or as it will be written."""

from __future__ import annotations

import sqlite3

from tacit.field.device.sealed_root import SealedRoot, damage_error
from tacit.field.device.vault import Vault


class OpenRoot:
    """The root of one connection; `being_written` is none outside a transaction."""

    def __init__(self, connection: sqlite3.Connection, vault: Vault) -> None:
        self._connection, self._vault = connection, vault
        self._known: tuple[bytes, SealedRoot] | None = None  # the root as it was read last
        self.being_written: SealedRoot | None = None
        self.is_changed = False

    def read(self) -> SealedRoot:
        """Return the root as the file has it now, to be changed."""
        found = self._connection.execute("SELECT sealed FROM root").fetchone()
        return self._unseal(None if found is None else found[0])

    def of_rows(self, sealed: bytes | None) -> SealedRoot:
        """Return the root that holds for rows read in the same statement as `sealed`."""
        if self.being_written is not None:
            return self.being_written
        if self._known is None or self._known[0] != sealed:
            self._known = None
            root = self._unseal(sealed)
            assert sealed is not None
            self._known = (sealed, root)
        return self._known[1]

    def change(self) -> SealedRoot:
        """Return the root to write a change into; there is none outside a transaction."""
        assert self.being_written is not None, "a device's file changes inside a transaction only"
        self.is_changed = True
        return self.being_written

    def write(self, root: SealedRoot) -> None:
        """Seal a root anew, inside a transaction; its counter goes up."""
        root.counter += 1
        sealed = self._vault.seal(root.pack(), "root", 0)
        self._connection.execute("INSERT OR REPLACE INTO root VALUES (0, ?)", (sealed,))

    def _unseal(self, sealed: object) -> SealedRoot:
        if not isinstance(sealed, bytes):
            raise damage_error("root", 0)
        return SealedRoot.unpack(self._vault.unseal(sealed, "root", 0))
