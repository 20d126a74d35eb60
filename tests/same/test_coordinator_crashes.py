"""Kill -9 of the coordinator at every point of a sum under masks: no finished round lost, no second release.

Points are: every statement that writes to its journal, every phase before it is asked for, and every answer after it
has left its device. A recorder at the transport, which outlives the coordinator, says what really left.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
from collections.abc import Callable, Generator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from helpers.killed_processes import was_killed
from helpers.town_federation import BOLD, PASSPHRASE, PI, device_of, founded, journal_of, town
from tacit.errors import TacitError
from tacit.field.carriers.loopback import Loopback
from tacit.field.coordinator import Coordinator, CoordinatorJournal, RoundRules
from tacit.field.device import Device, Sharing
from tacit.field.exchange import respond
from tacit.protocols.secure_aggregation import ServerPhase
from tacit.protocols.secure_aggregation.two_stage import SecureAggregationConfig
from tacit.wire.federation import Federation
from tacit.wire.messages import read_secure_request

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")]
PEOPLE, ROUNDS = 3, 2
CARE = SecureAggregationConfig(n_min=3, k_min=1, spare=0, corrupted=0.0, dropped=0.0)
WRITES = ("BEGIN", "INSERT", "UPDATE", "DELETE", "COMMIT")


class Recording(Loopback):
    """Writes down what leaves devices, beyond the reach of kill -9; counts the points at which one can die."""

    def __init__(self, devices: Mapping[int, Device], federation: Federation, record: Path) -> None:
        super().__init__(devices)
        self.federation, self.record, self.point = federation, record, lambda: None

    def ask(self, requests: Mapping[int, bytes], seconds: float, most_bytes: int) -> Generator[tuple[int, bytes]]:
        self.point()
        for number, content in requests.items():
            turn, answers = read_secure_request(self.federation, content), list[bytes]()

            def send(answer: bytes, number: int = number, turn: object = turn, into: list[bytes] = answers) -> None:
                about = {"device": number, "phase": turn.phase, "round": turn.round}  # type: ignore[attr-defined]
                with self.record.open("a") as file:
                    file.write(json.dumps(about | {"digest": hashlib.sha256(answer).hexdigest()}) + "\n")
                into.append(answer)

            try:
                respond(self.devices[number], content, send)
            except TacitError:
                continue
            self.point()
            yield number, answers[0]


def run(folder: Path, deadly: int = 0) -> None:
    """Run the rounds that are left, or die at point number `deadly`, in a sum of two stages; later ones have one."""
    journal, points = CoordinatorJournal.open(folder / "journal.db"), 0
    devices = {person + 1: Device.open(folder / f"{person}.db", PASSPHRASE) for person in range(PEOPLE)}

    for connection in (journal.file.connection, *(device._store.connection for device in devices.values())):
        connection.execute("PRAGMA synchronous = OFF")  # kill -9 takes nothing from the system's memory of files

    def point() -> None:
        nonlocal points
        points += 1
        if points == deadly:
            os.kill(os.getpid(), signal.SIGKILL)

    carrier = Recording(devices, journal.federation, folder / "left.jsonl")
    carrier.point = point  # type: ignore[method-assign, assignment]
    _trace(journal, point)
    care = CARE.model_copy(update={"two_stage": deadly > 0})
    Coordinator(journal, RoundRules(rounds=ROUNDS, secure=care, device_policy=BOLD, minimum=3), carrier).run()
    journal.close()
    for device in devices.values():
        device.close()


def _trace(journal: CoordinatorJournal, point: Callable[[], None]) -> None:
    journal.file.connection.set_trace_callback(lambda statement: point() if statement.startswith(WRITES) else None)


def check(folder: Path, before: list[tuple[int, str]]) -> list[str]:
    """Compare journal, ledgers and what left; return what became of the rounds."""
    journal = CoordinatorJournal.open(folder / "journal.db")
    states = [happened.state for happened in journal.rounds.records()]
    assert [(r.number, r.state) for r in journal.rounds.records()][: len(before)] == before, "a finished round was lost"
    shared, counted = journal.model(), {device.number: device.counted for device in journal.members.devices()}
    journal.close()
    assert shared is not None
    assert all(np.isfinite(array).all() for array in shared.values())
    assert states.count("finished") == ROUNDS, "a sum that a kill ended is repeated"
    left = [json.loads(line) for line in (folder / "left.jsonl").read_text().splitlines()]
    for number in range(1, PEOPLE + 1):
        vectors = [one for one in left if one["device"] == number and one["phase"] == ServerPhase.VECTORS]
        with Device.open(folder / f"{number - 1}.db", PASSPHRASE) as device:
            entries = device.ledger.list()
        assert {entry.digest for entry in entries} == {one["digest"] for one in vectors}, "ledger and reality differ"
        for happened in range(len(states)):
            digests = {one["digest"] for one in vectors if one["round"] == happened}
            assert len(digests) <= 2, "more than the two vectors of a sum left in one round"
            assert len(digests) == len([one for one in vectors if one["round"] == happened]), "one left twice"
        assert all(entry.masked for entry in entries)
        assert counted[number] == max((at for at, state in enumerate(states) if state == "finished"), default=-1)
    return states


def test_killed_at_any_point_of_a_sum_it_goes_on_and_nothing_leaves_twice(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    clients, catalog = town(PEOPLE)
    journal = journal_of(base, founded("fpl", catalog), catalog)
    for person in range(PEOPLE):
        device = device_of(base, clients, person, catalog, journal.welcome)
        device.share(Sharing(pi=PI, coin="row", device_policy=BOLD, masked_only=False))
        journal.members.add(bytes([person]), device.identity)
        device.close()
    journal.close()
    deadly, ends = 0, list[list[str]]()
    while True:
        deadly += 1
        folder = tmp_path / str(deadly)
        shutil.copytree(base, folder)
        has_died = was_killed(partial(run, folder, deadly))
        journal = CoordinatorJournal.open(folder / "journal.db")
        before = [(happened.number, happened.state) for happened in journal.rounds.records()]
        journal.close()
        run(folder)
        ends.append(check(folder, before))
        shutil.rmtree(folder)
        if before or not has_died:  # the first round is over: what follows is the same again
            break
    assert len(ends) > 60, "the points of death were not reached"
    assert ends[0] == ["finished", "finished"], "killed before anything was begun, nothing is given up"
    assert ["abandoned", "finished", "finished"] in ends
    assert ends[-1] == ["finished", "finished"]
