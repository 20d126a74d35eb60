"""Kill -9 at every statement of a round: the ledger and what left agree, no round is answered in two ways."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from helpers.killed_processes import dying_at, was_killed
from helpers.small_federation import PASSPHRASE, copy_file, founded, made, noon, request
from helpers.waiting import LONG, wait_until
from tacit.field.device import Device
from tacit.field.device.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")]
ROUNDS = 2
EVERY = [pytest.param(1, marks=pytest.mark.fuzz), 4]  # each statement, or each fourth


class Recorder:
    """The transport: what reached it is on disk, message by message."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def send(self, number: int, content: bytes) -> None:
        with (self.folder / f"{number}-{len(list(self.folder.iterdir()))}").open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def messages(self) -> list[tuple[int, bytes]]:
        return [(int(file.name.split("-")[0]), file.read_bytes()) for file in sorted(self.folder.iterdir())]


def take_part(device: Device, recorder: Recorder) -> None:
    for number in range(ROUNDS):
        member = device.membership
        assert member is not None
        last = member.answer()
        if last is not None and last.round > number:
            continue
        entry = device.learn(request(founded(), number))
        recorder.send(number, device.release(entry))
        device.answers.mark_sent(entry)


def in_a_child(path: Path, recorder: Recorder, deadly: int) -> bool:
    """Take part in another process that dies at its statement number `deadly`; say whether it died."""

    def work() -> None:
        device = Device.open(path, PASSPHRASE, noon)
        device._store.connection.set_trace_callback(dying_at(deadly))
        take_part(device, recorder)

    return was_killed(work)


def check(path: Path, recorder: Recorder) -> None:
    """What left is in the ledger; what the ledger calls sent left; what it calls prepared did not."""
    with Device.open(path, PASSPHRASE, noon) as device:
        entries = {entry.digest: entry for entry in device.ledger.list()}
    left = {hashlib.sha256(content).hexdigest() for _, content in recorder.messages()}
    assert left <= entries.keys(), "something left that the ledger does not know"
    for digest, entry in entries.items():
        assert entry.state != "sent" or digest in left, "the ledger says sent, but nothing left"
        assert entry.state != "prepared" or digest not in left, "it left, but the ledger says it did not"
    by_round: dict[int, set[bytes]] = {}
    for number, content in recorder.messages():
        by_round.setdefault(number, set()).add(content)
    assert all(len(contents) == 1 for contents in by_round.values()), "a round was answered in two ways"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "base" / "device.db"
    made(path, seed=7, lane=2).close()
    return path


def private_of(path: Path) -> np.ndarray:
    with Device.open(path, PASSPHRASE, noon) as device:
        assert device.membership is not None
        private = device.membership.last_private()
    assert private is not None
    return np.asarray(private["p"])


@pytest.mark.parametrize("every", EVERY)
def test_killed_at_statements_it_resumes_and_nothing_leaves_twice(base: Path, tmp_path: Path, every: int) -> None:
    whole = tmp_path / "whole.db"
    copy_file(base, whole)
    with Device.open(whole, PASSPHRASE, noon) as device:
        take_part(device, Recorder(tmp_path / "whole"))
    expected, messages = private_of(whole), Recorder(tmp_path / "whole").messages()
    deadly = 1 - every
    while True:
        deadly += every
        folder = tmp_path / str(deadly)
        folder.mkdir()
        path, recorder = folder / "device.db", Recorder(folder / "sent")
        copy_file(base, path)
        died = in_a_child(path, recorder, deadly)
        check(path, recorder)
        if not died:
            break
        assert not in_a_child(path, recorder, deadly=10**9)
        check(path, recorder)
        assert np.array_equal(private_of(path), expected), "a round was learnt twice, or not at all"
        assert set(recorder.messages()) == set(messages)
        shutil.rmtree(folder)
    assert deadly > 20, "the points of death were not reached"


def test_killed_at_any_moment_the_file_is_whole(base: Path, tmp_path: Path) -> None:
    draw = random.Random(5)
    path, begun = tmp_path / "device.db", tmp_path / "begun"  # one byte in the middle of each transaction
    copy_file(base, path)
    for wanted in [draw.randint(1, 30) for _ in range(12)]:
        begun.write_bytes(b"")
        child = os.fork()
        if child == 0:
            try:
                store = Store.open(path, PASSPHRASE)
                with begun.open("wb", buffering=0) as progress:
                    for number in range(10_000):
                        with store.transaction():
                            store.put("model", os.urandom(20_000))
                            progress.write(b".")
                            store.add("ledger", {"number": number})
            finally:
                os._exit(0)
        try:
            wait_until(lambda n=wanted: begun.stat().st_size >= n, LONG, f"{wanted} transactions have begun")
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        store = Store.open(path, PASSPHRASE)
        rows = [row for row, _ in store.rows("ledger")]
        assert rows == list(range(1, len(rows) + 1))
        store.close()
