"""Waiting in tests: for a condition, with a bound, and with words for what did not happen."""

from __future__ import annotations

import faulthandler
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

LONG = 300.0  # seconds; nothing takes so long, also where much else runs
GRACE = 60.0  # seconds between the failure of a test that hangs and the end of a process that does not react to it


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait until a condition holds; fail the test after some seconds and say what it waited for."""
    end, pause = time.monotonic() + seconds, 0.001
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"Waited {seconds:g} seconds in vain: {what}.")
        time.sleep(pause)
        pause = min(0.05, pause * 2)


def wait_for_thread(thread: threading.Thread, seconds: float = LONG) -> None:
    """Wait until a thread ends."""
    thread.join(seconds)
    assert not thread.is_alive(), f"The thread '{thread.name}' has not ended after {seconds:g} seconds."


def wait_for_process(process: subprocess.Popen[str], what: str, seconds: float = LONG) -> tuple[str, str]:
    """Wait until a process ends and return what it printed; kill it when it does not end."""
    try:
        out, err = process.communicate(timeout=seconds)  # closes its input, too
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate(timeout=seconds)
        pytest.fail(f"Waited {seconds:g} seconds in vain: {what}. The process printed:\n{out}{err}")
    return out, err


def read_line(process: subprocess.Popen[str], what: str, seconds: float = LONG) -> str:
    """Return the next line that a process prints; kill it when none comes. The line is empty after the last one."""
    lines, stdout = list[str](), process.stdout
    assert stdout is not None
    reader = threading.Thread(target=lambda: lines.append(stdout.readline()), daemon=True)
    reader.start()
    reader.join(seconds)
    if not lines:
        process.kill()
        pytest.fail(f"Waited {seconds:g} seconds in vain: {what}.")
    return lines[0]


@contextmanager
def fail_after(seconds: float, stderr: int) -> Iterator[None]:
    """Fail a test that hangs; if it hangs in compiled code, show where on a file descriptor and end the process."""

    def stop(number: int, frame: object) -> None:
        pytest.fail(f"The test was not over after {seconds:g} seconds.")

    if threading.current_thread() is not threading.main_thread():  # only that one handles signals
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(seconds + GRACE, exit=True, file=stderr)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
