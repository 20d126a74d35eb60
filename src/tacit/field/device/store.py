"""The store: one SQLite file whose every row is sealed, under one sealed root. It survives kill -9 at any point.

What is not encrypted: that this is a device's file, its version, how its key is wrapped, the number of rows and roughly
their size, and the names of a few fixed places. All of it is under the root. A row that was changed, moved, removed or
put back, and a name or fact that was changed, is noticed when it is read.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

from tacit.errors import DeviceError
from tacit.field.device.clear_facts import mark_facts, read_facts, write_facts
from tacit.field.device.device_path import already_there, refuse_if_missing, refuse_if_there
from tacit.field.device.file_format import FILE, SEALED_ROOT, TABLES
from tacit.field.device.file_lock import FileLock
from tacit.field.device.former_files import read_former_rows
from tacit.field.device.open_root import OpenRoot
from tacit.field.device.overwriting import overwriting, rollback_journal
from tacit.field.device.sealed_root import SealedRoot, damage_error
from tacit.field.device.vault import Lock, ScryptCost, Vault
from tacit.storage.database import connect

T = TypeVar("T")
LockName = Literal["lock", "recovery"]


class Store:
    """An open device file."""

    def __init__(self, path: Path, connection: sqlite3.Connection, vault: Vault) -> None:
        self.path, self.connection, self._vault = path, connection, vault
        self.lock = FileLock(path)
        self.is_copy = False  # it was put back, or copied without the note beside it: it may not know all it answered
        self.is_new = False  # made now, or moved from an earlier format
        self._root = OpenRoot(connection, vault)

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
            raise already_there(path) from None
        except OSError as error:
            raise DeviceError(
                f"'{path}' cannot be written: {error.strerror}.", "Choose another: tacit device --file OTHER init."
            ) from None
        try:
            with FILE.complaints(path):
                store = cls(path, FILE.make(path), vault)
                write_facts(store.connection, {"file": file_id, "lock": lock.model_dump_json(), "keeper": keeper})
                store._begin_root(0)
                store.connection.execute("COMMIT")
                store._check_names()
        except BaseException:
            path.unlink(missing_ok=True)
            FileLock(path).path.unlink(missing_ok=True)
            raise
        return store

    @classmethod
    def open(cls, path: Path, passphrase: str, by: LockName = "lock") -> Store:
        """Open a file: refused if it is none of ours, damaged, newer than this program, or the passphrase is wrong.

        `by` recovery: with the recovery code instead.
        """
        refuse_if_missing(path)
        with FILE.complaints(path):
            connection = connect(path)
            try:
                FILE.check(path, connection)
                facts = read_facts(connection)
                if by == "recovery" and by not in facts:
                    raise DeviceError("This device has no recovery code.", "It opens with its passphrase only.")
                lock, file_id = Lock.parse(facts.get(by, "")), facts.get("file", "")
                store = cls(path, connection, Vault.open(lock, passphrase, file_id))
                FILE.upgrade(connection, store._begin_root)
                store._check_names()
            except BaseException:
                connection.close()
                raise
        return store

    def open_again(self) -> Store:
        """Open the same file once more, with a connection and a lock of its own."""
        return Store.open_handed(self.path, *self.hand_over())

    def hand_over(self) -> tuple[bytes, str]:
        """Return the data key and the file's name in seals: another process of this user opens the file with them."""
        return self._vault.data_key, self._vault.file_id

    @classmethod
    def open_handed(cls, path: Path, data_key: bytes, file_id: str) -> Store:
        """Open a file with what `hand_over` gave: the passphrase is not needed a second time."""
        with FILE.complaints(path):
            store = cls(path, connect(path), Vault(data_key, file_id))
            try:
                store._check_names()
            except BaseException:
                store.close()
                raise
        store.is_copy = False  # what follows from a copy was done when it was first opened
        return store

    def close(self) -> None:
        """Let the file go."""
        self.connection.close()
        self.lock.close()

    # --- the root -----------------------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of what happens inside, or nothing of it; on disk when it ends."""
        with FILE.transaction(self.path, self.connection):
            self._root.being_written, self._root.is_changed = (root := self._root.read()), False
            try:
                yield
                if self._root.is_changed:
                    self._root.write(root)
            finally:
                self._root.being_written = None
        if self._root.is_changed:
            self.lock.note(self._vault.file_id, root.counter)

    @property
    def in_transaction(self) -> bool:
        """Whether what is read now may yet be taken back."""
        return self.connection.in_transaction

    def _begin_root(self, before: int) -> None:
        """Write the first root, inside a transaction: of a new file, or of one that an earlier version wrote."""
        if before >= SEALED_ROOT:
            return
        write_facts(self.connection, {})
        self._root.being_written = root = SealedRoot(facts=mark_facts(self.connection, self._vault))
        try:
            for table, place, content in read_former_rows(self.connection, self._vault):
                if table == "places":
                    self.put(place, content)
                else:
                    self.add(table, json.loads(content))
            for table in ("marks", "places", "history", "ledger", "turns"):
                self.connection.execute(f"DROP TABLE former_{table}")
            self._root.write(root)
            self.is_new = True
        finally:
            self._root.being_written = None

    def _check_names(self) -> None:
        """Refuse a file whose facts, places or numbers of rows are not those of its root; notice one put back."""
        noted = self.lock.read()  # first: another program may write meanwhile
        self.connection.execute("BEGIN")
        root, facts = self._root.read(), mark_facts(self.connection, self._vault)
        names = {name for (name,) in self.connection.execute("SELECT name FROM places")}
        counts = [self.connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES]
        self.connection.execute("COMMIT")
        if root.facts != facts:
            raise damage_error("facts", "as a whole")
        for name in sorted(names ^ root.places.keys(), key=str):
            raise damage_error("places", str(name))
        for table, count in zip(TABLES, counts, strict=True):
            if count != root.table(table).count:
                raise damage_error(table, "as a whole")
        if self.is_new:
            self.lock.note(self._vault.file_id, root.counter)
        else:
            self.is_copy = noted is None or noted[0] != self._vault.file_id or noted[1] > root.counter

    # --- places -------------------------------------------------------------------------------------------------------

    def moment(self) -> tuple[int, int]:
        """Return numbers that change whenever the file does, by this connection or by another."""
        with FILE.complaints(self.path):
            others = int(self.connection.execute("PRAGMA data_version").fetchone()[0])
        return others, self.connection.total_changes

    def put(self, name: str, content: bytes) -> None:
        """Store something at a fixed place."""
        sealed = self._vault.seal(content, "places", name)
        self._root.change().places[name] = self._vault.mark(sealed, "places", name)
        self.connection.execute("INSERT OR REPLACE INTO places VALUES (?, ?)", (name, sealed))

    def get(self, name: str) -> bytes | None:
        """Return what is stored at a fixed place."""
        both = "SELECT (SELECT sealed FROM root), (SELECT sealed FROM places WHERE name = ?)"
        with FILE.complaints(self.path):
            root, sealed = self.connection.execute(both, (name,)).fetchone()
        mark = self._root.of_rows(root).places.get(name)
        if sealed is None and mark is None:
            return None
        if not isinstance(sealed, bytes) or self._vault.mark(sealed, "places", name) != mark:
            raise damage_error("places", name)
        return self._vault.unseal(sealed, "places", name)

    def drop(self, name: str) -> None:
        """Delete what is stored at a fixed place."""
        self._root.change().places.pop(name, None)
        self.connection.execute("DELETE FROM places WHERE name = ?", (name,))

    def put_json(self, name: str, value: Any) -> None:
        """Store a JSON value at a fixed place."""
        self.put(name, json.dumps(value, ensure_ascii=False).encode())

    def get_json(self, name: str) -> Any:
        """Return the JSON value stored at a fixed place, or none."""
        content = self.get(name)
        return None if content is None else json.loads(content)

    # --- tables -------------------------------------------------------------------------------------------------------

    def add(self, table: str, content: Any) -> int:
        """Append a JSON value to `history`, `ledger`, `marks` or `turns`; return its row."""
        record = self._root.change().table(table)
        row = 1 + record.last
        sealed = self._vault.seal(json.dumps(content, ensure_ascii=False).encode(), table, row)
        record.add(self._vault.mark(sealed, table, row))
        self.connection.execute(f"INSERT INTO {table} VALUES (?, ?)", (row, sealed))
        return row

    def last(self, table: str) -> Any:
        """Return the last value of a table from which none is removed, inside a transaction; none if it is empty."""
        with FILE.complaints(self.path):
            record = (self._root.being_written or self._root.read()).table(table)
            found = self.connection.execute(f"SELECT sealed FROM {table} WHERE row = ?", (record.last,)).fetchone()
        if not record.count and found is None:
            return None
        sealed, *_ = _require_sealed(table, record.last, found)
        if self._vault.mark(sealed, table, record.last) != record.tip:
            raise damage_error(table, record.last)
        return json.loads(self._vault.unseal(sealed, table, record.last))

    def rows(self, table: str) -> list[tuple[int, Any]]:
        """Return (row, value) of a table in order."""
        return [(row, json.loads(self._vault.unseal(sealed, table, row))) for row, sealed in self._check_rows(table)]

    def read(
        self, table: str, before: Mapping[int, tuple[bytes, T]], make: Callable[[Any], T]
    ) -> dict[int, tuple[bytes, T]]:
        """Return what `make` makes of every row of a table; rows that are as they were `before` are not made again."""
        found: dict[int, tuple[bytes, T]] = {}
        for row, sealed in self._check_rows(table):
            known = before.get(row)
            if known is None or known[0] != sealed:
                known = (sealed, make(json.loads(self._vault.unseal(sealed, table, row))))
            found[row] = known
        return found

    def _check_rows(self, table: str) -> list[tuple[int, bytes]]:
        """Return the sealed rows of a table, in order, if they are exactly those that the root knows."""
        with FILE.complaints(self.path):
            found = self.connection.execute(f"SELECT -1, sealed FROM root UNION ALL SELECT row, sealed FROM {table}")
            (_, root), *rows = found.fetchall() or [(-1, None)]
        if not all(isinstance(row, int) and isinstance(sealed, bytes) for row, sealed in rows):
            raise damage_error(table, "as a whole")
        mark = self._vault.mark
        self._root.of_rows(root).table(table).check(table, (mark(sealed, table, row) for row, sealed in rows))
        return sorted(rows)

    def remove(self, row: int) -> None:
        """Take a row of the history away; its bytes are overwritten."""
        found = self.connection.execute("SELECT sealed FROM history WHERE row = ?", (row,)).fetchone()
        sealed, *_ = _require_sealed("history", row, found)
        self._root.change().table("history").remove(self._vault.mark(sealed, "history", row))
        self.connection.execute("DELETE FROM history WHERE row = ?", (row,))

    def clear_session(self) -> None:
        """Forget the records of secure sums; their bytes are overwritten."""
        self._root.change().table("turns").clear()
        self.connection.execute("DELETE FROM turns")

    # --- the file -----------------------------------------------------------------------------------------------------

    @staticmethod
    def keeper(path: Path) -> str:
        """Return under which name a keyring has the passphrase of a file; nothing where a user has it."""
        if not path.is_file():
            return ""
        with FILE.complaints(path), closing(connect(path)) as connection:
            FILE.check(path, connection)
            return read_facts(connection).get("keeper", "")

    def change_passphrase(self, passphrase: str, cost: ScryptCost, keeper: str = "") -> None:
        """Wrap the data key anew; rows stay as they are. The former wrapping is overwritten wherever it stood."""
        lock = self._vault.lock(passphrase, cost).model_dump_json()
        with overwriting(self.path, self.connection), self.transaction():
            write_facts(self.connection, {"lock": lock, "keeper": keeper})
            self._root.change().facts = mark_facts(self.connection, self._vault)

    def change_recovery(self, code: str, cost: ScryptCost) -> None:
        """Let a recovery code open the file too; the one before no longer does."""
        lock = self._vault.lock(code, cost).model_dump_json()
        with overwriting(self.path, self.connection), self.transaction():
            write_facts(self.connection, {"recovery": lock})
            self._root.change().facts = mark_facts(self.connection, self._vault)

    @property
    def has_recovery(self) -> bool:
        """Whether a recovery code opens the file."""
        with FILE.complaints(self.path):
            return "recovery" in read_facts(self.connection)

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
        """Destroy the wrapped keys, then the file: what remains on the disk cannot be opened by any passphrase."""
        self.lock.take()
        with overwriting(self.path, self.connection), FILE.transaction(self.path, self.connection):
            self.connection.execute("DELETE FROM facts WHERE name <> 'file'")
        self.close()
        self.path.unlink(missing_ok=True)
        rollback_journal(self.path).unlink(missing_ok=True)
        self.lock.path.unlink(missing_ok=True)


def _require_sealed(table: str, row: int, found: tuple[Any, ...] | None) -> tuple[bytes, str, int]:
    """Return a sealed row and its place; what is missing, or no bytes, is damage."""
    if found is None or not isinstance(found[0], bytes):
        raise damage_error(table, row)
    return found[0], table, row
