"""A coordinator by `tacit serve` and devices in processes of their own: kills and pauses, while masked rounds go on."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the field needs Flower")
from helpers.flower_federation import Nodes
from helpers.served_federation import ServedFederation
from helpers.waiting import LONG, wait_until

pytestmark = [
    pytest.mark.fuzz,
    pytest.mark.filterwarnings("ignore"),  # Flower and its servers warn of their own doings
]


@pytest.fixture
def served(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ServedFederation]:
    made = ServedFederation(tmp_path, *request.param)
    try:
        made.start()
        made.join_all()
        yield made
    finally:
        made.kill()


def wait_for_rounds(served: ServedFederation, n_finished: int, what: str) -> None:
    wait_until(lambda: served.n_finished() >= n_finished, LONG, what)


@pytest.mark.parametrize("served", [(40, 5)], indirect=True)
def test_a_coordinator_killed_25_times_in_40_masked_rounds_finishes_all(
    served: ServedFederation, models: Nodes
) -> None:
    pids = [models.start(served.path(person)) for person in range(served.people)]
    rng, done = np.random.default_rng(5), list[tuple[int, str, int]]()
    for _ in range(25):
        if rng.random() < 0.5:  # in the middle of any phase, or of the first ones
            wait_for_rounds(served, served.n_finished() + 1, "one more round")
        threading.Event().wait(rng.uniform(0, 3))
        served.kill()
        now = served.rounds()
        assert [one for one in now if one[1] == "finished"][: len(done)] == done, "a finished round was lost"
        done = [one for one in now if one[1] == "finished"]
        served.start()
    wait_for_rounds(served, 40, "all rounds")
    assert [models.wait(pid) for pid in pids] == [0] * len(pids)
    served.check_devices()


@pytest.mark.parametrize("served", [(10, 6)], indirect=True)
def test_devices_killed_a_third_at_a_time_cost_repeats_and_no_deadline(served: ServedFederation, models: Nodes) -> None:
    """A device that dies and is back after half a second is asked again: no round waits out its minute."""
    pids = {person: models.start(served.path(person)) for person in range(served.people)}
    rng, n_rounds = np.random.default_rng(7), 0
    while served.n_finished() < 9:
        seen = len(served.rounds())
        if seen > n_rounds:
            n_rounds = seen
            for person in np.flatnonzero(rng.random(served.people) < 0.3).tolist():
                os.kill(pids[person], signal.SIGKILL)
                models.wait(pids[person])
                threading.Event().wait(0.5)
                pids[person] = models.start(served.path(person))
        wait_until(lambda seen=n_rounds: len(served.rounds()) > seen or served.n_finished() >= 9, LONG, "a round")  # type: ignore[misc]
    assert sum(state == "abandoned" for _, state, _ in served.rounds()) <= 10
    wait_for_rounds(served, 10, "all rounds")
    assert [models.wait(pid) for pid in pids.values()] == [0] * len(pids)
    served.check_devices()


@pytest.mark.parametrize("who", ["coordinator", "devices", "all"])
@pytest.mark.parametrize("served", [(3, 5)], indirect=True)
def test_rounds_go_on_after_75_seconds_in_which_processes_were_stopped(
    served: ServedFederation, models: Nodes, who: str
) -> None:
    pids = [models.start(served.path(person)) for person in range(served.people)]
    wait_for_rounds(served, 1, "the first round")
    assert served.process is not None
    stopped = ([] if who == "devices" else [served.process.pid]) + ([] if who == "coordinator" else pids)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    threading.Event().wait(75)
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    wait_for_rounds(served, 3, "the other rounds")
    assert [models.wait(pid) for pid in pids] == [0] * len(pids)
    served.check_devices()
