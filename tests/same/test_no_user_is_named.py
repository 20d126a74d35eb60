"""What an operator can read after refusals and losses names no user: log, rows of rounds, page, metrics, command line.

Devices have numbers that occur nowhere else. And the same faults of other devices leave the same words and numbers.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import sqlite3
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from helpers.page_visitor import Visitor
from helpers.town_federation import PI, device_of, founded, journal_of, town
from tacit.errors import TacitError
from tacit.field.carriers.loopback import Loopback
from tacit.field.coordinator import Coordinator, CoordinatorJournal, RoundRules
from tacit.field.device import Device, Sharing
from tacit.field.exchange import respond
from tacit.protocols.secure_aggregation import DevicePolicy, ServerPhase
from tacit.web.operator import operator_page
from tacit.web.server import serving
from tacit.wire.envelope import message_kind
from tacit.wire.messages import read_secure_request

pytest.importorskip("flwr", reason="the field needs Flower")
from tacit.cli.field import _in_words
from tacit.field.json_log import JsonLines
from tacit.field.metrics import registry_of

pytestmark = pytest.mark.slow

FIRST, PEOPLE = 7_000_001, 6
BOLD = DevicePolicy(n_min=3, k_min=1, d_min=0, cool_down=0, corrupted=0, most_cohorts=None)
ONE_STAGE = {"n_min": 3, "k_min": 1, "corrupted": 0.0, "dropped": 0.2, "two_stage": False}
Fault = Callable[[int, int | None, bytes], list[bytes]]
"""What arrives of one device's answer in one phase (none: a readable round)."""


@dataclass
class World:
    """Devices with striking numbers, their coordinator, and what others could read of them."""

    folder: Path
    rows: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)  # of devices, as their own logs hold them

    def __post_init__(self) -> None:
        self.clients, catalog = town(PEOPLE)
        self.federation = founded("fpl", catalog)
        self.journal = journal_of(self.folder, self.federation, catalog)
        self.journal.file.connection.execute("INSERT INTO sqlite_sequence VALUES ('devices', ?)", (FIRST - 1,))
        self.devices: dict[int, Device] = {}
        for person in range(PEOPLE):
            device = device_of(self.folder, self.clients, person, catalog, self.journal.welcome)
            device.share(Sharing(pi=PI, coin="row", device_policy=BOLD, masked_only=False))
            self.devices[self.journal.members.add(b"key of %d" % person, device.identity)] = device

    def round(self, fault: Fault, **rules: Any) -> None:
        """Run one round with a fault, and keep what it printed."""
        given = {
            "rounds": 50,
            "minimum": 3,
            "strikes": 50,
            "readable": True,
            "device_policy": BOLD.model_dump(),
            **rules,
        }
        self.journal.file.connection.execute("DELETE FROM strikes")  # a device with a strike would not be asked again
        carrier = Faulty(self, fault)
        happened = Coordinator(self.journal, RoundRules.from_options(given, "rules"), carrier).round()
        self.rows.append(_in_words(happened))

    def names(self) -> list[str]:
        """Return everything that would tell one device from another."""
        found = []
        for device in self.journal.members.devices():
            secret = device.identity, device.key
            found += [str(device.number), f"{device.number:,}", *(name.hex() for name in secret)]
            found += [base64.b64encode(name).decode() for name in secret] + [repr(name)[2:-1] for name in secret]
        return found


class Faulty(Loopback):
    """Brings what a fault leaves of each answer; what devices refuse is kept as their own logs would have it."""

    def __init__(self, world: World, fault: Fault) -> None:
        super().__init__(world.devices)
        self.world, self.fault = world, fault

    def ask(self, requests: Mapping[int, bytes], seconds: float, most_bytes: int) -> Generator[tuple[int, bytes]]:
        for number, content in requests.items():
            is_turn, answers = message_kind(content) == "secure-request", list[bytes]()
            phase = read_secure_request(self.world.federation, content).phase if is_turn else None
            self.fault(number - FIRST, phase, b"")
            try:
                respond(self.devices[number], content, answers.append)
            except TacitError as error:
                self.world.refusals.append(json.dumps(error.public()))
                continue
            for answer in self.fault(number - FIRST, phase, answers[0]):
                yield number, answer


