"""A record on disk that is written before anything leaves, so that a restart cannot take back or repeat what was said.

Records are appended and forced to disk one by one: length, kind, content, checksum. A last record that was cut off by a
crash never led to a message; it is dropped, and `was_torn` tells the reader to be careful. A damaged record in the
middle is an error: what it said is unknown, and guessing could release a second share.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from tacit.errors import StorageError

try:
    import fcntl
except ImportError:  # not on every system; there, one process per journal is up to whoever starts them
    fcntl = None  # type: ignore[assignment]

_CHECK = 8
_HEAD = 5  # length and kind
Record = tuple[int, bytes]


class Journal(Protocol):
    """What keeps records: kinds are small numbers, contents are bytes."""

    was_torn: bool

    def records(self) -> list[Record]:
        """Return all records, oldest first."""
        ...

    def append(self, kind: int, content: bytes) -> None:
        """Keep one more record; when this returns, it is kept."""
        ...

    def rewrite(self, records: Iterable[Record]) -> None:
        """Replace all records, or none of them."""
        ...


class Memory:
    """A journal that lasts as long as its process: for simulations, where no device restarts."""

    def __init__(self) -> None:
        self.was_torn = False
        self._records: list[Record] = []

    def records(self) -> list[Record]:
        """Return all records."""
        return list(self._records)

    def append(self, kind: int, content: bytes) -> None:
        """Keep one more record."""
        self._records.append((kind, content))

    def rewrite(self, records: Iterable[Record]) -> None:
        """Replace all records."""
        self._records = list(records)


class File:
    """A journal in a file that belongs to one process at a time and is readable by its owner only."""

    def __init__(self, path: Path) -> None:
        """Open or make the file; drop a record at its end that was cut off."""
        self.path = path
        self._file = self._opened(path)
        data = path.read_bytes()
        self._records, whole = _parsed(data, path)
        self.was_torn = whole < len(data)
        if self.was_torn:
            os.truncate(self._file, whole)
            os.fsync(self._file)

    def _opened(self, path: Path) -> int:
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise StorageError(f"The journal '{path}' cannot be opened: {error}.") from None
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(file)
                raise StorageError(
                    f"The journal '{path}' is in use by another process.", "Only one may speak for a device."
                ) from None
        return file

    def records(self) -> list[Record]:
        """Return all records, oldest first."""
        return list(self._records)

    def append(self, kind: int, content: bytes) -> None:
        """Write one more record and force it to disk."""
        try:
            _write(self._file, _framed(kind, content))
            os.fsync(self._file)
        except OSError as error:
            raise StorageError(f"The journal '{self.path}' cannot be written: {error}.", "Nothing was sent.") from None
        self._records.append((kind, content))

    def rewrite(self, records: Iterable[Record]) -> None:
        """Write a new file beside the old one and put it in its place."""
        kept = list(records)
        beside = self.path.with_name(self.path.name + ".new")
        beside.unlink(missing_ok=True)
        file = self._opened(beside)
        _write(file, b"".join(_framed(kind, content) for kind, content in kept))
        os.fsync(file)
        beside.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        os.close(self._file)
        self._file, self._records, self.was_torn = file, kept, False

    def close(self) -> None:
        """Let another process have it."""
        os.close(self._file)


def _framed(kind: int, content: bytes) -> bytes:
    body = len(content).to_bytes(4, "little") + bytes([kind]) + content
    return body + hashlib.sha256(body).digest()[:_CHECK]


def _write(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _parsed(data: bytes, path: Path) -> tuple[list[Record], int]:
    """Return the whole records, and where the last of them ends."""
    records, start = [], 0
    while start < len(data):
        size = int.from_bytes(data[start : start + 4], "little")
        end = start + _HEAD + size + _CHECK
        body = data[start : end - _CHECK]
        if end > len(data) or hashlib.sha256(body).digest()[:_CHECK] != data[end - _CHECK : end]:
            if end < len(data):
                raise StorageError(
                    f"The journal '{path}' is damaged at byte {start}.",
                    "Take it away to start anew; the round it speaks of is lost, and no earlier round may be joined.",
                )
            break
        records.append((body[4], body[_HEAD:]))
        start = end
    return records, start
