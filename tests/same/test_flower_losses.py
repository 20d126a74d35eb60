"""Real processes over TLS, plain and under masks: one is killed between rounds, one in the middle of a round.

It dies in the very phase in which the simulator loses it, and what is learnt is what the simulator learns: bit for bit.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Mapping
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from helpers.town_federation import BOLD, SEED, assert_same, simulated, who_answers
from helpers.waiting import LONG, wait_until

pytest.importorskip("flwr", reason="the field needs Flower")
from helpers.flower_federation import Field, Nodes
from tacit.field.carriers.superlink import SuperLink
from tacit.field.coordinator import Coordinator, RoundRules
from tacit.lab.secure_rounds import DropoutPlan, SecureRoundsConfig
from tacit.protocols.rounds import RoundsConfig
from tacit.protocols.secure_aggregation import ServerPhase
from tacit.protocols.secure_aggregation.two_stage import SecureAggregationConfig
from tacit.random import Key
from tacit.wire.envelope import message_kind
from tacit.wire.messages import read_request, read_secure_request

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # Flower and its servers warn of their own doings
]
PEOPLE, ROUNDS = 5, 3
CALM = RoundsConfig(dropout=0.23, minimum=3)
CARE = {"n_min": 3, "k_min": 1, "spare": 1, "corrupted": 0.0, "dropped": 0.2}


class Deadly:
    """The SuperLink, but a device dies when a certain message is about to be posted for it.

    That no other device will answer is known here, so that a round need not wait for its deadline.
    """

    def __init__(self, field: Field, models: Nodes, link: SuperLink) -> None:
        self._federation, self._nodes, self._link = field.federation, models, link
        self.offer, self.announce = link.offer, link.announce
        self.pids: dict[int, int] = {}  # device -> process
        self.dies: tuple[int, int, int, int] | None = None  # device, round, stage, phase
        self._now, self.dead = (-1, 0), set[int]()

    def present(self) -> frozenset[int]:
        return self._link.present()

    def tell(self, messages: Mapping[int, bytes], seconds: float) -> None:
        self._link.tell(messages, seconds)

    def ask(self, requests: Mapping[int, bytes], seconds: float, most_bytes: int) -> Generator[tuple[int, bytes]]:
        if self.dies is not None and self.dies[1:] == self._place(next(iter(requests.values()))):
            self.kill(self.dies[0])
            self.dead.add(self.dies[0])
        alive = set(requests) - self.dead
        with closing(self._link.ask(requests, seconds, most_bytes)) as arriving:
            for device, content in arriving:
                alive.discard(device)
                yield device, content
                if not alive:
                    return

    def _place(self, content: bytes) -> tuple[int, int, int]:
        """Return round, stage and phase of a message; 0 where there are no masks."""
        if message_kind(content) != "secure-request":
            return read_request(self._federation, content).round, 0, 0
        turn = read_secure_request(self._federation, content)
        if turn.phase == ServerPhase.ADVERTS:
            self._now = turn.round, 1 if turn.round != self._now[0] else 2
        return *self._now, turn.phase

    def kill(self, device: int) -> None:
        os.kill(self.pids[device], signal.SIGKILL)
        assert self._nodes.wait(self.pids[device]) == signal.SIGKILL


@pytest.mark.parametrize("stages", [0, 1, 2], ids=["plain", "one stage", "two stages"])
def test_fed_gmf_with_a_restart_and_a_loss_is_the_simulators(tmp_path: Path, models: Nodes, stages: int) -> None:
    secure = None if not stages else SecureRoundsConfig(**CARE, two_stage=stages == 2)
    field = Field(tmp_path, "fed-gmf", PEOPLE)
    lost = [set(range(PEOPLE)) - who_answers(field.clients, CALM, number) for number in range(ROUNDS)]
    assert lost == [set(), set(), {2}]
    carrier = Deadly(field, models, field.link)
    carrier.dies = 3, 2, 0, 0
    if secure is not None:
        key = Key(SEED).child("learn", "fates", 2)
        fates = DropoutPlan.draw(secure, np.arange(PEOPLE), np.setdiff1d(np.arange(PEOPLE), [2]), CALM.dropout, key)
        stage, phase = fates.leaves[2]
        carrier.dies = 3, 2, stage if stages == 2 else 1, phase
    try:
        for person in range(PEOPLE):
            carrier.pids[person + 1] = models.start(field.path(person))
        care = None if secure is None else SecureAggregationConfig(**CARE, two_stage=stages == 2)
        rules = RoundRules(
            rounds=ROUNDS,
            secure=care,
            readable=care is None,
            device_policy=BOLD,
            quorum=PEOPLE,
            minimum=3,
            patience=LONG,
            deadline=LONG,
        )
        coordinator = Coordinator(field.journal, rules, carrier)
        assert coordinator.round().answered == PEOPLE
        carrier.kill(1)  # and comes back before the next round
        carrier.pids[1] = models.start(field.path(0))
        assert coordinator.round().answered == PEOPLE
        assert coordinator.round().answered == PEOPLE - 1
        assert carrier.dead == {3}
        carrier.pids[3] = models.start(field.path(2))
        wait_until(lambda: len(carrier.present()) == PEOPLE, LONG, "all devices are there again")
        coordinator.distribute()
        assert [models.wait(pid) for pid in carrier.pids.values()] == [0] * PEOPLE
    finally:
        field.close()
    people = field.people()
    expected = simulated(field.federation, field.clients, field.catalog, ROUNDS, CALM, secure)
    assert_same(expected, coordinator.shared, people)
    for person, device in people.items():
        entries = device.ledger.list()
        assert {entry.masked for entry in entries} == {stages > 0}
        assert {entry.round for entry in entries if entry.state == "sent"} >= ({0, 1} if person == 2 else {0, 1, 2})
        device.close()
