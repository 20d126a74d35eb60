"""Kill -9 of a device at every statement of every turn of a secure sum: one answer per turn, one vector per round."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest

from helpers.killed_processes import dying_at, was_killed
from helpers.loopback_federation import CARE, KNOWN, Field, masked, private
from helpers.small_federation import copy_file
from helpers.town_federation import PASSPHRASE
from tacit.field.carriers.loopback import Loopback
from tacit.field.device import Device
from tacit.protocols.secure_aggregation import ServerPhase
from tacit.wire.messages import read_secure_request

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")]


class Recording(Loopback):
    """Keeps the first device's file as it is before each of its turns, and the turn."""

    def __init__(self, field: Field, folder: Path) -> None:
        super().__init__(field.devices)
        self.field, self.folder, self.turns = field, folder, list[tuple[ServerPhase, Path, bytes]]()

    def ask(self, requests: Mapping[int, bytes], seconds: float, most_bytes: int) -> Generator[tuple[int, bytes]]:
        phase = ServerPhase(read_secure_request(self.field.federation, requests[1]).phase)
        copy = self.folder / f"{phase.name}.db"
        copy_file(self.field.folder / "0.db", copy)
        self.turns.append((phase, copy, requests[1]))
        yield from super().ask(requests, seconds, most_bytes)


def told(path: Path, turn: bytes, sent: Path, deadly: int) -> bool:
    """Take a turn in another process that dies at its statement number `deadly`; say whether it died."""

    def work() -> None:
        device = Device.open(path, PASSPHRASE)
        device._store.connection.set_trace_callback(dying_at(deadly))
        answer, entry = device.answers.step_session(turn)
        sent.write_bytes(answer)
        if entry is not None:
            device.answers.mark_sent(entry)

    return was_killed(work)


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.fuzz), 4])  # each statement, or each fourth
@pytest.mark.parametrize("is_private", [False, True], ids=["exact", "private"])
def test_killed_in_any_turn_it_gives_one_answer_and_the_ledger_agrees(
    tmp_path: Path, is_private: bool, every: int
) -> None:
    """With a guarantee the budget is debited once, for the vector that left or will leave, at every point of death."""
    (tmp_path / "field").mkdir()
    (tmp_path / "turns").mkdir()
    field = private(tmp_path / "field", "fpl") if is_private else masked(tmp_path / "field")
    carrier = Recording(field, tmp_path / "turns")
    field.run(carrier, rounds=1, **KNOWN, secure={**CARE, "two_stage": False})
    spent = field.journal.sums.spendings()[0].share if is_private else 0.0
    assert [phase for phase, _, _ in carrier.turns] == list(ServerPhase)[:5]
    deaths = 0
    for phase, before, turn in carrier.turns:
        deadly = 1 - every
        while True:
            deadly += every
            path, sent = tmp_path / "device.db", tmp_path / "sent"
            copy_file(before, path)
            sent.unlink(missing_ok=True)
            died = told(path, turn, sent, deadly)
            left = sent.read_bytes() if sent.exists() else None
            with Device.open(path, PASSPHRASE) as device:
                noted = {entry.digest: entry for entry in device.ledger.list()}
                budget = device.budgets.of(field.federation)
                before_again = 0.0 if budget is None else budget.spent
                if left is not None and phase == ServerPhase.VECTORS:
                    assert before_again == spent, "a vector left that was not debited"
                    assert hashlib.sha256(left).hexdigest() in noted, "a vector left that the ledger does not know"
                answer, entry = device.answers.step_session(turn)
                assert left is None or answer == left, "two answers to one turn"
                assert (entry is not None) == (phase == ServerPhase.VECTORS)
                assert len(device.ledger.list()) == (1 if phase >= ServerPhase.VECTORS else 0), (
                    "a second vector was made"
                )
                assert device.answers.step_session(turn)[0] == answer
                budget = device.budgets.of(field.federation)
                after = 0.0 if budget is None else budget.spent
                assert after == (spent if phase >= ServerPhase.VECTORS else 0.0), "debited twice, or too early"
            if not died:
                break
            deaths += 1
    assert deaths > 50 / every, "the points of death were not reached"