def run_faults(world: World, guilty: int, lost: int, others: list[int]) -> None:
    """Run rounds in which one device lies, one is lost, and at times others are."""
    masked = {"secure": ONE_STAGE}

    def none(at: int, phase: int | None, answer: bytes) -> list[bytes]:
        return [answer]

    def bent(at: int, phase: int | None, answer: bytes) -> list[bytes]:
        if at == lost:
            return []
        return [answer[:-1] + bytes([answer[-1] ^ 1])] if at == guilty and answer else [answer]

    def cut(at: int, phase: int | None, answer: bytes) -> list[bytes]:
        return [answer[:-1]] if at == guilty else [] if at == lost else [answer]

    def twice(at: int, phase: int | None, answer: bytes) -> list[bytes]:
        return [answer, answer] if at == guilty else [answer]

    def losing(gone: list[int], last: ServerPhase) -> Fault:
        return lambda at, phase, answer: [] if at in gone and phase is not None and phase >= last else [answer]

    def breaks_its_word(at: int, phase: int | None, answer: bytes) -> list[bytes]:
        machine = world.devices[FIRST + guilty]._masked._machine
        if at == guilty and phase == ServerPhase.SHARES and not answer:  # before it deals shares of its seed
            assert machine is not None
            assert machine._state is not None
            machine._state.seed = bytes(32)
        return [answer]

    world.round(cut, secure=None)
    world.round(lambda at, phase, answer: [answer] if at == guilty else [], secure=None)  # nearly all are lost
    for fault in (bent, twice, losing([lost], ServerPhase.VECTORS)):
        world.round(fault, **masked)
    world.round(losing([lost, *others], ServerPhase.SHARES), **masked)  # too few are left
    world.round(losing([lost, *others[:2]], ServerPhase.VECTORS), **masked)  # one participant has too few neighbours
    world.round(breaks_its_word, **masked)
    world.journal.sums.begin(world.journal.rounds.next_number, len(world.devices), 0, 100)
    world.round(none, **masked)  # it was killed
    strict = world.devices[FIRST + guilty]
    strict.share(strict.sharing.model_copy(update={"device_policy": DevicePolicy()}))
    world.devices[FIRST + lost].pause()
    world.round(none, **masked)  # two devices refuse
    world.round(none, **masked, device_policy={**BOLD.model_dump(), "cool_down": 5})  # no device is eligible


def read_everything(world: World, records: list[logging.LogRecord]) -> dict[str, str]:
    """Return what all can read, by where it stands."""
    path = world.journal.path
    with sqlite3.connect(path) as connection:
        stored = [repr(row) for row in connection.execute("SELECT * FROM rounds")]
    connection.close()
    with serving(operator_page(path, RoundRules(), lambda: PEOPLE)) as address:
        visitor = Visitor(address)
        numbers = range(world.journal.rounds.next_number)
        pages = [visitor.get(where).body.decode() for where in ("/", *(f"/?round={number}" for number in numbers))]
        pages = [re.sub(r'<section class="card" id="strikes".*?</section>', "", page, flags=re.S) for page in pages]
    return {
        "log": "\n".join(JsonLines().format(record) for record in records),
        "rows": "\n".join(stored),
        "pages": "\n".join(pages),
        "metrics": generate_latest(registry_of(path, Loopback({}))).decode(),
        "command line": "\n".join(world.rows),
        "json": json.dumps([happened.public() for happened in world.journal.rounds.records()]),
        "devices' logs": "\n".join(world.refusals),
    }


def run_world(folder: Path, caplog: pytest.LogCaptureFixture, **faults: Any) -> tuple[World, dict[str, str]]:
    folder.mkdir()
    world = World(folder)
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "tacit"):
        run_faults(world, **faults)
    return world, read_everything(world, [one for one in caplog.records if one.name.startswith("tacit")])


def is_named(name: str, text: str) -> bool:
    """Tell whether a name stands in a text; a number within a longer one (0.4970000061 seconds) is no name."""
    return re.search(rf"(?<![0-9.]){re.escape(name)}(?![0-9])", text) is not None


def without_measures(log: str) -> list[dict[str, Any]]:
    """Return log lines without what differs from run to run and from history to history: time and bytes."""
    measures = {"time", "seconds", "bytes_up", "bytes_down"}
    lines = map(json.loads, log.splitlines())
    return [{name: value for name, value in line.items() if name not in measures} for line in lines]


def test_after_refusals_and_losses_no_participant_can_be_distinguished(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world, told = run_world(tmp_path / "one", caplog, guilty=0, lost=1, others=[2, 3, 4])
    assert [
        happened.reason is not None and str(happened.reason.code) for happened in world.journal.rounds.records()
    ] == [
        "secure-aggregation-off",
        "too-few-answers",
        "enough-devices",
        "enough-devices",
        "enough-devices",
        "too-many-dropouts",
        "too-few-neighbours",
        "broken-commitment",
        "coordinator-interrupted",
        "enough-devices",
        "cool-down",
    ]
    lines = without_measures(told["log"])
    refused = [line["reason"]["code"] for line in lines if line["event"] == "answer refused"]
    assert set(refused) == {"malformed-message", "bad-signature", "repeated-answer", "broken-commitment"}
    assert {json.loads(one)["reason"]["code"] for one in world.refusals} >= {"weak-terms", "paused"}
    for where, text in told.items():
        assert not [name for name in world.names() if is_named(name, text)], where
    _, other = run_world(tmp_path / "two", caplog, guilty=4, lost=2, others=[0, 5, 3])
    assert without_measures(other["log"]) == lines
    for where in ("command line", "devices' logs"):
        assert sorted(other[where].splitlines()) == sorted(told[where].splitlines())
    world.journal.close()


def test_the_log_of_a_round_is_for_programs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world, told = run_world(tmp_path / "one", caplog, guilty=5, lost=0, others=[1, 2, 3])
    ends = [line for line in map(json.loads, told["log"].splitlines()) if line["event"] == "round ends"]
    too_few = next(line["reason"] for line in ends if line["reason"]["code"] == "too-few-answers")
    assert too_few == {"code": "too-few-answers", "parameters": {"answered": 1, "needed": 3}}
    assert json.loads(told["json"]) == [
        happened.public() for happened in CoordinatorJournal.open(world.journal.path).rounds.records()
    ]
