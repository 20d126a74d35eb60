"""The batches in a coordinator's journal: which devices are summed together, and for whom a batch waits.

`batches.py` has the rules by which a batch is chosen.
"""

from __future__ import annotations

from collections.abc import Iterable

from tacit.field.coordinator.journal_file import JournalFile


class BatchBook:
    """The batches in an open journal."""

    def __init__(self, file: JournalFile) -> None:
        self._file = file

    def note(self, batch: int, half: int, devices: Iterable[int], staying: Iterable[int] = ()) -> None:
        """Note who are summed together, and who of them stays with the others, before they learn of each other."""
        change = (
            "UPDATE devices SET batch = ?, half = ?, stays = 0, cohorts = cohorts + 1 WHERE number = ? AND batch != ?"
        )
        with self._file.transaction():
            self._file.connection.executemany(change, [(batch, half, device, batch) for device in devices])
            stay = "UPDATE devices SET stays = 1 WHERE number = ?"
            self._file.connection.executemany(stay, [(device,) for device in staying])

    def note_missing(self, devices: Iterable[int], now: int) -> None:
        """Note for which devices their batches wait; those that were waited for before keep their time."""
        before = {number for (number,) in self._file.read("SELECT number FROM devices WHERE missing")}
        changes = [(now, one) for one in set(devices) - before] + [(0, one) for one in before - set(devices)]
        if changes:
            with self._file.transaction():
                self._file.connection.executemany("UPDATE devices SET missing = ? WHERE number = ?", changes)

    @property
    def smallest(self) -> int:
        """How many devices the smallest batch without a revoked one has; 0 without any."""
        sizes = "SELECT count(*) AS size FROM devices WHERE batch > 0 GROUP BY batch HAVING sum(revoked) = 0"
        return self._file.read_number(f"SELECT coalesce(min(size), 0) FROM ({sizes})")
