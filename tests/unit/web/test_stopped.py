"""`tacit demo --page` leaves nothing behind, however it is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.waiting import read_line, wait_for_process

pytestmark = pytest.mark.slow

SMALL = (
    "from tacit.web import town; town.BEFORE = town.WITH_HER = 1; from tacit.cli import main; main(['demo', '--page'])"
)


@pytest.mark.parametrize(
    ("sent", "code"), [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 0, marks=pytest.mark.slow)]
)
def test_the_demonstration_removes_its_folder(tmp_path: Path, sent: signal.Signals, code: int) -> None:
    there = tmp_path / "here"
    there.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", SMALL],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # it may be ignored where tests were started
        env={**os.environ, "PYTHONUNBUFFERED": "1", "TMPDIR": str(there)},
    )
    while line := read_line(process, "the demonstration prints where its page is"):
        if "http://127.0.0.1" in line:
            break
    assert list(there.glob("tacit-*/device.db")), "its device lies there while it runs"
    process.send_signal(sent)
    _, err = wait_for_process(process, f"the demonstration ends after {sent.name}")
    assert process.returncode == code, err
    assert not list(there.glob("tacit-*")), "a device was left behind"
    assert "Traceback" not in err
