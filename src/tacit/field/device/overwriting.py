"""Overwriting: what a transaction replaces in a device's file is destroyed wherever SQLite had copied it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tacit.field.device.file_format import FILE


def rollback_journal(path: Path) -> Path:
    """Return where SQLite keeps the pages that a transaction changes."""
    return Path(f"{path}-journal")


@contextmanager
def overwriting(path: Path, connection: sqlite3.Connection) -> Iterator[None]:
    """Overwrite the rollback journal of the transaction inside: it holds the pages as they were before."""
    with FILE.complaints(path):
        connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()  # no other process may begin a journal
        connection.execute("PRAGMA journal_mode = PERSIST").fetchall()
    try:
        yield
        _overwrite(rollback_journal(path))
    finally:
        with FILE.complaints(path):
            connection.execute("PRAGMA journal_mode = DELETE").fetchall()
            connection.execute("PRAGMA locking_mode = NORMAL").fetchall()
            connection.execute("SELECT count(*) FROM facts").fetchall()  # it is let go with the next statement


def _overwrite(path: Path) -> None:
    """Write zeros over a file. A file system that writes elsewhere, and a disk that moves blocks, keep what was."""
    if path.exists():
        with path.open("r+b") as file:
            file.write(bytes(path.stat().st_size))
            file.flush()
            os.fsync(file.fileno())
