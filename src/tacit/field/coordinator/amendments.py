"""The amendments of a federation in its coordinator's journal, and the models that were learnt before each of them.

Only differences are kept, with the terms that the federation was founded on: an earlier catalogue is made again from
them when a model of its time is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tacit.errors import StorageError
from tacit.field.coordinator.journal_file import JournalFile
from tacit.protocols.secure_aggregation.identity import Identity
from tacit.random import Key
from tacit.types import Array, Catalog
from tacit.wire.amendments import AmendedFederation, read_amendment, write_amendment, write_chain
from tacit.wire.federation import Federation
from tacit.wire.messages import open_welcome, unpack, write_welcome

AUTHORITY, FOUNDING, WELCOME = "authority", "founding", "welcome"  # names of facts


@dataclass(frozen=True)
class StoredModel:
    """A model as it was stored, and after which amendment."""

    round: int
    shared: dict[str, Array]
    amendment: int


class AmendmentLog:
    """The amendments in an open journal."""

    def __init__(self, file: JournalFile) -> None:
        self._file = file

    def since(self, digest: bytes) -> bytes:
        """Return the amendments since the terms of a digest, as a chain; nothing if there are none such terms."""
        found = self._file.read("SELECT number FROM amendments WHERE before = ?", (digest,))
        return write_chain(self._contents(found[0][0])) if found else b""

    def __len__(self) -> int:
        return self._file.read_number("SELECT count(*) FROM amendments")

    def _contents(self, first: int = 1, last: int = 2**31) -> list[bytes]:
        which = "SELECT content FROM amendments WHERE number BETWEEN ? AND ? ORDER BY number"
        return [content for (content,) in self._file.read(which, (first, last))]

    def add(
        self,
        catalog: Catalog,
        rollback: tuple[int, int] | None = None,
        method: tuple[str, Mapping[str, Any]] | None = None,
    ) -> AmendedFederation:
        """Sign and keep one more amendment, inside a transaction: a catalogue, an earlier model, or another method."""
        current = self._file.fact(WELCOME)
        if current is None:
            raise StorageError("The journal has no federation.", "Restore a copy of it.")
        federation, before = open_welcome(current)
        secret = self._file.fact(AUTHORITY) if federation.authority is not None else None
        content, amended = write_amendment(
            federation, before, catalog, None if secret is None else Identity(secret), rollback, method
        )
        row = (amended.federation.number, federation.digest, content)
        self._file.connection.execute("INSERT INTO amendments (number, before, content) VALUES (?, ?, ?)", row)
        if self._file.fact(FOUNDING) is None:
            self._file.keep_fact(FOUNDING, current)
        self._file.keep_fact(WELCOME, write_welcome(amended.federation, catalog))
        return amended

    def at(self, number: int) -> tuple[Federation, Catalog]:
        """Return the federation and its catalogue after an amendment; 0: as it was founded."""
        founding = self._file.fact(FOUNDING) or self._file.fact(WELCOME)
        assert founding is not None
        federation, catalog = open_welcome(founding)
        for content in self._contents(1, number):
            amended = read_amendment(content, federation, catalog)
            federation, catalog = amended.federation, amended.catalog
        return federation, catalog

    def model(self) -> StoredModel | None:
        """Return the newest model, as it was stored."""
        newest = "SELECT round, content, amendment FROM models ORDER BY round DESC LIMIT 1"
        found = self._file.read(newest)
        return StoredModel(found[0][0], unpack(found[0][1]), found[0][2]) if found else None

    def grow_model(self, federation: Federation, catalog: Catalog, key: Key) -> dict[str, Array] | None:
        """Return the newest model as it is under the present catalogue; none before the first round of this method."""
        stored = self.model()
        if stored is None or stored.amendment == federation.number:
            return None if stored is None else stored.shared
        earlier, before = self.at(stored.amendment)
        if not earlier.learns_like(federation):
            return None
        if earlier.catalog == federation.catalog:
            return stored.shared
        first, later = earlier.first_model(before, key), federation.first_model(catalog, key)
        return federation.built.grow(stored.shared, first, later)
