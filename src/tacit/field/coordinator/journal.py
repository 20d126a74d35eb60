"""The journal: what a coordinator must not forget. The model after each finished round, who is enrolled, what happened.

It holds nothing of what a single device learnt: answers are added in memory and gone when the round is. Each kind of
record has a file of its own (rounds, members, invitations, batches, sums, strikes, directory, notices, amendments). All
of them share one connection. Here is what concerns several: the terms in force, and the model with its round.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.errors import StorageError
from tacit.field.coordinator.amendments import AUTHORITY, WELCOME, AmendmentLog
from tacit.field.coordinator.batch_book import BatchBook
from tacit.field.coordinator.directory_log import DirectoryLog
from tacit.field.coordinator.invitation_book import InvitationBook
from tacit.field.coordinator.journal_file import FILE, JournalFile
from tacit.field.coordinator.members import Members
from tacit.field.coordinator.notice_book import NoticeBook
from tacit.field.coordinator.round_log import ROLLED_BACK, RoundLog, RoundRecord
from tacit.field.coordinator.round_stats import RoundStats
from tacit.field.coordinator.strikes import StrikeLog
from tacit.field.coordinator.sum_log import SumLog
from tacit.protocols.secure_aggregation.identity import Identity
from tacit.reasons import ReasonCode, RoundReason
from tacit.storage.database import connect, read_copy
from tacit.types import Array, Catalog
from tacit.wire.catalogue import digest_of, strip_names
from tacit.wire.federation import Federation
from tacit.wire.messages import pack, read_welcome, write_welcome

KEPT_MODELS = 10
SETTLED_SECONDS = 2.0  # the clock of a file system may stand still between two changes that follow each other
SEED = "seed"  # name of a fact


@dataclass(frozen=True)
class ModelVersion:
    """A model that is kept: after which round, under which digest, in how many bytes."""

    round: int
    digest: str
    bytes: int


class CoordinatorJournal:
    """An open journal."""

    def __init__(
        self, path: Path, federation: Federation, catalog: Catalog, connection: sqlite3.Connection | None = None
    ) -> None:
        self.federation, self.catalog = federation, catalog
        self.file = file = JournalFile(path, connect(path) if connection is None else connection)
        self.rounds, self.sums, self.strikes = RoundLog(file), SumLog(file), StrikeLog(file)
        self.amendments, self.batches, self.invitations = AmendmentLog(file), BatchBook(file), InvitationBook(file)
        self.notices = NoticeBook(file, bytes.fromhex(federation.id))
        self.directory = DirectoryLog(file, self.notices, bytes.fromhex(federation.id))
        self.members = Members(file, self.invitations, self.notices, federation.id)

    @classmethod
    def create(
        cls,
        path: Path,
        federation: Federation,
        catalog: Catalog,
        seed: int | None = None,
        authority: Identity | None = None,
    ) -> CoordinatorJournal:
        """Found a federation, with the key of its authority; `seed` is for tests that compare with a simulation."""
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            raise StorageError(f"'{path}' exists already.", "Open it, or choose another folder.") from None
        try:
            with FILE.complaints(path):
                connection = FILE.make(path)
                root = secrets.randbits(63) if seed is None else seed
                facts = [(WELCOME, write_welcome(federation, catalog)), (SEED, str(root).encode())]
                facts += [] if authority is None else [(AUTHORITY, authority.secret)]
                connection.executemany("INSERT INTO facts VALUES (?, ?)", facts)
                connection.execute("COMMIT")
                connection.close()
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return cls(path, federation, catalog)

    @classmethod
    def open(cls, path: Path, is_trial: bool = False) -> CoordinatorJournal:
        """Continue a federation; in a trial with a copy of it in memory, and the file stays as it is."""
        if not path.is_file():
            raise StorageError(f"There is no journal '{path}'.", "Start the coordinator: tacit serve.")
        with FILE.complaints(path):
            connection = read_copy(path) if is_trial else connect(path)
            try:
                FILE.check(path, connection)
                FILE.upgrade(connection)
                (welcome,) = connection.execute("SELECT value FROM facts WHERE name = 'welcome'").fetchone()
                about = read_welcome(welcome)
            except BaseException:
                connection.close()
                raise
        return cls(path, *about, connection)

    def again(self) -> CoordinatorJournal:
        """Open it once more, for another thread; what was read of the federation is not read again."""
        return CoordinatorJournal(self.path, self.federation, self.catalog)

    @property
    def path(self) -> Path:
        """Where the journal is."""
        return self.file.path

    def change_mark(self) -> tuple[int, int] | None:
        """Return a mark that changes with every change of the file; none while it could change unseen.

        The file is asked for and not opened: closing it would end the locks of this process.
        """
        about = self.path.stat()
        is_settled = about.st_mtime < time.time() - SETTLED_SECONDS
        return (about.st_mtime_ns, about.st_size) if is_settled else None

    def close(self) -> None:
        """Let the file go."""
        self.file.connection.close()

    @property
    def welcome(self) -> bytes:
        """What a device needs to join."""
        return write_welcome(self.federation, self.catalog)

    @property
    def seed(self) -> int:
        """Where the coordinator's own draws come from."""
        found = self.file.fact(SEED)
        if found is None:
            raise StorageError("The journal has no seed.", "Restore a copy of it.")
        return int(found)

    # --- the model ----------------------------------------------------------------------------------------------------

    def model(self) -> dict[str, Array] | None:
        """Return the model after the last finished round, none before the first of this method."""
        stored = self.amendments.model()
        if stored is None or not self.amendments.at(stored.amendment)[0].learns_like(self.federation):
            return None
        return stored.shared

    @property
    def has_model(self) -> bool:
        """Whether any round of this method was finished."""
        found = self.file.read("SELECT amendment FROM models ORDER BY round DESC LIMIT 1")
        return bool(found) and (
            found[0][0] == self.federation.number or self.amendments.at(found[0][0])[0].learns_like(self.federation)
        )

    def versions(self) -> list[ModelVersion]:
        """Return the models that are kept, newest first."""
        found = self.file.read("SELECT round, content FROM models ORDER BY round DESC")
        return [ModelVersion(number, digest_of(content), len(content)) for number, content in found]

    def finish(
        self,
        happened: RoundRecord,
        shared: dict[str, Array],
        counted: Iterable[int],
        course: RoundStats | None = None,
        keep_models: int = KEPT_MODELS,
    ) -> None:
        """Close a round whose sum was applied: model, statistics and whose answers counted, all or nothing.

        Of the models the newest ones are kept.
        """
        with self.file.transaction():
            self.rounds.add(happened, course)
            self.file.insert("models", (happened.number, pack(shared), self.federation.number))
            self._forget_models(keep_models)
            self.members.note_counted(happened.number, counted)

    def _forget_models(self, kept: int) -> None:
        old = "DELETE FROM models WHERE round NOT IN (SELECT round FROM models ORDER BY round DESC LIMIT ?)"
        self.file.connection.execute(old, (kept,))

    # --- the terms in force -------------------------------------------------------------------------------------------

    def publish(self, catalog: Catalog) -> None:
        """Amend the federation by a catalogue whose first items are those of the one before."""
        with self.file.transaction():
            amended = self.amendments.add(catalog)
        self.federation, self.catalog = amended.federation, strip_names(amended.catalog)

    def replace_method(self, method: str, chosen: Mapping[str, Any], catalog: Catalog) -> None:
        """Amend the federation by another method: devices take part in it once their users have agreed."""
        with self.file.transaction():
            amended = self.amendments.add(catalog, method=(method, chosen))
            self.members.keep_unagreed(device.number for device in self.members.devices())
        self.federation, self.catalog = amended.federation, strip_names(amended.catalog)

    def roll_back(self, to: int) -> None:
        """Put the model after an earlier round in force again, as a round of its own, and as an amendment."""
        number = self.rounds.next_number
        with self.file.transaction():
            found = self.file.read("SELECT content, amendment FROM models WHERE round = ?", (to,))
            if not found:
                kept = ", ".join(str(version.round) for version in self.versions()) or "none"
                raise StorageError(
                    f"There is no model of round {to}. Kept are those of rounds {kept}.",
                    "Choose one of these; rounds.keep_models says how many are kept.",
                )
            if not self.amendments.at(found[0][1])[0].learns_like(self.federation):
                raise StorageError(
                    f"The model of round {to} is of another method than the federation has now.",
                    "To go back to that method, replace the method again: tacit federation replace-method.",
                )
            amended = self.amendments.add(self.amendments.at(self.federation.number)[1], (to, number))
            reason = RoundReason(ReasonCode.ROLLED_BACK, {"earlier": to})
            self.rounds.add(RoundRecord(number, ROLLED_BACK, 0, 0, 0, 0, 0, 0, 0.0, reason=reason))
            self.file.insert("models", (number, *found[0]))
        self.federation = amended.federation
