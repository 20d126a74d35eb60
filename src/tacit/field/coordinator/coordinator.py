"""Rounds: ask, wait no longer than agreed, add what arrived, apply, write down; the carrier may be any.

A round is either finished, with its model on disk, or it never happened. A coordinator that was killed asks the
round's devices again; they give the very same answers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tacit.errors import DivergedError, FieldError
from tacit.field.coordinator.allowed_rounds import refuse_readable_only, refuse_unguarded
from tacit.field.coordinator.attendance import WAIT, DeviceAttendance, Timing
from tacit.field.coordinator.carrier import Carrier
from tacit.field.coordinator.config import RoundRules
from tacit.field.coordinator.directory import CoordinatorDirectory
from tacit.field.coordinator.journal import CoordinatorJournal
from tacit.field.coordinator.masked_round import MaskedRound, MaskedRoundOptions
from tacit.field.coordinator.members import EnrolledDevice
from tacit.field.coordinator.readable_round import ReadableRound, find_reach, sum_messages
from tacit.field.coordinator.round_log import RoundRecord
from tacit.field.coordinator.round_model import RoundModel
from tacit.field.coordinator.round_outcome import RoundOutcome
from tacit.field.coordinator.round_policy import RoundPolicy, count_used, decide_round, is_repeated
from tacit.field.coordinator.round_stats import APPLYING, WAITING, PhaseCounts, RoundStats
from tacit.field.coordinator.spending import NoisySum
from tacit.protocols.selection import sample_clients
from tacit.random import Key
from tacit.reasons import ReasonCode, RoundReason, describe_reason
from tacit.types import Array
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
        refuse_readable_only(self.federation.built.spec, rules)
        refuse_unguarded(self.federation, rules, sum(not device.revoked for device in journal.members.devices()))
        self._unjoined: dict[int, int] = {}  # by device: the last round that it did not join
        self._model = RoundModel(journal, rules, self._key)

    @property
    def shared(self) -> dict[str, Array]:
        """The model after the last finished round, with what follows from the catalogue alone."""
        return self._model.shared

    def run(self, on_round: Callable[[RoundRecord], None] = lambda happened: None) -> RoundReason | None:
        """Run all rounds that are left, for ever if the rules say so, then give all devices the model.

        Return why there are fewer rounds than agreed, if there are.
        """
        repeats = self.federation.privacy is None  # a sum that failed has spent budgets: it is not repeated at once
        while not self.is_done:
            rounds = self.journal.rounds.records()
            used = count_used(rounds) if repeats else len(rounds)
            if self.rules.rounds is not None and used >= self.rules.rounds:
                break
            if not (repeats and is_repeated(rounds)):
                self._attendance.wait_for_pause()
            on_round(self.round())
            self.journal.rounds.note_time(int(self._timing.wall()))
        self.distribute()
        if not self.is_done:
            return None
        log.info("plan done", extra={"fields": _log_fields(RoundReason(ReasonCode.PLAN_DONE))})
        return RoundReason(ReasonCode.PLAN_DONE)

    @property
    def is_done(self) -> bool:
        """Whether the method has made all sums that the privacy budgets pay for: no device is asked any more."""
        return self.federation.privacy is not None and not self._model.share

    def keep_distributing(self) -> None:
        """Give the model to every device that connects, for ever: all rounds are done."""
        self._attendance.keep_distributing()

    def round(self) -> RoundRecord:
        """Run one round."""
        began, number = self._clock(), self.journal.rounds.next_number
        if number == self.journal.sums.last_begun_round:
            return self._cut_off(number)
        self._attendance.wait_for_quorum(began)
        members, policy = self._decide_when_possible(number)
        if not policy.asked:
            return self._close_without_sum(RoundRecord(number, "skipped", 0, 0, 0, 0, 0, 0, 0.0, reason=policy.reason))
        started, is_masked = self._clock(), policy.secure_config is not None
        about = {"round": number, "asked": len(policy.asked), "masked": is_masked, **_log_fields(policy.reason)}
        log.log(logging.INFO if is_masked else logging.WARNING, "round begins", extra={"fields": about})
        self._attendance.note_given(number, policy.asked)
        waiting = self.journal.members.unagreed
        if waiting:
            log.info("users have not agreed", extra={"fields": {"round": number, "devices": len(waiting)}})
        self._attendance.give_model(self._attendance.check_members("round"))
        self._model.make_rows(policy.asked)
        requests = self._model.write_requests(number, policy.asked, learn=True)
        outcome = (
            self._ask_masked(number, policy, requests)
            if is_masked
            else self._ask_readable(number, requests, len(members))
        )
        collected = self._clock()
        shared = self._try_apply(number, outcome, len(requests))
        self._absent = outcome.absent if shared is None else set()
        if waiting:
            self.journal.members.note_agreed(outcome.joined)
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
            self.journal.rounds.abandon(happened, RoundStats(tuple(phases)))
        else:
            over = self._clock()
            happened = RoundRecord(number, "finished", *counts, over - started, *others, policy.reason)
            phases.append(PhaseCounts(0, APPLYING, seconds=over - collected))
            stats = RoundStats(tuple(phases), outcome.quality)
            self.journal.finish(
                happened, self._model.drop_constants(shared), outcome.counted, stats, self.rules.keep_models
            )
            self._model.shared = shared
        log.info("round ends", extra={"fields": happened.public()})
        return happened

    def _strike(self, number: int, strikes: Mapping[int, ReasonCode], was_summed: bool) -> None:
        """Note who sent what no honest device sends, and revoke those who did it again and again.

        That ends the batch of such a device, which those who need not stay with it leave for a new one. A batch that is
        summed in spite of that is not ended.
        """
        self.journal.strikes.note(number, strikes)
        batched = (
            {device.number for device in self.journal.members.devices() if device.batch} if was_summed else set[int]()
        )
        for known in self.journal.strikes.by_device():
            if known.count >= self.rules.strikes and known.device in strikes and known.device not in batched:
                self.journal.members.revoke(known.device)
                log.warning("device revoked", extra={"fields": {"round": number, "strikes": known.count}})

    def _try_apply(self, number: int, outcome: RoundOutcome, n_asked: int) -> dict[str, Array] | None:
        """Return the model after a round; none if too few answered, or if what they sent makes it diverge.

        Readable answers can be judged one by one: where the model stays finite without the few that move it furthest,
        these are left out and struck. In a masked sum it cannot be known whose part it was.
        """
        if not outcome.totals or len(outcome.counted) < self.rules.minimum:
            return None
        try:
            return self._model.apply(number, outcome.totals, n_asked)
        except DivergedError as error:
            outcome.reason = error.reason
        shapes = self._model.shapes
        reach = {device: find_reach(message, shapes) for device, message in outcome.answers.items()}
        furthest = sorted(reach, key=lambda device: -reach[device])
        most = 0 if self.rules.robust is not None else int(len(furthest) * LEFT_OUT)
        for n_out in range(1, min(most, len(furthest) - self.rules.minimum) + 1):
            rest = sorted(furthest[n_out:])
            try:
                total = sum_messages((outcome.answers[device] for device in rest), shapes)
                shared = self._model.apply(number, [total], n_asked)
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
        waiting = len(self.journal.members.unagreed & set(asked))
        if not waiting or reason.code not in FOR_SILENCE:
            return outcome.reason
        return RoundReason(ReasonCode.METHOD_NOT_AGREED, {"waiting": waiting})

    def _cut_off(self, number: int) -> RoundRecord:
        """Close a round that was killed in the middle of a sum; of its answers nothing is known."""
        asked = self.journal.sums.n_begun_with
        reason = RoundReason(ReasonCode.COORDINATOR_INTERRUPTED)
        return self._close_without_sum(
            RoundRecord(number, "abandoned", asked, 0, 0, 0, 0, 0, 0.0, asked, masked=1, reason=reason)
        )

    def _close_without_sum(self, happened: RoundRecord) -> RoundRecord:
        """Close a round in which no device is asked now."""
        self.journal.rounds.abandon(happened)
        log.info("round skipped" if happened.state == "skipped" else "round ends", extra={"fields": happened.public()})
        return happened

    def _ask_readable(self, number: int, requests: Mapping[int, bytes], n_members: int) -> RoundOutcome:
        """Ask in the clear."""
        about = self.federation, self._model.shapes, self.rules, self.carrier, self._key, self._clock
        return ReadableRound(*about, self._model.most_update_bytes).run(number, requests, n_members)

    def _ask_masked(self, number: int, policy: RoundPolicy, requests: Mapping[int, bytes]) -> RoundOutcome:
        """Ask for a sum under masks."""
        assert policy.secure_config is not None
        privacy, share = self.federation.guarantee, self._model.share
        shapes = self._model.shapes
        event = None if privacy is None else privacy.event(share, f"round {number}", len(requests), shapes)
        cool_down = self.rules.device_policy.cool_down
        kept = self.rules.keep_sums if policy.batch is None else min(cool_down, self.rules.keep_sums)
        self.journal.sums.begin(number, len(requests), cool_down, kept)

        def note_vectors(number: int, devices: Iterable[int]) -> None:
            self.journal.sums.note_asked(number, devices)
            if event is not None:
                self.journal.sums.note_spending(NoisySum(number, share, event))

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
            lambda half, devices, staying: self.journal.batches.note(number + 1, half, devices, staying),
            self.rules.device_policy,
            self._directory,
            self.journal.notices.list(),
        )
        outcome = MaskedRound(options, number, self.journal.sums.note_participants).run(policy.asked, requests)
        if privacy is not None:
            self._unjoined |= dict.fromkeys(outcome.unjoined, number)
        return outcome

    def distribute(self) -> None:
        """Announce that the rounds are done, and give the model to all devices that are there."""
        members = self._attendance.members()
        self.carrier.announce(CoordinatorStatus("finished", len(members), self._attendance.needed))
        self._attendance.note_given(self.journal.rounds.next_number, members)
        messages = self._write_models(members)
        self.carrier.tell(messages, self.rules.deadline)
        log.info(
            "model given out", extra={"fields": {"round": self.journal.rounds.next_number, "devices": len(messages)}}
        )

    def _write_models(self, devices: list[EnrolledDevice]) -> dict[int, bytes]:
        """Return the model as it is given to some devices."""
        self._model.make_rows(devices)
        return self._model.write_requests(self.journal.rounds.next_number, devices, learn=False)

    def _decide_when_possible(self, number: int) -> tuple[list[EnrolledDevice], RoundPolicy]:
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
        """Decide on a round.

        Devices that have just refused a sum with noise, because of a level or a limit of their users, are not asked
        again at once. Every device that is asked counts for the noise that the others must add.
        """
        share = self._model.share
        members = [
            one for one in members if number - self._unjoined.get(one.number, -SILENT_ROUNDS - 1) > SILENT_ROUNDS
        ]
        here, members = len(members), members if self._directory is None else self._directory.select_settled(members)
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


def _log_fields(reason: RoundReason) -> dict[str, object]:
    """Return a reason as the log holds it: without what is about a single device."""
    return {"reason": reason.public().as_dict()}
