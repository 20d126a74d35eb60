"""Killed, stopped, without space: the message is clear and nothing half-written stays."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.waiting import LONG, wait_for_process, wait_until

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-c", "from tacit.cli import main; main()"]
ENDLESS = ["run", "--method", "gmf", "--data", "town", "--set", "method.epochs=1000000"]


def start(arguments: list[str], folder: Path, limit: int | None = None) -> subprocess.Popen[str]:
    def smaller() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # whatever this process inherited, or a library in it has changed
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        if limit is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that writing fails instead of killing
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=smaller,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_ctrl_c_ends_a_run_with_one_message_and_no_folder(tmp_path: Path) -> None:
    process = start(ENDLESS, tmp_path)
    wait_until(
        lambda: process.poll() is not None or processor_seconds(process.pid) >= 5,  # in its epochs, on any machine
        LONG,
        "the run uses five seconds of a processor",
    )
    assert process.poll() is None, f"it ended by itself: {process.stderr.read() if process.stderr else ''}"
    process.send_signal(signal.SIGINT)
    out, err = wait_for_process(process, "the run ends after SIGINT")
    assert process.returncode == 130, err
    assert "Stopped" in err
    assert "Traceback" not in err
    assert out == ""
    assert not list(tmp_path.rglob("*.npz")), "a half-written run was left behind"


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for file in found for child in file.read_text().split()]


def workers(pid: int) -> list[int]:
    """The worker processes among the children; the other one keeps track of resources."""
    found = [(child, Path(f"/proc/{child}/cmdline")) for child in children(pid)]
    return [child for child, line in found if line.exists() and "spawn_main" in line.read_text()]


def others_have_begun(pid: int, before: list[int]) -> bool:
    """Whether there are new workers that know what to do: earlier, Python shows a traceback where a parent ends."""
    others = {*workers(pid)} - {*before}
    try:
        return bool(others) and all("numpy" in Path(f"/proc/{one}/maps").read_text() for one in others)
    except OSError:
        return False


def test_ctrl_c_ends_all_workers_also_after_one_was_killed(tmp_path: Path) -> None:
    arrays = tmp_path / "arrays"
    arrays.mkdir()
    endless = ["--set", "method.epochs=1000000", "--set", "data.users=300", "--set", "runtime.shards=2"]
    there = ["--set", "runtime.engine=processes", "--set", f"runtime.folder={arrays}"]
    process = start(["run", "--method", "fed-svd", "--data", "town", *endless, *there], tmp_path)
    several = "*/shared-??*.npy"  # files of shared arrays are counted, and each round writes new ones
    wait_until(lambda: process.poll() is not None or bool(list(arrays.glob(several))), LONG, "ten files of rounds")
    assert process.poll() is None, process.stderr.read() if process.stderr else ""
    before = workers(process.pid)
    os.kill(before[0], signal.SIGKILL)
    wait_until(lambda: others_have_begun(process.pid, before), LONG, "another worker takes its place")
    after = {*before, *children(process.pid)}
    process.send_signal(signal.SIGINT)
    out, err = wait_for_process(process, "the run ends after SIGINT")
    assert (process.returncode, out) == (130, ""), err
    assert "Traceback" not in err
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in after), LONG, "all processes end")
    assert not list(arrays.iterdir()), "arrays on their way were left behind"
    assert not list(tmp_path.rglob("*.npz")), "a half-written run was left behind"


def test_ctrl_c_ends_all_jobs(tmp_path: Path) -> None:
    process = start([*ENDLESS, "--set", "data.users=300", "--repeat", "3", "--jobs", "2"], tmp_path)

    def all_work() -> bool:
        found = workers(process.pid)
        return len(found) == 2 and all(processor_seconds(one) >= 4 for one in found)

    wait_until(lambda: process.poll() is not None or all_work(), LONG, "two workers are in their runs")
    assert process.poll() is None, process.stderr.read() if process.stderr else ""
    after = children(process.pid)
    process.send_signal(signal.SIGINT)
    out, err = wait_for_process(process, "the command ends after SIGINT")
    assert (process.returncode, out) == (130, ""), err
    assert "Traceback" not in err
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in after), LONG, "all processes end")
    assert not list(tmp_path.rglob("*.npz")), "a half-written run was left behind"


def test_a_full_disk_is_reported_and_nothing_stays(tmp_path: Path) -> None:
    town = ["--data", "town", "--set", "data.users=300", "--set", "evaluation.local_only_users=0"]
    process = start(["run", "--method", "ease", *town], tmp_path, limit=100_000)
    _, err = wait_for_process(process, "the run ends on a full disk")
    assert process.returncode == 9, err
    assert "cannot be written" in err
    runs = tmp_path / "runs"
    assert not runs.exists() or not list(runs.iterdir()), "a half-written folder was left behind"


@pytest.mark.parametrize("arguments", [["methods"], ["data", "list"]])
def test_a_reader_that_goes_away_is_no_error_message(arguments: list[str], tmp_path: Path) -> None:
    process = start(arguments, tmp_path)
    assert process.stdout is not None
    process.stdout.close()
    _, err = wait_for_process(process, "the command ends without a reader")
    assert "Traceback" not in err
