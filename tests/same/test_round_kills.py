"""Kill -9 and Ctrl-C while a process for a round runs: no process is left over, and nothing is sent twice.

A real `tacit device run` takes part; what strikes it is started by what the coordinator sees of it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.town_federation import PASSPHRASE, assert_same, simulated
from helpers.waiting import LONG, wait_for_thread, wait_until

pytest.importorskip("flwr", reason="the field needs Flower")
from helpers.flower_federation import Field
from tacit.field.carriers.supernode import SuperNode
from tacit.field.device import Device

pytestmark = [
    pytest.mark.fuzz,  # each starts five processes or so
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found in /proc"),
    pytest.mark.filterwarnings("ignore"),  # Flower and its servers warn of their own doings
]


class RunningDevice:
    """`tacit device run --stay` in a process group of its own, as a terminal starts it."""

    def __init__(self, path: Path) -> None:
        environment = {**os.environ, "TACIT_DEVICE": str(path), "TACIT_PASSPHRASE": PASSPHRASE}
        command = [sys.executable, "-m", "tacit", "device", "run", "--stay", "--poll", "0.05"]
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def worker(self) -> int | None:
        """Return the process of a round; none while there is none."""
        return next(iter(processes_of(self.process.pid)), None)

    def kill_worker(self) -> list[int]:
        """Kill the process of a round as soon as there is one."""
        wait_until(lambda: self.worker() is not None, LONG, "a process for a round starts")
        os.kill(worker := self.worker() or 0, signal.SIGKILL)
        return [worker]

    def kill(self) -> list[int]:
        """Kill the process that waits."""
        left = [self.worker() or 0]
        self.process.kill()
        self.process.wait(LONG)
        return left

    def interrupt(self) -> list[int]:
        """Send what Ctrl-C sends, to all processes of the terminal."""
        left = [self.worker() or 0]
        os.killpg(self.process.pid, signal.SIGINT)
        assert self.process.wait(LONG) == 0
        return left

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(LONG)


def processes_of(parent: int) -> Iterator[int]:
    """Yield the processes that a process has started, and that still run."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, ppid = stat.read_text().rsplit(")", 1)[1].split()[:2]
        except OSError:  # it has ended
            continue
        if int(ppid) == parent and state != "Z":
            yield int(stat.parent.name)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def strike_when(field: Field, moment: str, node: int, strike: Callable[[], None]) -> None:
    """Let something strike once, at a moment in the exchange with a node that the coordinator sees."""
    state, done = field.link._state, threading.Event()

    def once() -> None:
        if not done.is_set():
            done.set()
            strike()

    find, confirm, store = state.get_message_ins, state.object_store.delete, state.store_object
    fetched: dict[str, int] = {}

    def found(node_id: int, *more: Any, **named: Any) -> Any:
        messages = find(node_id, *more, **named)
        fetched.update({message.metadata.message_id: node_id for message in messages})
        if moment == "found" and messages and node_id == node:
            threading.Thread(target=once, daemon=True).start()  # the device must have its answer first
        return messages

    def confirmed(name: str) -> None:
        confirm(name)
        if moment == "fetched" and fetched.get(name) == node:
            once()

    def stored(run: int, session: str, name: str, content: bytes) -> bool:
        pushing = state._object_push_sessions.get(session)
        answers = {one: state.message_ins_id_to_message_res_id.get(one) for one, to in fetched.items() if to == node}
        if moment == "answering" and pushing is not None and pushing.root_object_ids & set(answers.values()):
            once()
        return bool(store(run, session, name, content))

    state.get_message_ins, state.object_store.delete, state.store_object = found, confirmed, stored


@pytest.mark.parametrize(
    ("moment", "strike"),
    [
        pytest.param("found", RunningDevice.kill_worker, id="the worker starts"),
        pytest.param("fetched", RunningDevice.kill_worker, id="the worker has the message"),
        pytest.param("answering", RunningDevice.kill_worker, id="a part of its answer left"),
        pytest.param("fetched", RunningDevice.kill, id="the waiting process is killed"),
        pytest.param("answering", RunningDevice.kill, id="killed while it answers"),
        pytest.param("fetched", RunningDevice.interrupt, id="Ctrl-C"),
    ],
)
def test_a_round_goes_on_after_a_kill(
    moment: str, strike: Callable[[RunningDevice], list[int]], tmp_path: Path
) -> None:
    field, struck, left = Field(tmp_path, "fpl", people=2), threading.Event(), list[int]()
    running, stop = RunningDevice(field.path(0)), threading.Event()

    def hit() -> None:
        left.extend(strike(running))
        struck.set()

    strike_when(field, moment, field.link._nodes[1], lambda: threading.Thread(target=hit, daemon=True).start())
    again: list[RunningDevice] = []

    def come_back() -> None:
        assert struck.wait(LONG)
        if running.process.poll() is not None:  # it was ended: its user starts it once more
            again.append(RunningDevice(field.path(0)))

    with Device.open(field.path(1), PASSPHRASE) as other:
        node = SuperNode(other, poll=0.05)
        threads = [
            threading.Thread(target=work, args=args, daemon=True)
            for work, args in ((node.run, (stop,)), (come_back, ()))
        ]
        for thread in threads:
            thread.start()
        try:
            coordinator = field.run(1, quorum=2, minimum=2)
            wait_until(lambda: not any(map(is_running, left)), LONG, "the process of the round ends")
            stop.set()
            for thread in threads:
                wait_for_thread(thread)
        finally:
            for one in (running, *again):
                one.end()
            field.close()
    assert struck.is_set()
    assert left != [0]
    assert [(happened.answered, happened.refused) for happened in field.journal.rounds.records()] == [(2, 0)]
    people = field.people()
    assert [(entry.round, entry.state) for entry in people[0].ledger.list()] == [(0, "sent")], "one message"
    assert_same(simulated(field.federation, field.clients, field.catalog, 1), coordinator.shared, people)
    for device in people.values():
        device.close()
