"""The store: one SQLite file whose every row is sealed. It survives kill -9 at any point.

A rollback journal with full synchronisation, not a write-ahead log: between transactions the file is whole by itself,
so that copying or moving it is enough. What lies in the clear: that this is a device's file, its version, how its key
is wrapped, the number and size of rows, and the names of the few fixed places below.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tacit.device.vault import Cost, Lock, Vault
from tacit.errors import DeviceError

APPLICATION = 0x54434954  # "TCIT", where SQLite keeps the kind of a file
BUSY_SECONDS = 10.0  # a page, a node and a command may use one file
MIGRATIONS = (
    """
    CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE places (name TEXT PRIMARY KEY, sealed BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE history (row INTEGER PRIMARY KEY AUTOINCREMENT, sealed BLOB NOT NULL);
    CREATE TABLE ledger (row INTEGER PRIMARY KEY AUTOINCREMENT, sealed BLOB NOT NULL);
    CREATE TABLE marks (
        row INTEGER PRIMARY KEY AUTOINCREMENT, entry INTEGER NOT NULL REFERENCES ledger, sealed BLOB NOT NULL
    );
    CREATE TRIGGER ledger_stays BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
    CREATE TRIGGER ledger_kept BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
    CREATE TRIGGER marks_stay BEFORE UPDATE ON marks BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
    CREATE TRIGGER marks_kept BEFORE DELETE ON marks BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
    """,
)
"""What made each version of the file from the one before; the table `versions` says which were applied."""

VERSION = len(MIGRATIONS)
_RESTORE = "Restore a copy with `tacit device import`."


class Store:
    """An open device file."""

    def __init__(self, path: Path, connection: sqlite3.Connection, vault: Vault) -> None:
        self.path, self.connection, self._vault = path, connection, vault

    @classmethod
    def create(cls, path: Path, passphrase: str, cost: Cost) -> Store:
        """Make a new file; one that is already there is never touched."""
        file_id = secrets.token_hex(16)
        vault = Vault.create(file_id)
        lock = vault.lock(passphrase, cost)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            raise DeviceError(
                f"There is a device already: '{path}'.", "Use it, erase it first, or choose another --file."
            ) from None
        except OSError as error:
            raise DeviceError(f"'{path}' cannot be written: {error.strerror}.", "Choose another --file.") from None
        try:
            with _said(path):
                connection = _connected(path)
                connection.execute(f"PRAGMA application_id = {APPLICATION}")
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("CREATE TABLE versions (version INTEGER PRIMARY KEY)")
                _migrate(connection, 0)
                facts = (("file", file_id), ("lock", lock.model_dump_json()))
                connection.executemany("INSERT INTO facts VALUES (?, ?)", facts)
                connection.execute("COMMIT")
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return cls(path, connection, vault)

    @classmethod
    def open(cls, path: Path, passphrase: str) -> Store:
        """Open a file: refused if it is none of ours, damaged, newer than this program, or the passphrase is wrong."""
        if not path.is_file():
            raise DeviceError(f"There is no device '{path}'.", "Make one with `tacit device init`.")
        with _said(path):
            connection = _connected(path)
            try:
                _refuse_strangers(path, connection)
                facts = dict(connection.execute("SELECT name, value FROM facts"))
                lock, file_id = Lock.parsed(str(facts.get("lock"))), str(facts.get("file"))
                vault = Vault.open(lock, passphrase, file_id)
                version = _version(connection)
                if version < VERSION:
                    connection.execute("BEGIN IMMEDIATE")
                    _migrate(connection, version)
                    connection.execute("COMMIT")
            except BaseException:
                connection.close()
                raise
        return cls(path, connection, vault)

    def close(self) -> None:
        """Let the file go."""
        self.connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of what happens inside, or nothing of it; on disk when it ends."""
        with _said(self.path):
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise

    def put(self, name: str, content: bytes) -> None:
        """Keep something at a fixed place."""
        sealed = self._vault.seal(content, "places", name)
        self.connection.execute("INSERT OR REPLACE INTO places VALUES (?, ?)", (name, sealed))

    def get(self, name: str) -> bytes | None:
        """Return what is kept at a fixed place."""
        with _said(self.path):
            row = self.connection.execute("SELECT sealed FROM places WHERE name = ?", (name,)).fetchone()
        return None if row is None else self._vault.unseal(row[0], "places", name)

    def drop(self, name: str) -> None:
        """Forget what is kept at a fixed place."""
        self.connection.execute("DELETE FROM places WHERE name = ?", (name,))

    def put_json(self, name: str, value: Any) -> None:
        """Keep a JSON value at a fixed place."""
        self.put(name, json.dumps(value, ensure_ascii=False).encode())

    def get_json(self, name: str) -> Any:
        """Return the JSON value kept at a fixed place, or none."""
        content = self.get(name)
        return None if content is None else json.loads(content)

    def add(self, table: str, content: Any, entry: int | None = None) -> int:
        """Append a JSON value to `history`, `ledger` or, for an entry of the ledger, `marks`; return its row."""
        row = 1 + self.last(table)
        sealed = self._vault.seal(json.dumps(content, ensure_ascii=False).encode(), table, row)
        columns: dict[str, Any] = {"row": row, "sealed": sealed} | ({} if entry is None else {"entry": entry})
        names, holes = ", ".join(columns), ", ".join("?" * len(columns))
        self.connection.execute(f"INSERT INTO {table} ({names}) VALUES ({holes})", tuple(columns.values()))
        return row

    def last(self, table: str) -> int:
        """Return the highest row that a table ever had."""
        found = self.connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
        return 0 if found is None else int(found[0])

    def rows(self, table: str, since: int = 0) -> Iterator[tuple[int, Any]]:
        """Yield (row, value) of a table in order, from after row `since`."""
        with _said(self.path):
            found = self.connection.execute(f"SELECT row, sealed FROM {table} WHERE row > ? ORDER BY row", (since,))
            for row, sealed in found:
                yield row, json.loads(self._vault.unseal(sealed, table, row))

    def marks(self) -> Iterator[tuple[int, Any]]:
        """Yield (entry, mark) in order."""
        with _said(self.path):
            for row, entry, sealed in self.connection.execute("SELECT row, entry, sealed FROM marks ORDER BY row"):
                yield entry, json.loads(self._vault.unseal(sealed, "marks", row))

    def remove(self, row: int) -> None:
        """Take a row of the history away; its bytes are overwritten."""
        self.connection.execute("DELETE FROM history WHERE row = ?", (row,))

    def change_passphrase(self, passphrase: str, cost: Cost) -> None:
        """Wrap the data key anew; rows stay as they are."""
        lock = self._vault.lock(passphrase, cost)
        with self.transaction():
            self.connection.execute("UPDATE facts SET value = ? WHERE name = 'lock'", (lock.model_dump_json(),))

    def copy_to(self, path: Path) -> None:
        """Write a whole, encrypted copy; it opens with the same passphrase."""
        if path.exists():
            raise DeviceError(f"'{path}' exists already.", "Choose another name.")
        unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            with _said(path), closing(_connected(unfinished)) as target:
                self.connection.backup(target)
            unfinished.replace(path)
        except OSError as error:
            raise DeviceError(f"'{path}' cannot be written: {error.strerror}.", "Choose another place.") from None
        finally:
            unfinished.unlink(missing_ok=True)

    def erase(self) -> None:
        """Destroy the wrapped key, then the file: what remains on the disk cannot be opened by any passphrase."""
        with self.transaction():
            self.connection.execute("UPDATE facts SET value = '' WHERE name = 'lock'")
        self.close()
        self.path.unlink(missing_ok=True)
        Path(f"{self.path}-journal").unlink(missing_ok=True)


def _connected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    for pragma in ("journal_mode = DELETE", "synchronous = EXTRA", "secure_delete = ON", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def _refuse_strangers(path: Path, connection: sqlite3.Connection) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        raise DeviceError(f"'{path}' is not a device's file.", "Choose another --file.")
    version = _version(connection)
    if version > VERSION:
        raise DeviceError(
            f"'{path}' was written by a newer version of Tacit (format {version}, this program knows {VERSION}).",
            "Upgrade Tacit; nothing was changed.",
        )
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise DeviceError(f"'{path}' is damaged: {found}.", _RESTORE)


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT max(version) FROM versions").fetchone()[0] or 0)


def _migrate(connection: sqlite3.Connection, version: int) -> None:
    for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
        for statement in _statements(script):
            connection.execute(statement)
        connection.execute("INSERT INTO versions VALUES (?)", (number,))


def _statements(script: str) -> Iterator[str]:
    """Cut a script where SQLite says that a statement is complete; `executescript` would commit on its own."""
    statement = ""
    for line in script.strip().splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


@contextmanager
def _said(path: Path) -> Iterator[None]:
    """Turn what SQLite says into what a person can do."""
    try:
        yield
    except sqlite3.Error as error:
        said = str(error)
        if "full" in said or "disk I/O" in said or "large" in said:
            raise DeviceError(
                f"'{path}' cannot be written: {said}.", "Free some space and try again; what was there before is whole."
            ) from None
        if "locked" in said or "busy" in said:
            raise DeviceError(f"'{path}' is in use by another program.", "Wait for it to end, or stop it.") from None
        if "readonly" in said or "unable to open" in said:
            raise DeviceError(
                f"'{path}' cannot be written: {said}.", "Check who owns the file and its folder."
            ) from None
        raise DeviceError(f"'{path}' is damaged: {said}.", _RESTORE) from None
