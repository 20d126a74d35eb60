"""Rounds: ask, wait no longer than agreed, add what arrived, apply, write down; the carrier may be any.

A round is either finished, with its model on disk, or it never happened. A coordinator that was killed asks the
round's devices again; they give the very same answers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing

import numpy as np

from tacit.errors import ConfigError, DivergedError, FieldError, WireError
from tacit.field.coordinator.carrier import Carrier
from tacit.field.coordinator.config import RoundRules
from tacit.field.coordinator.journal import CoordinatorJournal, EnrolledDevice, RoundRecord
from tacit.field.coordinator.masked_round import MaskedRound, MaskedRoundOptions, RoundOutcome, note_strike
from tacit.field.coordinator.round_policy import RoundPolicy, count_needed, decide_round, is_settled
from tacit.field.coordinator.round_stats import ANSWERS, APPLYING, WAITING, PhaseCounts, RoundStats
from tacit.methods.base import FederatedSpec
from tacit.numerics import one_blas_thread
from tacit.protocols.federated import server_round
from tacit.protocols.robust import assign_groups, combine_groups
from tacit.protocols.selection import sample_clients
from tacit.random import Key
from tacit.reasons import ReasonCode, RoundReason, describe_reason
from tacit.types import Array
from tacit.updates import Message, Total
from tacit.wire.federation import LARGEST_LEARNT
from tacit.wire.messages import Request, read_update, write_request

log = logging.getLogger("tacit.field.coordinator")
WAIT = 0.2  # seconds between looks at who is there
LEFT_OUT = 0.2  # share of readable answers, at most, without which a round that would diverge is finished


class Coordinator:
    """Runs the rounds of one federation."""

    def __init__(
        self,
        journal: CoordinatorJournal,
        rules: RoundRules,
        carrier: Carrier,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.journal, self.rules, self.carrier, self._clock = journal, rules, carrier, clock
        self.federation, self._key = journal.federation, Key(journal.seed).child("learn")
        self._path, self._spec = self.federation.path(), self.federation.built.spec
        refuse_readable_only(self._spec, rules)
        self._constants = self.federation.constants(journal.catalog)
        self.shared: dict[str, Array] = {**(journal.model() or self._first_model(1)), **self._constants}

    def _first_model(self, n_clients: int) -> dict[str, Array]:
        return self.federation.first_model(self.journal.catalog, self._key.child("init"), n_clients)

    def _make_rows(self, members: Sequence[EnrolledDevice]) -> None:
        """Give every member a row of each client table; new rows are those of a first model."""
        most = max((device.number for device in members), default=0)
        for name in self._spec.client_tables:
            here = self.shared[name]
            if len(here) < most:
                self.shared[name] = np.concatenate([here, self._first_model(most)[name][len(here) :]])

    def run(self, on_round: Callable[[RoundRecord], None] = lambda happened: None) -> None:
        """Run all rounds that are left, then give everybody the model."""
        while self.journal.next_round < self.rules.rounds:
            on_round(self.round())
            if self.journal.next_round < self.rules.rounds:
                time.sleep(self.rules.pause)
        self.distribute()

    def round(self) -> RoundRecord:
        """Run one round."""
        began, number = self._clock(), self.journal.next_round
        self._quorum(began + self.rules.patience)
        if number == self.journal.last_begun_round:
            return self._cut_off(number)
        members, policy = self._decided(number)
        if not policy.asked:
            return self._closed(RoundRecord(number, "skipped", 0, 0, 0, 0, 0, 0, 0.0, reason=policy.reason))
        started, is_masked = self._clock(), policy.secure_config is not None
        about = {"round": number, "asked": len(policy.asked), "masked": is_masked, **_log_fields(policy.reason)}
        log.info("round begins", extra={"fields": about})
        self._make_rows(policy.asked)
        requests = self._requests(number, policy.asked, learn=True)
        heard = (
            self._ask_masked(number, policy, requests)
            if is_masked
            else self._ask_readable(number, requests, len(members))
        )
        heard_all = self._clock()
        shared = self._try_apply(number, heard)
        if heard.strikes:
            self.journal.strike(number, heard.strikes)
        lost = max(0, len(requests) - len(heard.counted) - heard.refused - heard.called_off)
        counts = len(requests), len(heard.counted), heard.refused, lost, heard.bytes_up, heard.bytes_down
        phases = [PhaseCounts(0, WAITING, seconds=started - began), *heard.phases]
        others = heard.called_off, int(is_masked)
        if shared is None:
            reason = (heard.reason or self._too_few(len(heard.counted))).public()
            happened = RoundRecord(number, "abandoned", *counts, self._clock() - started, *others, reason)
            self.journal.abandon(happened, RoundStats(tuple(phases)))
        else:
            over = self._clock()
            happened = RoundRecord(number, "finished", *counts, over - started, *others, policy.reason)
            phases.append(PhaseCounts(0, APPLYING, seconds=over - heard_all))
            learnt = {name: array for name, array in shared.items() if name not in self._constants}
            self.journal.finish(happened, learnt, heard.counted, RoundStats(tuple(phases), heard.quality))
            self.shared = shared
        log.info("round ends", extra={"fields": happened.public()})
        return happened

    def _try_apply(self, number: int, heard: RoundOutcome) -> dict[str, Array] | None:
        """Return the model after a round; none if too few answered, or if what they sent makes it diverge.

        Readable answers can be judged one by one: where the model stays finite without the few that move it furthest,
        these are left out and struck. Of a masked sum nobody can say whose part it was.
        """
        if not heard.totals or len(heard.counted) < self.rules.minimum:
            return None
        try:
            return self._apply(number, heard.totals)
        except DivergedError as error:
            heard.reason = error.reason
        shapes = self._path.method.shapes(self.shared)
        reach = {device: _largest(_sum_of([message], shapes)) for device, message in heard.answers.items()}
        furthest = sorted(reach, key=lambda device: -reach[device])
        most = 0 if self.rules.robust is not None else int(len(furthest) * LEFT_OUT)
        for n_out in range(1, min(most, len(furthest) - self.rules.minimum) + 1):
            rest = sorted(furthest[n_out:])
            try:
                shared = self._apply(number, [_sum_of([heard.answers[device] for device in rest], shapes)])
            except DivergedError:
                continue
            heard.counted, heard.refused = rest, heard.refused + n_out
            heard.strikes |= dict.fromkeys(furthest[:n_out], ReasonCode.DIVERGED)
            return shared
        return None

    def _too_few(self, answered: int) -> RoundReason:
        """Return the reason of a round that fewer devices answered than its rules want."""
        return RoundReason(ReasonCode.TOO_FEW_ANSWERS, {"answered": answered, "needed": self.rules.minimum})

    def _cut_off(self, number: int) -> RoundRecord:
        """Close a round that was killed in the middle of a sum; of its answers nothing is known."""
        asked = len(self.journal.sums().get((number, 0), ()))
        reason = RoundReason(ReasonCode.COORDINATOR_INTERRUPTED)
        return self._closed(RoundRecord(number, "abandoned", asked, 0, 0, 0, 0, 0, 0.0, asked, masked=1, reason=reason))

    def _closed(self, happened: RoundRecord) -> RoundRecord:
        """Close a round in which nobody is asked now."""
        self.journal.abandon(happened)
        log.info("round skipped" if happened.state == "skipped" else "round ends", extra={"fields": happened.public()})
        return happened

    def _ask_readable(self, number: int, requests: Mapping[int, bytes], n_members: int) -> RoundOutcome:
        """Ask in the clear; the first answers count."""
        wanted = min(self.rules.clients_per_round or n_members, n_members)
        heard, answers = (
            RoundOutcome(bytes_down=sum(len(content) for content in requests.values())),
            dict[int, Message](),
        )
        started = self._clock()
        with closing(self.carrier.ask(requests, self.rules.deadline)) as arriving:
            for device, content in arriving:
                heard.bytes_up += len(content)
                if device not in requests or device in answers:
                    heard.refused += 1
                    again = RoundReason(ReasonCode.REPEATED_ANSWER)
                    log.warning("answer refused", extra={"fields": {"round": number, **_log_fields(again)}})
                    continue
                try:
                    shapes = self._path.method.shapes(self.shared)
                    answers[device] = read_update(self.federation, number, content, shapes, device - 1)
                except WireError as error:
                    heard.refused += 1
                    note_strike(heard, device, error)
                    log.warning("answer refused", extra={"fields": {"round": number, **error.public()}})
                if len(answers) == wanted:
                    heard.called_off = max(0, len(requests) - len(answers) - heard.refused)
                    break
        heard.counted, heard.answers = sorted(answers), answers
        counts = len(requests), len(answers), heard.refused, heard.called_off, heard.bytes_up, heard.bytes_down
        heard.phases = [PhaseCounts(0, ANSWERS, *counts, self._clock() - started)]
        robust, order = self.rules.robust, np.array(heard.counted, np.int64)
        groups = (
            [order]
            if robust is None or not answers
            else assign_groups(order, robust, self._key.child("groups", number))
        )
        for group in groups:
            shapes = self._path.method.shapes(self.shared)
            heard.totals.append(_sum_of([answers[int(device)] for device in group], shapes))
        return heard

    def _ask_masked(self, number: int, policy: RoundPolicy, requests: Mapping[int, bytes]) -> RoundOutcome:
        """Ask for a sum under masks."""
        assert policy.secure_config is not None
        self.journal.begin(number, requests, self.rules.guards.cool_down)
        shapes = self._path.method.shapes(self.shared)
        options = MaskedRoundOptions(
            self.federation,
            shapes,
            policy.secure_config,
            self.carrier,
            self.rules.deadline,
            policy.worth,
            self._clock,
            self.journal.settle,
        )
        heard = MaskedRound(options, number, self.journal.note_sum).run(policy.asked, requests)
        if heard.is_thin:
            self.journal.try_later(len(requests))
        return heard

    def distribute(self) -> None:
        """Give the model to all devices that are there."""
        there = self.carrier.present()
        members = [device for device in self._members() if device.number in there]
        self._make_rows(members)
        messages = self._requests(self.journal.next_round, members, learn=False)
        self.carrier.tell(messages, self.rules.deadline)
        log.info("model given out", extra={"fields": {"round": self.journal.next_round, "devices": len(messages)}})

    def _members(self) -> list[EnrolledDevice]:
        return [device for device in self.journal.devices() if not device.revoked]

    def _decided(self, number: int) -> tuple[list[EnrolledDevice], RoundPolicy]:
        """Decide how a round is run; where only others than those who are here could be asked, wait for them."""
        seen, policy, until = list[EnrolledDevice](), None, self._clock() + self.rules.patience
        while True:
            members = self._quorum(until)
            if policy is None or members != seen:
                seen, policy = members, decide_round(self.rules, self.journal, number, members, self._draw(number))
                if policy.asked or not policy.waits:
                    return members, policy
                about = {"round": number, "here": len(members), **_log_fields(policy.reason)}
                log.info("round waits", extra={"fields": about})
            if self._clock() >= until:
                said = describe_reason(policy.reason)
                raise FieldError(
                    f"No device could be asked within {self.rules.patience:g} seconds. {said.what} {said.meaning}",
                    f"{said.remedy} Then start again: finished rounds are kept.",
                    policy.reason,
                )
            time.sleep(WAIT)

    def _quorum(self, until: float) -> list[EnrolledDevice]:
        """Wait until enough devices are there, but not for ever."""
        least = count_needed(self.rules, is_settled(self.rules, self.journal))
        while True:
            there = self.carrier.present()
            members = [device for device in self._members() if device.number in there]
            if len(members) >= least:
                return members
            if self._clock() >= until:
                by_rules = least == max(self.rules.quorum, self.rules.minimum)
                code = ReasonCode.QUORUM_MISSED if by_rules else ReasonCode.SECURE_QUORUM_MISSED
                raise FieldError.because(code, here=len(members), needed=least, seconds=self.rules.patience)
            time.sleep(WAIT)

    def _draw(self, number: int) -> Callable[[Sequence[EnrolledDevice], int, int, int], list[EnrolledDevice]]:
        """Return what draws those who are asked in a round: as many as are wanted, and some to spare."""

        def draw(devices: Sequence[EnrolledDevice], least: int, most: int, at: int) -> list[EnrolledDevice]:
            n, key = len(devices), self._key if at == 0 else self._key.child("again", at)
            wanted = min(self.rules.clients_per_round or n, most)
            first = sample_clients(key.child("choose"), number, n, wanted)
            spare = min(max(int(np.ceil(wanted * self.rules.over_selection)), least - wanted), most - wanted)
            others = np.setdiff1d(np.arange(n), first, assume_unique=True)
            lots = key.child("spare", number).uniform(others, 1)[:, 0]
            places = sorted([*first.tolist(), *others[np.argsort(lots, kind="stable")[:spare]].tolist()])
            return [devices[place] for place in places]

        return draw

    def _requests(self, number: int, devices: list[EnrolledDevice], learn: bool) -> dict[int, bytes]:
        written: dict[tuple[int, int], bytes] = {}  # devices that receive the same share one request
        requests = {}
        for device in devices:
            row = device.number - 1 if self._spec.client_tables else 0
            if (device.counted, row) not in written:
                request = Request(number, self.federation.download(self.shared, row), learn, device.counted)
                written[device.counted, row] = write_request(self.federation, request)
            requests[device.number] = written[device.counted, row]
        return requests

    def _apply(self, number: int, totals: list[Total]) -> dict[str, Array]:
        total = totals[0] if self.rules.robust is None else combine_groups(totals, self.rules.robust)
        try:
            with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
                shared = dict(server_round(self._path, self.shared, total))
        except np.linalg.LinAlgError:
            raise DivergedError(
                f"The sum of round {number} cannot be applied: its equations have no solution."
            ) from None
        for name in self._spec.downloads:
            largest = float(np.abs(shared[name]).max(initial=0.0))
            if not largest < LARGEST_LEARNT:
                raise DivergedError(
                    f"Learning diverged in round {number}: '{name}' reached {largest:.3g}.",
                    "The model of the round before stays in force. Found a new federation with a lower learning_rate.",
                )
        return shared


def _sum_of(messages: Iterable[Message], shapes: Mapping[str, tuple[int, ...]]) -> Total:
    total = Total.zero(shapes)
    for message in messages:
        total.add(message)
    return total


def _largest(total: Total) -> int:
    """Return the largest number of a sum."""
    return max((int(np.abs(sums).max(initial=0)) for sums in total.sums.values()), default=0)


def refuse_readable_only(spec: FederatedSpec, rules: RoundRules) -> None:
    """Refuse secure aggregation of a method whose server must read every client's own row."""
    if spec.client_tables and rules.secure is not None:
        raise ConfigError(
            f"This method cannot run under secure aggregation: its server reads a row of '{spec.client_tables[0]}' "
            "from every client.",
            "Set rounds.secure to none if all members agree to that, or choose another method.",
        )


def _log_fields(reason: RoundReason) -> dict[str, object]:
    """Return a reason as the log holds it: without what tells of a single device."""
    return {"reason": reason.public().as_dict()}
