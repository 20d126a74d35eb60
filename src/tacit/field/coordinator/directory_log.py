"""The directory in a coordinator's journal: all identities that ever enrolled, and what a witness has signed of them.

Identities are appended when devices enrol and never removed. `directory.py` makes proofs of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from tacit.field.coordinator.journal_file import JournalFile
from tacit.field.coordinator.notice_book import NoticeBook
from tacit.protocols.directory import DirectoryCheckpoint


class DirectoryLog:
    """The directory in an open journal."""

    def __init__(self, file: JournalFile, notices: NoticeBook, log: bytes) -> None:
        self._file, self._notices, self._log = file, notices, log

    def identities(self, since: int = 0, most: int = -1) -> list[bytes]:
        """Return the identities that were ever enrolled, in the order of their enrolment, from a place on."""
        listed = "SELECT identity FROM directory ORDER BY place LIMIT ? OFFSET ?"
        return [identity for (identity,) in self._file.read(listed, (most, since))]

    def checkpoints(self) -> list[DirectoryCheckpoint]:
        """Return what a witness has signed, in the order of sizes: of each size the first, of the last the newest too.

        These are enough: the first says since when a size is known, and the newest that the witness is still there.
        """
        found = self._file.read("SELECT size, root, time, signature FROM checkpoints ORDER BY size, time")
        return [DirectoryCheckpoint(self._log, *row) for row in found]

    def note_checkpoint(self, checkpoint: DirectoryCheckpoint) -> None:
        """Store what a witness has signed, in place of what it repeats."""
        with self._file.transaction():
            given = checkpoint.size, checkpoint.time, checkpoint.root, checkpoint.signature
            self._file.connection.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?)", given)
            repeated = (
                "time > (SELECT min(time) FROM checkpoints AS same WHERE same.size = checkpoints.size) AND "
                "(size, time) < (SELECT size, time FROM checkpoints ORDER BY size DESC, time DESC LIMIT 1)"
            )
            self._file.connection.execute(f"DELETE FROM checkpoints WHERE {repeated}")

    def forget_checkpoints(self) -> None:
        """Forget what a former witness has signed."""
        with self._file.transaction():
            self._file.connection.execute("DELETE FROM checkpoints")
            self._notices.forget_signed()
            self._file.connection.execute("UPDATE devices SET shown = 0")

    def shown_sizes(self) -> dict[int, int]:
        """Return, by device, the size of the directory with which it joined a sum last; 0: it never did."""
        return dict(self._file.read("SELECT number, shown FROM devices"))

    def note_shown(self, devices: Iterable[int], size: int) -> None:
        """Note that some devices have joined a sum with a directory of this size."""
        with self._file.transaction():
            rows = [(size, number) for number in devices]
            self._file.connection.executemany("UPDATE devices SET shown = ? WHERE number = ?", rows)
