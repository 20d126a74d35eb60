"""SQLite files that survive kill -9: one file, a rollback journal with full synchronisation, numbered migrations.

A write-ahead log would leave a second file beside the first; between transactions these are whole by themselves, so
that copying or moving one is enough.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tacit.errors import TacitError

BUSY_SECONDS = 10.0  # several programs may use one file


@dataclass(frozen=True)
class FileFormat:
    """A kind of file: its mark and name, how each version is made from the one before, whose errors it has."""

    mark: int  # where SQLite keeps the kind of a file
    called: str
    migrations: Sequence[str]
    error: type[TacitError]
    restore: str  # what to do about damage

    @property
    def version(self) -> int:
        """The newest version that this program knows."""
        return len(self.migrations)

    def make(self, path: Path) -> sqlite3.Connection:
        """Bring an empty file to the newest version, inside a transaction that the caller ends."""
        connection = connect(path)
        connection.execute(f"PRAGMA application_id = {self.mark}")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("CREATE TABLE versions (version INTEGER PRIMARY KEY)")
        self._migrate(connection, 0)
        return connection

    def check(self, path: Path, connection: sqlite3.Connection) -> None:
        """Refuse a file that is none of this kind, newer than this program, or damaged."""
        if connection.execute("PRAGMA application_id").fetchone()[0] != self.mark:
            raise self.error(f"'{path}' is not {self.called}.", "Choose another file.")
        version = _version(connection)
        if version > self.version:
            raise self.error(
                f"'{path}' was written by a newer version of Tacit (format {version}; known here: {self.version}).",
                "Upgrade Tacit; nothing was changed.",
            )
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise self.error(f"'{path}' is damaged: {found}.", self.restore)

    def upgrade(self, connection: sqlite3.Connection, finish: Callable[[int], None] = lambda before: None) -> None:
        """Bring a file to the newest version; `finish` is called with the one it had, inside the same transaction."""
        if _version(connection) < self.version:
            connection.execute("BEGIN IMMEDIATE")
            try:
                before = _version(connection)  # another program may have done it meanwhile
                self._migrate(connection, before)
                if before < self.version:
                    finish(before)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _migrate(self, connection: sqlite3.Connection, version: int) -> None:
        for number, script in enumerate(self.migrations[version:], start=version + 1):
            for statement in _statements(script):
                connection.execute(statement)
            connection.execute("INSERT INTO versions VALUES (?)", (number,))

    @contextmanager
    def complaints(self, path: Path) -> Iterator[None]:
        """Turn what SQLite says into what a user can do."""
        try:
            yield
        except sqlite3.Error as error:
            text = str(error)
            if "full" in text or "disk I/O" in text or "large" in text:
                raise self.error(
                    f"'{path}' cannot be written: {text}.",
                    "Free some space and try again; what was there before is whole.",
                ) from None
            if "locked" in text or "busy" in text:
                raise self.error(f"'{path}' is in use by another program.", "Wait for it to end, or stop it.") from None
            if "readonly" in text or "unable to open" in text:
                raise self.error(
                    f"'{path}' cannot be written: {text}.", "Check who owns the file and its folder."
                ) from None
            raise self.error(f"'{path}' is damaged: {text}.", self.restore) from None
        except UnicodeDecodeError:  # SQLite repeats damaged names in what it says
            raise self.error(f"'{path}' is damaged: a name in it is no text.", self.restore) from None

    @contextmanager
    def transaction(self, path: Path, connection: sqlite3.Connection) -> Iterator[None]:
        """All of what happens inside, or nothing of it; on disk when it ends."""
        with self.complaints(path):
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise


def connect(path: Path) -> sqlite3.Connection:
    """Open a file so that what is committed stays, and what is deleted is overwritten."""
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    for pragma in ("journal_mode = DELETE", "synchronous = EXTRA", "secure_delete = ON", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def read_copy(path: Path) -> sqlite3.Connection:
    """Read a whole file into memory, where it can be brought to another version; the file itself stays as it is."""
    where = f"{path.resolve().as_uri()}?mode=ro"
    with closing(sqlite3.connect(where, uri=True, timeout=BUSY_SECONDS)) as source:
        copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        try:
            source.backup(copy)
        except BaseException:
            copy.close()
            raise
    return copy


def _version(connection: sqlite3.Connection) -> int:
    found = connection.execute("SELECT max(version) FROM versions").fetchone()[0] or 0
    if not isinstance(found, int):
        raise sqlite3.DatabaseError("its version is not a number")
    return found


def _statements(script: str) -> Iterator[str]:
    """Cut a script where SQLite says that a statement is complete; `executescript` would commit on its own."""
    statement = ""
    for line in script.strip().splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
