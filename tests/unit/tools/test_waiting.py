"""Waits end, and a test that hangs fails or is ended."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from helpers import waiting
from helpers.waiting import LONG, fail_after, read_line, wait_for_process, wait_for_thread, wait_until

HANGING = """
import signal, sys, threading
sys.path.insert(0, sys.argv[1])
from helpers import waiting
waiting.GRACE = 0.1
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])  # as in compiled code, which does not look at signals
with waiting.fail_after(0.1, 2):
    threading.Event().wait(300)
"""


def test_a_wait_ends_with_its_condition_or_names_it() -> None:
    seen = iter([False, False, True])
    wait_until(lambda: next(seen), LONG, "the third time")
    assert list(seen) == []
    with pytest.raises(pytest.fail.Exception, match="the day after"):
        wait_until(lambda: False, 0.01, "the day after")


def test_a_thread_that_does_not_end_is_named() -> None:
    may_end = threading.Event()
    thread = threading.Thread(target=may_end.wait, args=(LONG,), name="patient", daemon=True)
    thread.start()
    with pytest.raises(AssertionError, match="patient"):
        wait_for_thread(thread, 0.01)
    may_end.set()
    wait_for_thread(thread)


def test_a_process_that_does_not_end_is_killed() -> None:
    process = subprocess.Popen(["sleep", "300"], stdout=subprocess.PIPE, text=True)
    with pytest.raises(pytest.fail.Exception, match="a nap"):
        wait_for_process(process, "a nap", 0.01)
    assert process.returncode == -signal.SIGKILL


def test_a_process_that_says_nothing_is_killed() -> None:
    process = subprocess.Popen(["sh", "-c", "echo one; exec sleep 300"], stdout=subprocess.PIPE, text=True)
    assert read_line(process, "a word") == "one\n"
    with pytest.raises(pytest.fail.Exception, match="another word"):
        read_line(process, "another word", 0.01)
    wait_for_process(process, "its end")
    assert process.returncode == -signal.SIGKILL


def test_a_test_that_hangs_fails() -> None:
    with pytest.raises(pytest.fail.Exception), fail_after(0.05, 2):
        threading.Event().wait(LONG)


def test_a_test_that_hangs_in_compiled_code_is_ended_and_shows_where() -> None:
    folder = str(Path(waiting.__file__).parent.parent)
    ended = subprocess.run([sys.executable, "-c", HANGING, folder], capture_output=True, text=True, timeout=LONG)
    assert ended.returncode == 1
    assert 'File "<string>", line 8' in ended.stderr
