"""Rounds: ask, wait no longer than agreed, add what arrived, apply, write down; the carrier may be any.

A round is either finished, with its model on disk, or it never happened. A coordinator that was killed asks the
round's devices again; they give the very same answers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

import numpy as np

from tacit.errors import ConfigError, DivergedError, FieldError, WireError
from tacit.field.coordinator.attendance import WAIT, DeviceAttendance, Timing
from tacit.field.coordinator.carrier import Carrier
from tacit.field.coordinator.config import RoundRules
from tacit.field.coordinator.directory import CoordinatorDirectory
from tacit.field.coordinator.journal import CoordinatorJournal, EnrolledDevice, RoundRecord
from tacit.field.coordinator.masked_round import MaskedRound, MaskedRoundOptions, RoundOutcome, note_strike
from tacit.field.coordinator.round_policy import RoundPolicy, count_needed, count_used, decide_round, is_repeated
from tacit.field.coordinator.round_stats import ANSWERS, APPLYING, WAITING, PhaseCounts, RoundStats
from tacit.field.coordinator.spending import NoisySum
from tacit.methods.base import FederatedSpec
from tacit.numerics import one_blas_thread
from tacit.protocols.federated import server_round
from tacit.protocols.guarantee import refuse_exact_counts, refuse_groups
from tacit.protocols.robust import assign_groups, combine_groups
from tacit.protocols.secure_aggregation.two_stage import SecureAggregationConfig
from tacit.protocols.selection import sample_clients
from tacit.random import Key
from tacit.reasons import ReasonCode, RoundReason, describe_reason
from tacit.types import Array
from tacit.updates import Message, Total
from tacit.wire.federation import LARGEST_LEARNT, Federation
from tacit.wire.messages import Request, read_update, write_request
from tacit.wire.status import CoordinatorStatus

log = logging.getLogger("tacit.field.coordinator")
TIMING = Timing()
FOR_SILENCE = frozenset({ReasonCode.TOO_MANY_DROPOUTS, ReasonCode.TOO_FEW_NEIGHBOURS, ReasonCode.TOO_FEW_ANSWERS})
SILENT_ROUNDS = 3  # in which a device is not asked that did not join a sum with a guarantee
LEFT_OUT = 0.2  # share of readable answers, at most, without which a round that would diverge is finished


class Coordinator:
    """Runs the rounds of one federation."""

    def __init__(
        self,
        journal: CoordinatorJournal,
        rules: RoundRules,
        carrier: Carrier,
        timing: Timing = TIMING,
    ) -> None:
        self.journal, self.rules, self.carrier, self._timing = journal, rules, carrier, timing
        self._clock = timing.clock
        self._attendance = DeviceAttendance(journal, rules, carrier, timing, self._write_models)
        self._directory = None if rules.witness is None else CoordinatorDirectory(journal, rules.witness)
        self._absent: set[int] = set()  # devices that were lost in a secure sum that failed, and is tried without them
        self.federation, self._key = journal.federation, Key(journal.seed).child("learn")
        self._path, self._spec = self.federation.path(), self.federation.built.spec
        refuse_readable_only(self._spec, rules)
        refuse_unguarded(self.federation, rules, sum(not device.revoked for device in journal.devices()))
        self._silent: dict[int, int] = {}  # by device: the last round that it did not join
        self._constants = self.federation.constants(journal.catalog)
        learnt = journal.amendments.grow_model(self.federation, journal.catalog, self._key.child("init"))
        self.shared: dict[str, Array] = {**(learnt or self._first_model(1)), **self._constants}

    def _first_model(self, n_clients: int) -> dict[str, Array]:
        return self.federation.first_model(self.journal.catalog, self._key.child("init"), n_clients)

    def _make_rows(self, members: Sequence[EnrolledDevice]) -> None:
        """Give every member a row of each client table; new rows are those of a first model."""
        most = max((device.number for device in members), default=0)
        for name in self._spec.client_tables:
            here = self.shared[name]
            if len(here) < most:
                self.shared[name] = np.concatenate([here, self._first_model(most)[name][len(here) :]])

    def run(self, on_round: Callable[[RoundRecord], None] = lambda happened: None) -> RoundReason | None:
        """Run all rounds that are left, for ever if the rules say so, then give all devices the model.

        Return why there are fewer rounds than agreed, if there are.
        """
        repeats = self.federation.privacy is None  # a sum that failed has spent budgets: it is not repeated at once
        while not self.is_done:
            rounds = self.journal.rounds()
            used = count_used(rounds) if repeats else len(rounds)
            if self.rules.rounds is not None and used >= self.rules.rounds:
                break
            if not (repeats and is_repeated(rounds)):
                self._attendance.wait_for_pause()
            on_round(self.round())
            self.journal.note_time(int(self._timing.wall()))
        self.distribute()
        if not self.is_done:
            return None
        log.info("plan done", extra={"fields": _log_fields(RoundReason(ReasonCode.PLAN_DONE))})
        return RoundReason(ReasonCode.PLAN_DONE)

    @property
    def is_done(self) -> bool:
        """Whether the method has made all sums that the privacy budgets pay for: no device is asked any more."""
        return self.federation.privacy is not None and not self._path.budget_share(self.shared)

    def stay(self) -> None:
        """Give the model to every device that connects, for ever: all rounds are done."""
        self._attendance.stay()

    def round(self) -> RoundRecord:
        """Run one round."""
        began, number = self._clock(), self.journal.next_round
        if number == self.journal.last_begun_round:
            return self._cut_off(number)
        self._attendance.wait_for_quorum(began)
        members, policy = self._decided(number)
        if not policy.asked:
            return self._closed(RoundRecord(number, "skipped", 0, 0, 0, 0, 0, 0, 0.0, reason=policy.reason))
        started, is_masked = self._clock(), policy.secure_config is not None
        about = {"round": number, "asked": len(policy.asked), "masked": is_masked, **_log_fields(policy.reason)}
        log.log(logging.INFO if is_masked else logging.WARNING, "round begins", extra={"fields": about})
        self._attendance.note_given(number, policy.asked)
        waiting = self.journal.unagreed
        if waiting:
            log.info("users have not agreed", extra={"fields": {"round": number, "devices": len(waiting)}})
        self._attendance.give_model(self._attendance.check_members("round"))
        self._make_rows(policy.asked)
        requests = self._requests(number, policy.asked, learn=True)
        outcome = (
            self._ask_masked(number, policy, requests)
            if is_masked
            else self._ask_readable(number, requests, len(members))
        )
        collected = self._clock()
        shared = self._try_apply(number, outcome, len(requests))
        self._absent = outcome.absent if shared is None else set()
        if waiting:
            self.journal.note_agreed(outcome.joined)
            if shared is None:
                outcome.reason = self._name_unagreed(outcome, requests)
        if outcome.strikes:
            self._strike(number, outcome.strikes, was_summed=shared is not None)
        lost = max(0, len(requests) - len(outcome.counted) - outcome.refused - outcome.called_off)
        counts = len(requests), len(outcome.counted), outcome.refused, lost, outcome.bytes_up, outcome.bytes_down
        phases = [PhaseCounts(0, WAITING, seconds=started - began), *outcome.phases]
        others = outcome.called_off, int(is_masked)
        if shared is None:
            reason = (outcome.reason or self._too_few(len(outcome.counted))).public()
            happened = RoundRecord(number, "abandoned", *counts, self._clock() - started, *others, reason)
            self.journal.abandon(happened, RoundStats(tuple(phases)))
        else:
            over = self._clock()
            happened = RoundRecord(number, "finished", *counts, over - started, *others, policy.reason)
            phases.append(PhaseCounts(0, APPLYING, seconds=over - collected))
            learnt = {name: array for name, array in shared.items() if name not in self._constants}
            stats = RoundStats(tuple(phases), outcome.quality)
            self.journal.finish(happened, learnt, outcome.counted, stats, self.rules.keep_models)
            self.shared = shared
        log.info("round ends", extra={"fields": happened.public()})
        return happened

    def _strike(self, number: int, strikes: Mapping[int, ReasonCode], was_summed: bool) -> None:
        """Note who sent what no honest device sends, and revoke those who did it again and again.

        That ends the batch of such a device, which those who need not stay with it leave for a new one. A batch that is
        summed in spite of the lies is not ended.
        """
        self.journal.strike(number, strikes)
        batched = {device.number for device in self.journal.devices() if device.batch} if was_summed else set[int]()
        for known in self.journal.strikes():
            if known.count >= self.rules.strikes and known.device in strikes and known.device not in batched:
                self.journal.revoke(known.device)
                log.warning("device revoked", extra={"fields": {"round": number, "strikes": known.count}})

    def _try_apply(self, number: int, outcome: RoundOutcome, n_asked: int) -> dict[str, Array] | None:
        """Return the model after a round; none if too few answered, or if what they sent makes it diverge.

        Readable answers can be judged one by one: where the model stays finite without the few that move it furthest,
        these are left out and struck. In a masked sum it cannot be known whose part it was.
        """
        if not outcome.totals or len(outcome.counted) < self.rules.minimum:
            return None
        try:
            return self._apply(number, outcome.totals, n_asked)
        except DivergedError as error:
            outcome.reason = error.reason
        shapes = self._path.method.shapes(self.shared)
        reach = {device: _largest(_sum_of([message], shapes)) for device, message in outcome.answers.items()}
        furthest = sorted(reach, key=lambda device: -reach[device])
        most = 0 if self.rules.robust is not None else int(len(furthest) * LEFT_OUT)
        for n_out in range(1, min(most, len(furthest) - self.rules.minimum) + 1):
            rest = sorted(furthest[n_out:])
            try:
                shared = self._apply(number, [_sum_of([outcome.answers[device] for device in rest], shapes)], n_asked)
            except DivergedError:
                continue
            outcome.counted, outcome.refused = rest, outcome.refused + n_out
            outcome.strikes |= dict.fromkeys(furthest[:n_out], ReasonCode.DIVERGED)
            return shared
        return None

    def _too_few(self, answered: int) -> RoundReason:
        """Return the reason of a round that fewer devices answered than its rules want."""
        return RoundReason(ReasonCode.TOO_FEW_ANSWERS, {"answered": answered, "needed": self.rules.minimum})

    def _name_unagreed(self, outcome: RoundOutcome, asked: Iterable[int]) -> RoundReason | None:
        """Return why a round ended, if that is because users have not agreed to another method yet; else as it was."""
        reason = outcome.reason or self._too_few(len(outcome.counted))
        waiting = len(self.journal.unagreed & set(asked))
        if not waiting or reason.code not in FOR_SILENCE:
            return outcome.reason
        return RoundReason(ReasonCode.METHOD_NOT_AGREED, {"waiting": waiting})

    def _cut_off(self, number: int) -> RoundRecord:
        """Close a round that was killed in the middle of a sum; of its answers nothing is known."""
        asked = self.journal.n_begun_with
        reason = RoundReason(ReasonCode.COORDINATOR_INTERRUPTED)
        return self._closed(RoundRecord(number, "abandoned", asked, 0, 0, 0, 0, 0, 0.0, asked, masked=1, reason=reason))

    def _closed(self, happened: RoundRecord) -> RoundRecord:
        """Close a round in which no device is asked now."""
        self.journal.abandon(happened)
        log.info("round skipped" if happened.state == "skipped" else "round ends", extra={"fields": happened.public()})
        return happened

    def _ask_readable(self, number: int, requests: Mapping[int, bytes], n_members: int) -> RoundOutcome:
        """Ask in the clear; the first answers count."""
        wanted = min(self.rules.clients_per_round or n_members, n_members)
        outcome, answers = (
            RoundOutcome(bytes_down=sum(len(content) for content in requests.values())),
            dict[int, Message](),
        )
        started = self._clock()
        with closing(self.carrier.ask(requests, self.rules.deadline)) as arriving:
            for device, content in arriving:
                outcome.bytes_up += len(content)
                outcome.joined.add(device)
                if device not in requests or device in answers:
                    outcome.refused += 1
                    again = RoundReason(ReasonCode.REPEATED_ANSWER)
                    log.warning("answer refused", extra={"fields": {"round": number, **_log_fields(again)}})
                    continue
                try:
                    shapes = self._path.method.shapes(self.shared)
                    answers[device] = read_update(self.federation, number, content, shapes, device - 1)
                except WireError as error:
                    outcome.refused += 1
                    note_strike(outcome, device, error)
                    log.warning("answer refused", extra={"fields": {"round": number, **error.public()}})
                if len(answers) == wanted:
                    outcome.called_off = max(0, len(requests) - len(answers) - outcome.refused)
                    break
        outcome.counted, outcome.answers = sorted(answers), answers
        counts = len(requests), len(answers), outcome.refused, outcome.called_off, outcome.bytes_up, outcome.bytes_down
        outcome.phases = [PhaseCounts(0, ANSWERS, *counts, self._clock() - started)]
        robust, order = self.rules.robust, np.array(outcome.counted, np.int64)
        groups = (
            [order]
            if robust is None or not answers
            else assign_groups(order, robust, self._key.child("groups", number))
        )
        for group in groups:
            shapes = self._path.method.shapes(self.shared)
            outcome.totals.append(_sum_of([answers[int(device)] for device in group], shapes))
        return outcome

    def _ask_masked(self, number: int, policy: RoundPolicy, requests: Mapping[int, bytes]) -> RoundOutcome:
        """Ask for a sum under masks."""
        assert policy.secure_config is not None
        privacy, share = self.federation.guarantee, self._path.budget_share(self.shared)
        shapes = self._path.method.shapes(self.shared)
        event = None if privacy is None else privacy.event(share, f"round {number}", len(requests), shapes)
        cool_down = self.rules.device_policy.cool_down
        kept = self.rules.keep_sums if policy.batch is None else min(cool_down, self.rules.keep_sums)
        self.journal.begin(number, len(requests), cool_down, kept)

        def note_vectors(number: int, devices: Iterable[int]) -> None:
            self.journal.note_asked(number, devices)
            if event is not None:
                self.journal.note_spending(NoisySum(number, share, event))

        options = MaskedRoundOptions(
            self.federation,
            shapes,
            policy.secure_config,
            self.carrier,
            self.rules.deadline,
            share,
            self._clock,
            note_vectors,
            policy.batch,
            lambda half, devices, staying: self.journal.note_batch(number + 1, half, devices, staying),
            self.rules.device_policy,
            self._directory,
            self.journal.notices(),
        )
        outcome = MaskedRound(options, number, self.journal.note_sum).run(policy.asked, requests)
        if privacy is not None:
            self._silent |= dict.fromkeys(outcome.silent, number)
        return outcome

    def distribute(self) -> None:
        """Announce that the rounds are done, and give the model to all devices that are there."""
        members = self._attendance.members()
        self.carrier.announce(CoordinatorStatus("finished", len(members), self._attendance.needed))
        self._attendance.note_given(self.journal.next_round, members)
        messages = self._write_models(members)
        self.carrier.tell(messages, self.rules.deadline)
        log.info("model given out", extra={"fields": {"round": self.journal.next_round, "devices": len(messages)}})

    def _write_models(self, devices: list[EnrolledDevice]) -> dict[int, bytes]:
        """Return the model as it is given to some devices."""
        self._make_rows(devices)
        return self._requests(self.journal.next_round, devices, learn=False)

    def _decided(self, number: int) -> tuple[list[EnrolledDevice], RoundPolicy]:
        """Decide how a round is run; where only others than those who are here could be asked, wait for them."""
        seen, policy, began = list[EnrolledDevice](), None, self._clock()
        n_settled = 0
        while True:
            members = self._attendance.wait_for_quorum(began)
            settled = 0 if self._directory is None else self._directory.n_settled
            if policy is None or members != seen or settled != n_settled:
                seen, n_settled, policy = members, settled, self._decide(number, members)
                if policy.asked or not policy.waits:
                    return members, policy
                about = {"round": number, "here": len(members), **_log_fields(policy.reason)}
                log.info("round waits", extra={"fields": about})
            if self._attendance.is_over(self._clock() - began):
                description = describe_reason(policy.reason)
                raise FieldError(
                    f"No device could be asked within {self.rules.patience:g} seconds. "
                    f"{description.what} {description.meaning}",
                    f"{description.remedy} Then start again: finished rounds are kept.",
                    policy.reason,
                )
            self._timing.sleep(WAIT)

    def _decide(self, number: int, members: Sequence[EnrolledDevice]) -> RoundPolicy:
        """Decide on a round. Devices that have just refused a sum with noise, because of a level or a limit of their
        users, are not asked again at once: every device that is asked counts for the noise that the others must add.
        """
        share = self._path.budget_share(self.shared)
        members = [one for one in members if number - self._silent.get(one.number, -SILENT_ROUNDS - 1) > SILENT_ROUNDS]
        here, members = len(members), members if self._directory is None else self._directory.settled(members)
        others = [one for one in members if one.number not in self._absent]  # lost in a sum that is repeated
        self._attendance.note_missing(others)
        draw = self._draw(number)
        if len(others) < len(members) and len(others) >= self._attendance.needed:
            policy = decide_round(self.rules, self.journal, number, others, draw, share)
            if policy.asked:
                return policy
        policy = decide_round(self.rules, self.journal, number, members, draw, share)
        if self._directory is not None and not policy.asked and len(members) < self._attendance.needed:
            reason = self._directory.waits(len(members), here, self._attendance.needed)
            return replace(policy, reason=reason, waits=True)
        return policy

    def _draw(self, number: int) -> Callable[[Sequence[EnrolledDevice], int, int, int], list[EnrolledDevice]]:
        """Return what draws those who are asked in a round: as many as are wanted, and some to spare."""

        def draw(devices: Sequence[EnrolledDevice], least: int, most: int, at: int) -> list[EnrolledDevice]:
            n, key = len(devices), self._key if at == 0 else self._key.child("again", at)
            wanted = min(self.rules.clients_per_round or n, most)
            first = sample_clients(key.child("choose"), number, n, wanted)
            spare = min(max(int(np.ceil(wanted * self.rules.over_selection)), least - wanted), most - wanted)
            others = np.setdiff1d(np.arange(n), first, assume_unique=True)
            draws = key.child("spare", number).uniform(others, 1)[:, 0]
            places = sorted([*first.tolist(), *others[np.argsort(draws, kind="stable")[:spare]].tolist()])
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

    def _apply(self, number: int, totals: list[Total], n_asked: int) -> dict[str, Array]:
        total = totals[0] if self.rules.robust is None else combine_groups(totals, self.rules.robust)
        try:
            with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
                shared = dict(server_round(self._path, self.shared, total, n_asked))
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


def refuse_unguarded(federation: Federation, rules: RoundRules, n_devices: int = 0) -> None:
    """Refuse rounds under which the guarantee of a federation would not hold for so many devices."""
    if federation.privacy is None:
        return
    if rules.secure is None:
        raise ConfigError(
            "rounds.secure is off: the coordinator would read every answer, and noise protects sums only.",
            "Set rounds.secure to auto, or remove the guarantee (privacy).",
        )
    refuse_groups(rules.robust, "rounds.robust")
    secure = rules.secure if isinstance(rules.secure, SecureAggregationConfig) else None
    refuse_exact_counts(secure is not None and secure.two_stage, "rounds.secure.two_stage")
    held = federation.privacy.participations
    if held is not None and not rules.clients_per_round and (rules.rounds or 0) > held:
        raise ConfigError(
            f"rounds.rounds is {rules.rounds}, and every device is asked in each, but a device's budget holds {held} "
            "sums (privacy.participations).",
            f"Set rounds.rounds to {held} or less, or found a federation with more participations.",
        )
    most = max(n_devices, rules.quorum, rules.minimum, rules.clients_per_round, count_needed(rules, settled=True))
    if federation.privacy.delta * most >= 1:
        raise ConfigError(
            f"privacy.delta is {federation.privacy.delta:g}, and there are {most} devices: a coordinator that "
            "publishes one of them whole has that delta.",
            f"Found a federation with a delta below {1 / most:.2g}; 1 / (10 devices) is usual.",
        )


def _log_fields(reason: RoundReason) -> dict[str, object]:
    """Return a reason as the log holds it: without what tells of a single device."""
    return {"reason": reason.public().as_dict()}
