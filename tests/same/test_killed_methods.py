"""Kill -9 of coordinator and devices at statements of their files, with every method: same bits, nothing twice."""

from __future__ import annotations

import os
import shutil
import signal
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from helpers.killed_processes import was_killed
from helpers.town_federation import BOLD, PASSPHRASE, device_of, founded, journal_of, town
from tacit.field.carriers.loopback import Loopback
from tacit.field.coordinator import Coordinator, CoordinatorJournal, RoundRules
from tacit.field.device import Device, Sharing
from tacit.methods.base import build_federated, names
from tacit.protocols.secure_aggregation.two_stage import SecureAggregationConfig
from tacit.types import Array

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")]
PEOPLE, ROUNDS = 3, 2
METHODS = names("federated")
MASKABLE = [name for name in METHODS if not build_federated(name).spec.client_tables]
CARE = SecureAggregationConfig(n_min=3, k_min=1, spare=0, corrupted=0.0, dropped=0.0)
READABLE = RoundRules(rounds=ROUNDS, secure=None, readable=True)
MASKED = RoundRules(rounds=ROUNDS, secure=CARE, device_policy=BOLD, minimum=PEOPLE)


class Points:
    """Counts the statements of all files, and ends the process at one of them."""

    def __init__(self, deadly: int) -> None:
        self.deadly, self.seen = deadly, 0

    def __call__(self, statement: str) -> None:
        self.seen += 1
        if self.seen == self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)


def base_of(folder: Path, method: str) -> Path:
    folder.mkdir()
    clients, catalog = town(PEOPLE)
    journal = journal_of(folder, founded(method, catalog), catalog)
    for person in range(PEOPLE):
        with device_of(folder, clients, person, catalog, journal.welcome) as device:
            device.share(Sharing(pi=0.7, coin="row", device_policy=BOLD, masked_only=False))
            journal.members.add(bytes([person]), device.identity)
    journal.close()
    return folder


def run(folder: Path, rules: RoundRules, deadly: int = 0) -> tuple[dict[str, Array], int]:
    """Run the rounds that are left, or die at statement number `deadly`; return the model, and how many there were."""
    journal, points = CoordinatorJournal.open(folder / "journal.db"), Points(deadly)
    devices = {person + 1: Device.open(folder / f"{person}.db", PASSPHRASE) for person in range(PEOPLE)}
    for connection in (journal.file.connection, *(device._store.connection for device in devices.values())):
        connection.execute("PRAGMA synchronous = OFF")  # kill -9 takes nothing from the system's memory of files
        connection.set_trace_callback(points)
    coordinator = Coordinator(journal, rules, Loopback(devices))
    coordinator.run()
    for device in devices.values():
        device.close()
    journal.close()
    return coordinator.shared, points.seen


def check_killed(tmp_path: Path, base: Path, rules: RoundRules, deadly: int, expected: dict[str, Array]) -> None:
    folder = tmp_path / f"killed at {deadly}"
    shutil.copytree(base, folder)
    assert was_killed(partial(run, folder, rules, deadly))
    journal = CoordinatorJournal.open(folder / "journal.db")
    before = [(one.number, one.state) for one in journal.rounds.records()]
    journal.close()
    shared, _ = run(folder, rules)
    journal = CoordinatorJournal.open(folder / "journal.db")
    after = [(one.number, one.state) for one in journal.rounds.records()]
    journal.close()
    assert after[: len(before)] == before, "a finished round was lost"
    assert [state for _, state in after].count("finished") == ROUNDS
    if rules is READABLE:
        assert all(np.array_equal(shared[name], array) for name, array in expected.items()), "other bits"
    for person in range(PEOPLE):
        with Device.open(folder / f"{person}.db", PASSPHRASE) as device:
            answered = [entry.round for entry in device.ledger.list()]
        most = 1 if rules is READABLE else 2  # a masked round has two stages
        assert all(answered.count(number) <= most for number in answered), "a second answer"
        finished = {number for number, state in after if state == "finished"}
        assert {number for number in finished if answered.count(number) == most} == finished
    shutil.rmtree(folder)


def check_method(tmp_path: Path, method: str, rules: RoundRules, every: int, first: int) -> None:
    base, whole = base_of(tmp_path / "base", method), tmp_path / "whole"
    shutil.copytree(base, whole)
    expected, n_points = run(whole, rules)
    assert n_points > 50
    for deadly in range(1 + first, n_points + 1, every or n_points // 2):
        check_killed(tmp_path, base, rules, deadly, expected)


@pytest.mark.parametrize("method", METHODS)
def test_killed_twice_at_some_point_every_method_goes_on(tmp_path: Path, method: str) -> None:
    """Each method at other points: together they lie all over a round."""
    check_method(tmp_path, method, READABLE, 0, 7 * METHODS.index(method))


@pytest.mark.fuzz
@pytest.mark.parametrize("method", METHODS)
def test_killed_at_any_statement_every_method_goes_on(tmp_path: Path, method: str) -> None:
    check_method(tmp_path, method, READABLE, 1, 0)


@pytest.mark.fuzz
@pytest.mark.parametrize("method", MASKABLE)
def test_killed_at_many_statements_every_method_goes_on_under_masks(tmp_path: Path, method: str) -> None:
    check_method(tmp_path, method, MASKED, 5, MASKABLE.index(method) % 5)
