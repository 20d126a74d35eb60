"""The store: one SQLite file whose every row is sealed. It survives kill -9 at any point.

What lies in the clear: that this is a device's file, its version, how its key is wrapped, the number and size of rows,
and the names of a few fixed places.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tacit.errors import DeviceError
from tacit.field.device.vault import Lock, ScryptCost, Vault
from tacit.storage.database import FileFormat, connect

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
    "CREATE TABLE turns (row INTEGER PRIMARY KEY AUTOINCREMENT, sealed BLOB NOT NULL);",
)
"""What made each version of the file from the one before; the table `versions` says which were applied."""

T = TypeVar("T")
FILE = FileFormat(0x54434954, "a device's file", MIGRATIONS, DeviceError, "Restore a copy with `tacit device import`.")


class Store:
    """An open device file."""

    def __init__(self, path: Path, connection: sqlite3.Connection, vault: Vault) -> None:
        self.path, self.connection, self._vault = path, connection, vault

    @classmethod
    def create(cls, path: Path, passphrase: str, cost: ScryptCost, keeper: str = "") -> Store:
        """Make a new file; one that is already there is never touched. `keeper`: the passphrase's name in a keyring."""
        refuse_if_there(path)
        file_id = secrets.token_hex(16)
        vault = Vault.create(file_id)
        lock = vault.lock(passphrase, cost)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            raise _already(path) from None
        except OSError as error:
            raise DeviceError(
                f"'{path}' cannot be written: {error.strerror}.", "Choose another: tacit device --file OTHER init."
            ) from None
        try:
            with FILE.complaints(path):
                connection = FILE.make(path)
                facts = (("file", file_id), ("lock", lock.model_dump_json()), ("keeper", keeper))
                connection.executemany("INSERT INTO facts VALUES (?, ?)", facts)
                connection.execute("COMMIT")
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return cls(path, connection, vault)

    @classmethod
    def open(cls, path: Path, passphrase: str) -> Store:
        """Open a file: refused if it is none of ours, damaged, newer than this program, or the passphrase is wrong."""
        refuse_if_missing(path)
        with FILE.complaints(path):
            connection = connect(path)
            try:
                FILE.check(path, connection)
                facts = dict(connection.execute("SELECT name, value FROM facts"))
                lock, file_id = Lock.parse(str(facts.get("lock"))), str(facts.get("file"))
                vault = Vault.open(lock, passphrase, file_id)
                FILE.upgrade(connection)
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
        with FILE.transaction(self.path, self.connection):
            yield

    def moment(self) -> tuple[int, int]:
        """Return numbers that change whenever the file does, by this connection or by another."""
        with FILE.complaints(self.path):
            others = int(self.connection.execute("PRAGMA data_version").fetchone()[0])
        return others, self.connection.total_changes

    def put(self, name: str, content: bytes) -> None:
        """Keep something at a fixed place."""
        sealed = self._vault.seal(content, "places", name)
        self.connection.execute("INSERT OR REPLACE INTO places VALUES (?, ?)", (name, sealed))

    def get(self, name: str) -> bytes | None:
        """Return what is kept at a fixed place."""
        with FILE.complaints(self.path):
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
        """Append a JSON value to `history`, `ledger`, `turns` or (with its `entry`) `marks`; return its row."""
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
        with FILE.complaints(self.path):
            found = self.connection.execute(f"SELECT row, sealed FROM {table} WHERE row > ? ORDER BY row", (since,))
            for row, sealed in found:
                yield row, json.loads(self._vault.unseal(sealed, table, row))

    def read(
        self, table: str, before: Mapping[int, tuple[bytes, T]], make: Callable[[Any], T]
    ) -> dict[int, tuple[bytes, T]]:
        """Return what `make` makes of every row of a table; rows that are as they were `before` are not made again."""
        found: dict[int, tuple[bytes, T]] = {}
        with FILE.complaints(self.path):
            for row, sealed in self.connection.execute(f"SELECT row, sealed FROM {table} ORDER BY row"):
                known = before.get(row)
                if known is None or known[0] != sealed:
                    known = (sealed, make(json.loads(self._vault.unseal(sealed, table, row))))
                found[row] = known
        return found

    def marks(self) -> Iterator[tuple[int, Any]]:
        """Yield (entry, mark) in order."""
        with FILE.complaints(self.path):
            for row, entry, sealed in self.connection.execute("SELECT row, entry, sealed FROM marks ORDER BY row"):
                yield entry, json.loads(self._vault.unseal(sealed, "marks", row))

    def remove(self, row: int) -> None:
        """Take a row of the history away; its bytes are overwritten."""
        self.connection.execute("DELETE FROM history WHERE row = ?", (row,))

    def clear_turns(self) -> None:
        """Forget the records of secure sums; their bytes are overwritten."""
        self.connection.execute("DELETE FROM turns")

    @staticmethod
    def keeper(path: Path) -> str:
        """Return under which name a keyring has the passphrase of a file; nothing where a person has it."""
        if not path.is_file():
            return ""
        with FILE.complaints(path), closing(connect(path)) as connection:
            FILE.check(path, connection)
            found = connection.execute("SELECT value FROM facts WHERE name = 'keeper'").fetchone()
        return "" if found is None else str(found[0])

    def change_passphrase(self, passphrase: str, cost: ScryptCost, keeper: str = "") -> None:
        """Wrap the data key anew; rows stay as they are."""
        facts = (("lock", self._vault.lock(passphrase, cost).model_dump_json()), ("keeper", keeper))
        with self.transaction():
            self.connection.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts)

    def copy_to(self, path: Path) -> None:
        """Write a whole, encrypted copy; it opens with the same passphrase."""
        if path.exists():
            raise DeviceError(f"'{path}' exists already.", "Choose another name.")
        unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            with FILE.complaints(path), closing(connect(unfinished)) as target:
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


def refuse_if_missing(path: Path) -> None:
    """Say that there is no device, if so: nobody is asked for a passphrase that opens nothing."""
    if not path.is_file():
        raise DeviceError(f"There is no device '{path}'.", "Make one with `tacit device init`.")


def refuse_if_there(path: Path) -> None:
    """Say that there is a device already, if so: nobody invents a passphrase for nothing."""
    if path.exists():
        raise _already(path)


def _already(path: Path) -> DeviceError:
    return DeviceError(
        f"There is already a device: '{path}'.",
        "Use it, erase it first, or choose another: tacit device --file OTHER init.",
    )
