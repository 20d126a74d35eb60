"""The SQLite file of a coordinator's journal: its tables, and what all that write into it share."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.errors import StorageError
from tacit.storage.database import FileFormat

MIGRATIONS = (
    """
    CREATE TABLE facts (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE devices (
        number INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB NOT NULL UNIQUE, counted INTEGER NOT NULL DEFAULT -1,
        revoked INTEGER NOT NULL DEFAULT 0
    );
    CREATE TABLE invitations (digest TEXT PRIMARY KEY, expires INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE models (round INTEGER PRIMARY KEY, content BLOB NOT NULL);
    CREATE TABLE rounds (
        number INTEGER PRIMARY KEY, state TEXT NOT NULL, asked INTEGER NOT NULL, answered INTEGER NOT NULL,
        refused INTEGER NOT NULL, lost INTEGER NOT NULL, bytes_up INTEGER NOT NULL, bytes_down INTEGER NOT NULL,
        seconds REAL NOT NULL
    );
    """,
    "ALTER TABLE devices ADD COLUMN identity BLOB NOT NULL DEFAULT x'';",
    """
    ALTER TABLE rounds ADD COLUMN called_off INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE phases (
        round INTEGER NOT NULL, place INTEGER NOT NULL, stage INTEGER NOT NULL, name TEXT NOT NULL,
        asked INTEGER NOT NULL, answered INTEGER NOT NULL, refused INTEGER NOT NULL, called_off INTEGER NOT NULL,
        bytes_up INTEGER NOT NULL, bytes_down INTEGER NOT NULL, seconds REAL NOT NULL, PRIMARY KEY (round, place)
    ) WITHOUT ROWID;
    CREATE TABLE quality (round INTEGER PRIMARY KEY, hits INTEGER NOT NULL, people INTEGER NOT NULL);
    """,
    """
    ALTER TABLE rounds ADD COLUMN masked INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE rounds ADD COLUMN why TEXT NOT NULL DEFAULT '';
    CREATE TABLE sums (
        round INTEGER NOT NULL, stage INTEGER NOT NULL, device INTEGER NOT NULL, PRIMARY KEY (round, stage, device)
    ) WITHOUT ROWID;
    """,
    """
    ALTER TABLE rounds RENAME COLUMN why TO reason;
    UPDATE rounds SET reason = json_object('code', 'legacy', 'parameters', json_object('text', reason))
        WHERE reason != '';
    UPDATE rounds SET state = 'skipped' WHERE state = 'rested';
    """,
    """
    CREATE TABLE strikes (
        device INTEGER NOT NULL, round INTEGER NOT NULL, code TEXT NOT NULL, PRIMARY KEY (device, round, code)
    ) WITHOUT ROWID;
    """,
    """
    CREATE TRIGGER identities_differ BEFORE INSERT ON devices
        WHEN NEW.identity != x'' AND EXISTS (SELECT 1 FROM devices WHERE identity = NEW.identity)
        BEGIN SELECT RAISE(ABORT, 'another device has this identity'); END;
    """,
    "CREATE TABLE spendings (round INTEGER PRIMARY KEY, share REAL NOT NULL, event TEXT NOT NULL);",
    """
    ALTER TABLE devices ADD COLUMN summed INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE devices ADD COLUMN spent REAL NOT NULL DEFAULT 0;
    """,
    """
    ALTER TABLE devices ADD COLUMN batch INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE devices ADD COLUMN half INTEGER NOT NULL DEFAULT 0;
    UPDATE devices SET batch = coalesce(
        (SELECT max(round) + 1 FROM sums WHERE stage > 0 AND device = devices.number), 0);
    """,
    """
    CREATE TABLE amendments (number INTEGER PRIMARY KEY, before BLOB NOT NULL UNIQUE, content BLOB NOT NULL);
    ALTER TABLE models ADD COLUMN amendment INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE invitations ADD COLUMN label TEXT NOT NULL DEFAULT '';
    ALTER TABLE devices ADD COLUMN label TEXT NOT NULL DEFAULT '';
    """,
    """
    CREATE TABLE directory (place INTEGER PRIMARY KEY, identity BLOB NOT NULL UNIQUE);
    INSERT INTO directory (identity) SELECT identity FROM devices WHERE length(identity) = 32 ORDER BY number;
    CREATE TRIGGER directory_grows AFTER INSERT ON devices WHEN length(NEW.identity) = 32
        BEGIN INSERT OR IGNORE INTO directory (identity) VALUES (NEW.identity); END;
    CREATE TABLE checkpoints (
        size INTEGER NOT NULL, time INTEGER NOT NULL, root BLOB NOT NULL, signature BLOB NOT NULL,
        PRIMARY KEY (size, time)
    ) WITHOUT ROWID;
    ALTER TABLE devices ADD COLUMN shown INTEGER NOT NULL DEFAULT 0;
    """,
    """
    ALTER TABLE devices ADD COLUMN stays INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE devices ADD COLUMN cohorts INTEGER NOT NULL DEFAULT 0;
    UPDATE devices SET stays = 1, cohorts = 1 WHERE batch > 0;
    """,
    "CREATE TABLE former_keys (key BLOB PRIMARY KEY) WITHOUT ROWID;",
    "ALTER TABLE devices ADD COLUMN missing INTEGER NOT NULL DEFAULT 0;",
    """
    CREATE TABLE notices (
        place INTEGER PRIMARY KEY, kind INTEGER NOT NULL, identity BLOB NOT NULL, key BLOB NOT NULL DEFAULT x'',
        by_old BLOB NOT NULL DEFAULT x'', by_new BLOB NOT NULL DEFAULT x''
    );
    INSERT INTO notices (kind, identity)
        SELECT 1, identity FROM devices WHERE revoked AND length(identity) = 32 ORDER BY number;
    CREATE TRIGGER revocations_are_noticed AFTER UPDATE OF revoked ON devices
        WHEN NEW.revoked AND NOT OLD.revoked AND length(NEW.identity) = 32
        BEGIN INSERT INTO notices (kind, identity) VALUES (1, NEW.identity); END;
    """,
)
FILE = FileFormat(0x54434A4E, "a coordinator's journal", MIGRATIONS, StorageError, "Restore a copy of it.")


@dataclass(frozen=True)
class JournalFile:
    """An open file: one connection that rounds, members, sums and all others of a journal read and write by."""

    path: Path
    connection: sqlite3.Connection

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of what happens inside, or nothing of it; on disk when it ends."""
        with FILE.transaction(self.path, self.connection):
            yield

    def complaints(self) -> AbstractContextManager[None]:
        """Turn what SQLite says into what an operator can do."""
        return FILE.complaints(self.path)

    def read(self, question: str, values: tuple[object, ...] = ()) -> list[Any]:
        """Return all rows that answer a question."""
        with self.complaints():
            return self.connection.execute(question, values).fetchall()

    def read_number(self, question: str, values: tuple[object, ...] = ()) -> int:
        """Return the only number that answers a question."""
        return int(self.read(question, values)[0][0])

    def insert(self, table: str, values: tuple[object, ...]) -> None:
        """Add a row to a table, inside a transaction."""
        self.connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)

    def fact(self, name: str) -> bytes | None:
        """Return a fact of the journal by its name; none if it is not known."""
        found = self.read("SELECT value FROM facts WHERE name = ?", (name,))
        return bytes(found[0][0]) if found else None

    def number(self, name: str, otherwise: int) -> int:
        """Return a fact that is a number."""
        found = self.fact(name)
        return otherwise if found is None else int(found)

    def keep_fact(self, name: str, value: bytes | int) -> None:
        """Store a fact in place of the one before, inside a transaction."""
        content = value if isinstance(value, bytes) else str(value).encode()
        self.connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, content))

    def forget_fact(self, name: str) -> None:
        """Forget a fact, inside a transaction."""
        self.connection.execute("DELETE FROM facts WHERE name = ?", (name,))
