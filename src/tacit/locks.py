"""The system's own lock on an open file: it ends with the program that has it, however that ends."""

from __future__ import annotations

import os
import sys

if sys.platform == "win32":
    import msvcrt

    def lock_file(file: int, place: int = 0) -> None:
        """Take the lock, or raise OSError if another program has it; `place` is a byte that is never written."""
        os.lseek(file, place, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def lock_file(file: int, place: int = 0) -> None:
        """Take the lock, or raise OSError if another program has it; `place` is a byte that is never written."""
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
