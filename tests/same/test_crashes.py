"""Kill -9 of the coordinator at every statement of its journal: no finished round is lost, none is released twice."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from helpers.killed_processes import dying_at, was_killed
from helpers.town_federation import PASSPHRASE, device_of, founded, journal_of, town
from tacit.field.carriers.loopback import Loopback
from tacit.field.coordinator import Coordinator, CoordinatorJournal, RoundRules
from tacit.field.device import Device
from tacit.types import Array

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")]
PEOPLE, ROUNDS = 2, 2


def run(folder: Path, deadly: int = 0) -> dict[str, Array]:
    """Run the rounds that are left; die at the journal's statement number `deadly`."""
    journal = CoordinatorJournal.open(folder / "journal.db")
    devices = {person + 1: Device.open(folder / f"{person}.db", PASSPHRASE) for person in range(PEOPLE)}
    journal.file.connection.set_trace_callback(dying_at(deadly))
    coordinator = Coordinator(journal, RoundRules(rounds=ROUNDS, readable=True), Loopback(devices))
    coordinator.run()
    journal.close()
    for device in devices.values():
        device.close()
    return coordinator.shared


def test_a_coordinator_killed_at_any_statement_goes_on_where_it_was(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    clients, catalog = town(PEOPLE)
    federation = founded("fpl", catalog)
    journal = journal_of(base, federation, catalog)
    for person in range(PEOPLE):
        journal.members.add(bytes([person]))
        device_of(base, clients, person, catalog, journal.welcome).close()
    journal.close()
    whole = tmp_path / "whole"
    shutil.copytree(base, whole)
    expected, deadly, finished = run(whole), 0, []
    while True:
        deadly += 1
        folder = tmp_path / str(deadly)
        shutil.copytree(base, folder)
        if not was_killed(partial(run, folder, deadly)):
            break
        journal = CoordinatorJournal.open(folder / "journal.db")
        finished.append(len(journal.rounds.records()))
        journal.close()
        shared = run(folder)
        assert all(np.array_equal(shared[name], array) for name, array in expected.items())
        journal = CoordinatorJournal.open(folder / "journal.db")
        assert [happened.state for happened in journal.rounds.records()] == ["finished"] * ROUNDS
        assert len(journal.rounds.records()) >= finished[-1]
        journal.close()
        for person in range(PEOPLE):
            with Device.open(folder / f"{person}.db", PASSPHRASE) as device:
                assert [entry.round for entry in device.ledger.list()] == list(range(ROUNDS))
        shutil.rmtree(folder)
    assert finished == sorted(finished), "a later death lost a round that an earlier one had"
    assert set(finished) == set(range(ROUNDS + 1)), "the points of death were not reached"
