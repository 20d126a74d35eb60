"""Processes that need the same kernel at the same time compile it once: the others wait and load it from the cache.

Devices, workers and tests often start together with an empty cache. numba would compile a kernel in each of them, and
of two processes that store code for different types of arguments one would overwrite the other's entry.

A lock on a file beside the cache entry belongs to one process. Kernels call each other without cycles, so processes
that wait for each other's kernels cannot wait in a circle.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher

from tacit.locks import lock_file

LONGEST = 120.0  # seconds; a process that was stopped while it compiled holds up the others for no longer
_held = set[Path]()


@contextmanager
def _hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock of a path; a process that has it already does not wait for itself."""
    if path in _held:
        yield
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError:  # a folder that can only be read: every process compiles for itself
        yield
        return
    try:
        _wait_for_lock(file)
        _held.add(path)
        yield
    finally:
        _held.discard(path)
        os.close(file)  # this ends the lock


def _wait_for_lock(file: int) -> None:
    end = time.monotonic() + LONGEST
    while time.monotonic() < end:
        try:
            lock_file(file)
            break
        except OSError:
            time.sleep(0.02)


def install() -> None:
    """Make numba compile under such a lock from now on, in this process."""
    compile_alone: Callable[[Any, Any], Any] = Dispatcher.compile

    def compile_once(self: Any, sig: Any) -> Any:
        entry = getattr(getattr(self._cache, "_cache_file", None), "_index_path", None)
        if entry is None:  # a function without a cache
            return compile_alone(self, sig)
        with global_compiler_lock, _hold_lock(Path(f"{entry}.lock")):
            return compile_alone(self, sig)

    Dispatcher.compile = compile_once  # type: ignore[method-assign]
