"""Strikes: in which rounds a device sent what no honest device sends, as the coordinator's journal has them.

A strike is the number of a device, a round and a code; what the device sent is not kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tacit.field.coordinator.journal_file import JournalFile
from tacit.reasons import ReasonCode


@dataclass(frozen=True)
class Strikes:
    """In how many rounds a device sent what no honest device sends, when last, and what."""

    device: int
    count: int
    last_round: int
    codes: tuple[ReasonCode, ...]


class StrikeLog:
    """The strikes in an open journal."""

    def __init__(self, file: JournalFile) -> None:
        self._file = file

    def note(self, number: int, strikes: Mapping[int, ReasonCode]) -> None:
        """Note which devices sent what no honest device sends in a round, and what it was."""
        with self._file.transaction():
            rows = [(device, number, str(code)) for device, code in sorted(strikes.items())]
            self._file.connection.executemany("INSERT OR IGNORE INTO strikes VALUES (?, ?, ?)", rows)

    def by_device(self) -> list[Strikes]:
        """Return the strikes of every device that has any, most first."""
        found = self._file.read(
            "SELECT device, count(DISTINCT round), max(round), group_concat(DISTINCT code) FROM strikes "
            "GROUP BY device ORDER BY 2 DESC, 1"
        )
        return [
            Strikes(device, count, last, tuple(ReasonCode(code) for code in sorted(codes.split(","))))
            for device, count, last, codes in found
        ]
