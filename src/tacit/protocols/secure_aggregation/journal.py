"""What a device stores before anything leaves, so that a restart cannot take back or repeat what was sent.

A device on a real machine keeps its records in its own file, in the transaction of what was learnt
(`tacit.field.device.masked_rounds`). A server keeps none: a coordinator that was killed does not ask for a round again
that it had begun.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

Record = tuple[int, bytes]


class Journal(Protocol):
    """A store of records: kinds are small numbers, contents are bytes. A record is stored whole or not at all."""

    def records(self) -> list[Record]:
        """Return all records, oldest first."""
        ...

    def append(self, kind: int, content: bytes) -> None:
        """Store one more record; when this returns, it is stored durably."""
        ...

    def rewrite(self, records: Iterable[Record]) -> None:
        """Replace all records, or none of them."""
        ...


class MemoryJournal:
    """A journal that lasts as long as its process: for simulations, where no device restarts."""

    def __init__(self) -> None:
        self._records: list[Record] = []

    def records(self) -> list[Record]:
        """Return all records."""
        return list(self._records)

    def append(self, kind: int, content: bytes) -> None:
        """Store one more record."""
        self._records.append((kind, content))

    def rewrite(self, records: Iterable[Record]) -> None:
        """Replace all records."""
        self._records = list(records)
