"""Work in a process of its own that is killed on purpose."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable

from helpers.waiting import LONG, wait_until


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

    def has_ended() -> bool:
        found, how = os.waitpid(child, os.WNOHANG)
        status.extend([how] if found else [])
        return bool(found)

    try:
        wait_until(has_ended, LONG, "the process dies or ends")
    finally:
        if not status:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    if os.WIFSIGNALED(status[0]):
        assert os.WTERMSIG(status[0]) == signal.SIGKILL, f"it died of signal {os.WTERMSIG(status[0])}"
        return True
    assert os.WEXITSTATUS(status[0]) == 0, "it failed before it was to die; see what it printed"
    return False


def dying_at(deadly: int) -> Callable[[str], None]:
    """Return what a connection tells its statements to: it kills this process at number `deadly`, counted from 1."""
    seen = 0

    def count(statement: str) -> None:
        nonlocal seen
        seen += 1
        if seen == deadly:
            os.kill(os.getpid(), signal.SIGKILL)

    return count
