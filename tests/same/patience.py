"""Waiting in tests: for a condition and never for a time, and never for ever."""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

LONG = 300.0  # seconds; nothing takes so long, also where much else runs
WHOLE = 900.0  # seconds for a whole test


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition; without it the test fails, and says what it waited for."""
    end = time.monotonic() + LONG
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"Waited {LONG:g} seconds in vain: {what}.")
        time.sleep(0.05)


def ended(thread: threading.Thread) -> None:
    """Wait for a thread, which must end."""
    thread.join(LONG)
    assert not thread.is_alive(), f"'{thread.name}' has not ended after {LONG:g} seconds"


def was_killed(work: Callable[[], object]) -> bool:
    """Work in another process; say whether it was ended by SIGKILL. Where it fails otherwise, so does the test."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    status = list[int]()

    def is_over() -> bool:
        found, how = os.waitpid(child, os.WNOHANG)
        status.extend([how] if found else [])
        return bool(found)

    end, pause = time.monotonic() + LONG, 0.001
    while not is_over():
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail(f"A process has not ended after {LONG:g} seconds.")
        time.sleep(pause)
        pause = min(0.05, pause * 2)
    if os.WIFSIGNALED(status[0]):
        assert os.WTERMSIG(status[0]) == signal.SIGKILL, f"it died of signal {os.WTERMSIG(status[0])}"
        return True
    assert os.WEXITSTATUS(status[0]) == 0, "it failed before it was to die; see what it printed"
    return False


@contextmanager
def not_for_ever() -> Iterator[None]:
    """Fail a test that hangs in something that has no limit of its own."""

    def stop(number: int, frame: object) -> None:
        pytest.fail(f"The test was not over after {WHOLE:g} seconds.")

    if threading.current_thread() is not threading.main_thread():  # signals are heard by that one only
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, WHOLE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
