"""Rounds: ask, wait no longer than agreed, add what arrived, apply, write down; the carrier may be any.

A round is either finished, with its model on disk, or it never happened. A coordinator that was killed asks the
round's devices again; they give the very same answers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing

import numpy as np

from tacit.coordinator.carrier import Carrier
from tacit.coordinator.config import RoundRules
from tacit.coordinator.course import ANSWERS, APPLYING, WAITING, Course, Phase
from tacit.coordinator.journal import Enrolled, Journal, Round
from tacit.coordinator.manner import Manner, is_settled, manner, needed
from tacit.coordinator.masked import Heard, MaskedRound, MaskedRoundOptions
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
        began, number = self._clock(), self.journal.next_round
        self._quorum(began + self.rules.patience)
        if number == self.journal.begun:
            return self._cut_off(number)
        members, held = self._held(number)
        if not held.asked:
            return self._passed(Round(number, "rested", 0, 0, 0, 0, 0, 0, 0.0, why=held.why))
        started, is_masked = self._clock(), held.care is not None
        about = {"round": number, "asked": len(held.asked), "masked": is_masked, "why": held.why}
        log.info("round begins", extra={"fields": about})
        requests = self._requests(number, held.asked, learn=True)
        heard = self._plain(number, requests, len(members)) if not is_masked else self._masked(number, held, requests)
        lost = max(0, len(requests) - len(heard.counted) - heard.refused - heard.called_off)
        counts = len(requests), len(heard.counted), heard.refused, lost, heard.bytes_up, heard.bytes_down
        phases = [Phase(0, WAITING, seconds=started - began), *heard.phases]
        manners = heard.called_off, int(is_masked), heard.why or held.why
        if not heard.totals or len(heard.counted) < self.rules.minimum:
            happened = Round(number, "abandoned", *counts, self._clock() - started, *manners)
            self.journal.abandon(happened, Course(tuple(phases)))
        else:
            heard_all = self._clock()
            shared = self._applied(number, heard.totals)
            over = self._clock()
            happened = Round(number, "finished", *counts, over - started, *manners)
            phases.append(Phase(0, APPLYING, seconds=over - heard_all))
            self.journal.finish(happened, shared, heard.counted, Course(tuple(phases), heard.quality))
            self.shared = shared
        log.info("round ends", extra={"fields": vars(happened)})
        return happened

    def _cut_off(self, number: int) -> Round:
        """Close a round that was killed in the middle of a sum; of its answers nothing is known."""
        asked = len(self.journal.sums().get((number, 0), ()))
        why = "the coordinator was cut off in the middle of this sum, and nobody joins it again"
        return self._passed(Round(number, "abandoned", asked, 0, 0, 0, 0, 0, 0.0, called_off=asked, masked=1, why=why))

    def _passed(self, happened: Round) -> Round:
        """Close a round in which nobody is asked now."""
        self.journal.abandon(happened)
        log.info("round passes", extra={"fields": vars(happened)})
        return happened

    def _plain(self, number: int, requests: Mapping[int, bytes], n_members: int) -> Heard:
        """Ask in the clear; the first answers count."""
        wanted = min(self.rules.clients_per_round or n_members, n_members)
        heard, answers = Heard(bytes_down=sum(len(content) for content in requests.values())), dict[int, Outgoing]()
        started = self._clock()
        with closing(self.carrier.ask(requests, self.rules.deadline)) as arriving:
            for device, content in arriving:
                heard.bytes_up += len(content)
                if device not in requests or device in answers:
                    heard.refused += 1
                    continue
                try:
                    answers[device] = read_update(self.federation, number, content, self._shapes, device)
                except WireError as error:
                    heard.refused += 1
                    log.warning("answer refused", extra={"fields": {"round": number, "why": error.message}})
                if len(answers) == wanted:
                    heard.called_off = max(0, len(requests) - len(answers) - heard.refused)
                    break
        heard.counted = sorted(answers)
        counts = len(requests), len(answers), heard.refused, heard.called_off, heard.bytes_up, heard.bytes_down
        heard.phases = [Phase(0, ANSWERS, *counts, self._clock() - started)]
        robust, order = self.rules.robust, np.array(heard.counted, np.int64)
        groups = [order] if robust is None or not answers else dealt(order, robust, self._key.child("groups", number))
        for group in groups:
            total = Total.zero(self._shapes)
            for device in group:
                total.add(answers[int(device)])
            heard.totals.append(total)
        return heard

    def _masked(self, number: int, held: Manner, requests: Mapping[int, bytes]) -> Heard:
        """Ask for a sum under masks."""
        assert held.care is not None
        self.journal.begin(number, requests, self.rules.guards.cool_down)
        options = MaskedRoundOptions(
            self.federation, self._shapes, held.care, self.carrier, self.rules.deadline, held.worth, self._clock
        )
        heard = MaskedRound(options, number, self.journal.summed).run(held.asked, requests)
        if heard.is_thin:
            self.journal.try_later(len(requests))
        return heard

    def distribute(self) -> None:
        """Give the model to all devices that are there."""
        there = self.carrier.present()
        members = [device for device in self._members() if device.number in there]
        messages = self._requests(self.journal.next_round, members, learn=False)
        self.carrier.tell(messages, self.rules.deadline)
        log.info("model given out", extra={"fields": {"round": self.journal.next_round, "devices": len(messages)}})

    def _members(self) -> list[Enrolled]:
        return [device for device in self.journal.devices() if not device.revoked]

    def _held(self, number: int) -> tuple[list[Enrolled], Manner]:
        """Decide how a round is held; where only others than those who are here could be asked, wait for them."""
        seen, held, until = list[Enrolled](), None, self._clock() + self.rules.patience
        while True:
            members = self._quorum(until)
            if held is None or members != seen:
                seen, held = members, manner(self.rules, self.journal, number, members, self._draw(number))
                if held.asked or not held.waits:
                    return members, held
                log.info("round waits", extra={"fields": {"round": number, "here": len(members), "why": held.why}})
            if self._clock() >= until:
                raise FieldError(
                    f"Nobody could be asked within {self.rules.patience:g} seconds: {held.why}.",
                    "Bring back those who are away, or enrol more, and start again: finished rounds are kept.",
                )
            time.sleep(WAIT)

    def _quorum(self, until: float) -> list[Enrolled]:
        """Wait until enough devices are there, but not for ever."""
        least = needed(self.rules, is_settled(self.rules, self.journal))
        while True:
            there = self.carrier.present()
            members = [device for device in self._members() if device.number in there]
            if len(members) >= least:
                return members
            if self._clock() >= until:
                raise FieldError(
                    f"Only {len(members)} of {least} devices came within {self.rules.patience:g} seconds.",
                    self._instead(least),
                )
            time.sleep(WAIT)

    def _instead(self, least: int) -> str:
        """Say what to do where too few devices come."""
        if least > max(self.rules.quorum, self.rules.minimum):
            return "A sum under masks takes so many. Enrol more, or start again later: finished rounds are kept."
        return "Enrol more, lower `quorum` or `minimum`, or start again later: finished rounds are kept."

    def _draw(self, number: int) -> Callable[[Sequence[Enrolled], int, int, int], list[Enrolled]]:
        """Return what draws those who are asked in a round: as many as are wanted, and some to spare."""

        def draw(devices: Sequence[Enrolled], least: int, most: int, at: int) -> list[Enrolled]:
            n, key = len(devices), self._key if at == 0 else self._key.child("again", at)
            wanted = min(self.rules.clients_per_round or n, most)
            first = chosen(key.child("choose"), number, n, wanted)
            spare = min(max(int(np.ceil(wanted * self.rules.over_selection)), least - wanted), most - wanted)
            others = np.setdiff1d(np.arange(n), first, assume_unique=True)
            lots = key.child("spare", number).uniform(others, 1)[:, 0]
            places = sorted([*first.tolist(), *others[np.argsort(lots, kind="stable")[:spare]].tolist()])
            return [devices[place] for place in places]

        return draw

    def _requests(self, number: int, devices: list[Enrolled], learn: bool) -> dict[int, bytes]:
        sent, written = self.federation.sent(self.shared), {}
        for counted in {device.counted for device in devices}:
            written[counted] = write_request(self.federation, Request(number, sent, learn, counted))
        return {device.number: written[device.counted] for device in devices}

    def _applied(self, number: int, totals: list[Total]) -> dict[str, Array]:
        total = totals[0] if self.rules.robust is None else combined(totals, self.rules.robust)
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
