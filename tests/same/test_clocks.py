"""Rounds go on after pauses, suspended machines and clocks that jump, on either side."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from email.utils import formatdate
from pathlib import Path

import pytest

from helpers.town_federation import assert_same, simulated
from helpers.waiting import wait_for_thread

pytest.importorskip("flwr", reason="the field needs Flower")
import flwr.server.superlink.linkstate.in_memory_linkstate as link_clock
import flwr.server.superlink.linkstate.utils as ttl_clock
import flwr.server.utils.validator as validator_clock
import flwr.supercore.corestate.in_memory_corestate as core_clock
import flwr.superlink.routers.fleet.node_auth as auth_clock
import uvicorn.server
from flwr.supercore.date import now

from helpers.flower_federation import Field
from tacit.field.carriers import signing
from tacit.field.carriers.fleet_node import DeviceEvent
from tacit.field.carriers.supernode import SuperNode

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # Flower and its servers warn of their own doings
]
COORDINATOR = (link_clock, ttl_clock, validator_clock, core_clock, auth_clock)
HOUR, YEAR = 3600.0, 366 * 86_400.0


class Clocks:
    """Clocks of the coordinator and of the devices that can be set, in one process."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.coordinator, self.devices = 0.0, 0.0
        for module in COORDINATOR:
            patch.setattr(module, "now", lambda: now() + timedelta(seconds=self.coordinator))
        patch.setattr(uvicorn.server, "formatdate", self._date)
        patch.setattr(signing, "local_time", lambda: now() + timedelta(seconds=self.devices))

    def _date(self, seconds: float, usegmt: bool) -> str:
        return formatdate(seconds + self.coordinator, usegmt=usegmt)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


@contextmanager
def taking_part(field: Field) -> Iterator[list[DeviceEvent]]:
    """All devices of a field, in threads; what they were told."""
    stop, people, told = threading.Event(), field.people(), list[DeviceEvent]()
    nodes = [SuperNode(device, poll=0.05) for device in people.values()]
    threads = [threading.Thread(target=node.run, args=(stop, told.append), daemon=True) for node in nodes]
    for thread in threads:
        thread.start()
    try:
        yield told
    finally:
        stop.set()
        for thread in threads:
            wait_for_thread(thread)
        for device in people.values():
            device.close()


@pytest.mark.parametrize(
    ("coordinator", "devices"),
    [(75.0, 75.0), (HOUR, 0.0), (-HOUR, 0.0), (YEAR, 0.0), (0.0, HOUR), (0.0, -HOUR), (0.0, -YEAR), (YEAR, YEAR)],
    ids=[
        *("pause", "server ahead", "server behind", "server a year ahead"),
        *("devices ahead", "devices behind", "devices a year behind", "all a year ahead"),
    ],
)
def test_rounds_go_on_when_clocks_jump(tmp_path: Path, clocks: Clocks, coordinator: float, devices: float) -> None:
    field = Field(tmp_path, "fpl", people=3)
    try:
        with taking_part(field):
            field.run(1, quorum=3, minimum=3, deadline=20)
            clocks.coordinator, clocks.devices = coordinator, devices
            field.run(2, quorum=3, minimum=3, deadline=20)
            clocks.coordinator, clocks.devices = 0.0, 0.0
            last = field.run(3, quorum=3, minimum=3, deadline=20)
        assert [happened.answered for happened in field.journal.rounds.records()] == [3, 3, 3]
        people = field.people()
        assert_same(simulated(field.federation, field.clients, field.catalog, 3), last.shared, people)
        for device in people.values():
            device.close()
    finally:
        field.close()


def test_rounds_go_on_after_a_coordinator_that_was_suspended(tmp_path: Path, clocks: Clocks) -> None:
    field = Field(tmp_path, "fpl", people=3)
    state = field.link._state
    try:
        with taking_part(field):
            field.run(1, quorum=3, minimum=3)
            clocks.coordinator = clocks.devices = HOUR
            before = state.clock
            state.clock = lambda: before() + HOUR
            field.run(2, quorum=3, minimum=3)
        assert [happened.answered for happened in field.journal.rounds.records()] == [3, 3]
    finally:
        field.close()
