"""The small file beside a device's file: who takes part now, and how often the device's file was written.

The lock is the system's own (`flock`): it ends with the program that has it, however that ends, so that no stale lock
is ever left. Settings, history and pause do not need it, since each is one transaction; taking part does, because a
secure sum has a memory between its messages.

The number is written after each transaction, so that it is never ahead of the device's file. If it is, or if it is
missing or of another file, then the device's file was put back or copied, and the rounds since are not in it.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from tacit.errors import DeviceError

LONGEST = 100  # bytes of the note
GLANCE = 0.05  # seconds


class FileLock:
    """The lock of one device's file, and the note in it."""

    def __init__(self, path: Path) -> None:
        self.path = Path(f"{path}.lock")
        self._file = -1
        self.is_held = False

    def _open(self) -> int:
        if self._file < 0:
            self._file = os.open(self.path, os.O_CREAT | os.O_RDWR | getattr(os, "O_CLOEXEC", 0), 0o600)
        return self._file

    def take(self) -> None:
        """Take part, until `close`; refused while another program does."""
        if self.is_held:
            return
        try:
            _lock_patiently(self._open())
        except OSError:
            raise DeviceError(
                "Another program takes part with this device's file; only one can at a time.",
                "End it first: Ctrl-C there, or tacit device pause. Settings and history can be changed meanwhile.",
            ) from None
        self.is_held = True

    def release(self) -> None:
        """Let another program take part."""
        if self.is_held:
            _unlock(self._file)
            self.is_held = False

    def is_taken(self) -> bool:
        """Say whether a program takes part now: this one, or another."""
        if self.is_held:
            return True
        try:
            file = os.open(self.path, os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
        except OSError:
            return False
        try:
            _lock(file)
        except OSError:
            return True
        finally:
            os.close(file)
        return False

    def note(self, file_id: str, counter: int) -> None:
        """Write how often a file was written. Where this fails, an older number stays, which is no harm."""
        try:
            os.pwrite(self._open(), f"{file_id} {counter:020d}\n".encode(), 0)
        except OSError:
            return

    def read(self) -> tuple[str, int] | None:
        """Return the file and the number of the note; none without one."""
        try:
            file_id, counter = self.path.read_bytes()[:LONGEST].decode().split()
            return file_id, int(counter)
        except (OSError, ValueError):
            return None

    def close(self) -> None:
        """Let it go."""
        if self._file >= 0:
            os.close(self._file)
        self._file, self.is_held = -1, False


def _lock_patiently(file: int) -> None:
    """Lock a file; once more after a moment, because a program that only checks holds the lock for an instant."""
    try:
        _lock(file)
    except OSError:
        time.sleep(GLANCE)
        _lock(file)


if sys.platform == "win32":
    import msvcrt

    def _lock(file: int) -> None:
        os.lseek(file, 2 * LONGEST, os.SEEK_SET)  # beyond the note, which others write
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)

    def _unlock(file: int) -> None:
        os.lseek(file, 2 * LONGEST, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_UNLCK, 1)
else:
    import fcntl

    def _lock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)
