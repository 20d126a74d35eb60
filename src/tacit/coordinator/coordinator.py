"""Rounds: ask, wait no longer than agreed, add what arrived, apply, write down; the carrier may be any.

A round is either finished, with its model on disk, or it never happened. A coordinator that was killed asks the
round's devices again; they give the very same answers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from typing import Protocol

import numpy as np

from tacit.coordinator.config import RoundRules
from tacit.coordinator.journal import Enrolled, Journal, Round
from tacit.errors import DivergedError, FieldError, WireError
from tacit.protocols.federated import applied
from tacit.protocols.robust import combined, dealt
from tacit.protocols.selection import chosen
from tacit.random import Key
from tacit.runtimes.learning import one_blas_thread
from tacit.runtimes.simulation import EXPLODED
from tacit.runtimes.wire import Request, read_update, write_request
from tacit.types import Array
from tacit.updates import Outgoing, Total

log = logging.getLogger("tacit.coordinator")
WAIT = 0.2  # seconds between looks at who is there


class Carrier(Protocol):
    """What brings messages to devices and their answers back."""

    def present(self) -> frozenset[int]:
        """Return the numbers of the devices that can be asked now."""
        ...

    def ask(self, requests: Mapping[int, bytes], seconds: float) -> Generator[tuple[int, bytes]]:
        """Yield (device, answer) as answers come, until all have or time is up; closing it calls the others off."""
        ...

    def tell(self, messages: Mapping[int, bytes], seconds: float) -> None:
        """Send what needs no answer; return when all have it or time is up."""
        ...


class Coordinator:
    """Runs the rounds of one federation."""

    def __init__(
        self, journal: Journal, rules: RoundRules, carrier: Carrier, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.journal, self.rules, self.carrier, self._clock = journal, rules, carrier, clock
        self.federation, self._key = journal.federation, Key(journal.seed).child("learn")
        stored = journal.model()
        self.shared = stored or self.federation.first_model(journal.catalog, self._key.child("init"))
        self._shapes = {name: self.shared[name].shape for name in self.federation.built.tables}

    def run(self, on_round: Callable[[Round], None] = lambda happened: None) -> None:
        """Run all rounds that are left, then give everybody the model."""
        while self.journal.next_round < self.rules.rounds:
            on_round(self.round())
            if self.journal.next_round < self.rules.rounds:
                time.sleep(self.rules.pause)
        self.distribute()

    def round(self) -> Round:
        """Run one round."""
        number, members = self.journal.next_round, self._quorum()
        asked, wanted = self._asked(number, members)
        started = self._clock()
        requests = self._requests(number, [members[at] for at in asked], learn=True)
        log.info("round begins", extra={"fields": {"round": number, "asked": len(requests), "wanted": wanted}})
        answers: dict[int, Outgoing] = {}
        size_up, refused = 0, 0
        with closing(self.carrier.ask(requests, self.rules.deadline)) as arriving:
            for device, content in arriving:
                size_up += len(content)
                if device not in requests or device in answers:
                    refused += 1
                    continue
                try:
                    answers[device] = read_update(self.federation, number, content, self._shapes, device)
                except WireError as error:
                    refused += 1
                    log.warning("answer refused", extra={"fields": {"round": number, "why": error.message}})
                if len(answers) == wanted:
                    break
        lost = len(requests) - len(answers) - refused
        size_down = sum(len(content) for content in requests.values())
        counts = len(requests), len(answers), refused, max(0, lost), size_up, size_down
        if len(answers) < self.rules.minimum:
            happened = Round(number, "abandoned", *counts, self._clock() - started)
            self.journal.abandon(happened)
        else:
            shared = self._applied(number, answers)
            happened = Round(number, "finished", *counts, self._clock() - started)
            self.journal.finish(happened, shared, answers)
            self.shared = shared
        log.info("round ends", extra={"fields": vars(happened)})
        return happened

    def distribute(self) -> None:
        """Give the model to all devices that are there."""
        there = self.carrier.present()
        members = [device for device in self._members() if device.number in there]
        messages = self._requests(self.journal.next_round, members, learn=False)
        self.carrier.tell(messages, self.rules.deadline)
        log.info("model given out", extra={"fields": {"round": self.journal.next_round, "devices": len(messages)}})

    def _members(self) -> list[Enrolled]:
        return [device for device in self.journal.devices() if not device.revoked]

    def _quorum(self) -> list[Enrolled]:
        """Wait until enough devices are there, but not for ever."""
        needed = max(self.rules.quorum, self.rules.minimum)
        until = self._clock() + self.rules.patience
        while True:
            there = self.carrier.present()
            members = [device for device in self._members() if device.number in there]
            if len(members) >= needed:
                return members
            if self._clock() >= until:
                raise FieldError(
                    f"Only {len(members)} of {needed} devices came within {self.rules.patience:g} seconds.",
                    "Enrol more, lower `quorum` or `minimum`, or start again later: finished rounds are kept.",
                )
            time.sleep(WAIT)

    def _asked(self, number: int, members: list[Enrolled]) -> tuple[list[int], int]:
        """Return the positions of those who are asked, and how many answers are wanted."""
        n = len(members)
        wanted = min(self.rules.clients_per_round or n, n)
        first = chosen(self._key.child("choose"), number, n, wanted)
        spare = min(int(np.ceil(wanted * self.rules.over_selection)), n - wanted)
        others = np.setdiff1d(np.arange(n), first, assume_unique=True)
        lots = self._key.child("spare", number).uniform(others, 1)[:, 0]
        return sorted([*first.tolist(), *others[np.argsort(lots, kind="stable")[:spare]].tolist()]), wanted

    def _requests(self, number: int, devices: list[Enrolled], learn: bool) -> dict[int, bytes]:
        sent, written = self.federation.sent(self.shared), {}
        for counted in {device.counted for device in devices}:
            written[counted] = write_request(self.federation, Request(number, sent, learn, counted))
        return {device.number: written[device.counted] for device in devices}

    def _applied(self, number: int, answers: Mapping[int, Outgoing]) -> dict[str, Array]:
        robust = self.rules.robust
        order = np.array(sorted(answers))
        groups = [order] if robust is None else dealt(order, robust, self._key.child("groups", number))
        totals = []
        for group in groups:
            total = Total.zero(self._shapes)
            for device in group:
                total.add(answers[int(device)])
            totals.append(total)
        total = totals[0] if robust is None else combined(totals, robust)
        with one_blas_thread():
            shared = dict(applied(self.federation.built, self.federation.ring, self.shared, total))
        for name in self._shapes:
            largest = float(np.abs(shared[name]).max(initial=0.0))
            if not largest < EXPLODED:
                raise DivergedError(
                    f"Learning diverged in round {number}: '{name}' reached {largest:.3g}.",
                    "The model of the round before is kept. Found a new federation with a lower learning_rate.",
                )
        return shared
