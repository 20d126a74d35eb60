"""A device that waits, and learns in a process for each round: the same bits, also if that process is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.town_federation import PASSPHRASE, assert_same, simulated
from helpers.waiting import LONG, wait_for_thread

pytest.importorskip("flwr", reason="the field needs Flower")
from helpers.flower_federation import Field
from tacit.cli.device import PASSPHRASE as PASSPHRASE_VARIABLE
from tacit.cli.device_file import CODE, NEW_PASSPHRASE
from tacit.field.carriers import round_process
from tacit.field.carriers.round_process import WORKER, WaitingNode
from tacit.field.device.device_file import DeviceFile

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # Flower and its servers warn of their own doings
]


@pytest.fixture
def field(tmp_path: Path) -> Iterator[Field]:
    made = Field(tmp_path, "fpl", people=2)
    yield made
    made.close()


def test_rounds_in_processes_of_their_own_give_the_same_bits_though_one_is_killed(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, deaths = round_process._Worker.lines, []

    def deadly(worker: Any, stop: threading.Event) -> Iterator[dict[str, Any]]:
        for said in lines(worker, stop):
            yield said
            if "ready" in said and not deaths:
                deaths.append(worker._process.pid)
                worker._process.kill()  # it has the lock now, or is about to take it

    monkeypatch.setattr(round_process._Worker, "lines", deadly)
    stop, people = threading.Event(), field.people()
    nodes = [WaitingNode(device, poll=0.05) for device in people.values()]
    threads = [threading.Thread(target=node.run, args=(stop,), daemon=True) for node in nodes]
    for thread in threads:
        thread.start()
    coordinator = field.run(2, quorum=2, minimum=2)
    stop.set()
    for thread in threads:
        wait_for_thread(thread)
    assert deaths
    assert [(happened.answered, happened.lost) for happened in field.journal.rounds.records()] == [(2, 0)] * 2
    assert [entry.round for entry in people[0].ledger.list()] == [0, 1], "one message a round"
    assert_same(simulated(field.federation, field.clients, field.catalog, 2), coordinator.shared, people)
    for device in people.values():
        device.close()


def test_a_worker_ends_with_the_process_that_started_it(field: Field) -> None:
    """Its pipe closes before it is told to go: it has taken no lock and written nothing."""
    device = field.people()[0]
    secret, file_id = device.store.hand_over()
    begun = {"file": str(device.store.path), "poll": 1.0, "node": "1", "found": "", "log": False}
    about = {**begun, "secret": [b64encode(secret).decode(), file_id]}
    before = device.moment
    ran = subprocess.run(
        [sys.executable, "-P", "-m", WORKER],
        input=json.dumps(about).encode() + b"\n",
        capture_output=True,
        timeout=LONG,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert ran.returncode == 0, ran.stderr
    assert [json.loads(line) for line in ran.stdout.splitlines()] == [{"ready": True}]
    assert device.moment == before
    for one in field.people().values():
        one.close()


def test_a_file_that_was_put_back_is_settled_before_it_waits(field: Field) -> None:
    people = field.people()
    path = people[0].store.path
    old = path.read_bytes()
    people[0].pause()
    people[0].resume()
    for device in people.values():
        device.close()
    path.write_bytes(old)
    with DeviceFile.open_waiting(path, PASSPHRASE) as device:
        assert device.participation.sits_out_until is not None
        assert device.sharing.masked_only
    with DeviceFile.open_waiting(path, PASSPHRASE) as device:
        assert type(device) is DeviceFile
        assert device.participation.sits_out_until is not None


def test_a_worker_whose_last_line_was_cut_has_ended_and_reads_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(round_process, "WORKER", "this")  # a module that prints what is no JSON, and ends
    with round_process._Worker() as worker:
        assert worker._lines.get(timeout=LONG) is None
        worker._end()
        worker.write({"go": True})
    assert worker._process.returncode is not None


def test_a_worker_gets_no_secret_in_its_environment() -> None:
    assert {PASSPHRASE_VARIABLE, NEW_PASSPHRASE, CODE} == {*round_process.SECRETS}
