"""Waiting for the next round: for its pause, for enough devices. Devices that connect meanwhile get the model."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tacit.errors import FieldError
from tacit.field.coordinator.batches import missing_from
from tacit.field.coordinator.carrier import Carrier
from tacit.field.coordinator.config import RoundRules
from tacit.field.coordinator.journal import CoordinatorJournal
from tacit.field.coordinator.members import EnrolledDevice
from tacit.field.coordinator.round_policy import count_needed, count_new, is_settled
from tacit.reasons import ReasonCode
from tacit.wire.status import CoordinatorPhase, CoordinatorStatus

log = logging.getLogger("tacit.field.coordinator")
WAIT, LONGER_WAIT = 0.2, 1.0  # seconds between checks of who is connected, at first and in a long wait
LONG_WAIT = 60.0  # seconds of waiting after which all devices get the newest model, not only those without one


@dataclass(frozen=True)
class Timing:
    """Clocks of a coordinator: one that cannot be set, the wall's, and how it sleeps."""

    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep


class DeviceAttendance:
    """Who is connected, and what they have been given."""

    def __init__(
        self,
        journal: CoordinatorJournal,
        rules: RoundRules,
        carrier: Carrier,
        timing: Timing,
        write_models: Callable[[list[EnrolledDevice]], dict[int, bytes]],
    ) -> None:
        self._journal, self._rules, self._carrier, self._timing = journal, rules, carrier, timing
        self._write_models = write_models
        self._given: dict[int, int] = {}  # device -> the round whose model it was sent last
        self._new = (0, 0)  # devices without a batch, and how many a new one takes, as they were logged last
        self._missing: set[int] | None = None  # devices that batches wait for, as the journal has them

    @property
    def needed(self) -> int:
        """How many devices must be connected before a round begins."""
        return count_needed(self._rules, is_settled(self._rules, self._journal), self._journal)

    def members(self) -> list[EnrolledDevice]:
        """Return the enrolled devices that are connected now."""
        there = self._carrier.present()
        return [device for device in self._journal.members.devices() if not device.revoked and device.number in there]

    def note_given(self, number: int, devices: Sequence[EnrolledDevice]) -> None:
        """Remember that devices were sent the model that a round begins with."""
        self._given.update({device.number: number for device in devices})

    def note_missing(self, members: Sequence[EnrolledDevice]) -> None:
        """Keep, for the operator, which devices batches wait for: one that does not come back can be revoked."""
        missing = missing_from(self._journal.members.devices(), members)
        if missing != self._missing:
            self._journal.batches.note_missing(missing, int(self._timing.wall()))
            self._missing = missing

    def check_members(self, phase: CoordinatorPhase, seconds: float = 0.0) -> list[EnrolledDevice]:
        """See who is here, and announce to all devices what is waited for."""
        members = self.members()
        new = count_new(self._rules, self._journal, {device.number for device in members})
        if new != self._new and 0 < new[0] < new[1]:
            fields = {"here": new[0], "needed": new[1], "missing": new[1] - new[0]}
            log.info("newcomers wait", extra={"fields": fields})
        self._new = new
        self._carrier.announce(CoordinatorStatus(phase, len(members), self.needed, max(0, int(seconds)), *new))
        return members

    def give_model(self, members: Sequence[EnrolledDevice], waited: float = 0.0) -> None:
        """Give the model to devices without one, and to all after a long wait; do not wait until they have it."""
        number = self._journal.rounds.next_number
        oldest = number if waited >= LONG_WAIT else 0
        due = [device for device in members if self._given.get(device.number, -1) < oldest]
        if due and self._journal.has_model:
            self.note_given(number, due)
            self._carrier.offer(self._write_models(due))
            log.info("model given out", extra={"fields": {"round": number, "devices": len(due)}})

    def wait_for_pause(self) -> None:
        """Wait until the pause since the last round is over, also over a restart, or enough newcomers are here."""
        pause, ended = self._rules.pause_seconds, self._journal.rounds.last_time
        if not pause or not ended:
            return
        left = min(pause, max(0.0, ended + pause - self._timing.wall()))
        began = self._timing.clock()
        while (waited := self._timing.clock() - began) < left:
            members = self.check_members("pause", left - waited)
            self.give_model(members, left)
            newcomers = sum(device.counted < 0 for device in members)
            if self._rules.newcomers and newcomers >= self._rules.newcomers and len(members) >= self.needed:
                return
            self._timing.sleep(min(_step(left), left - waited))

    def wait_for_quorum(self, began: float) -> list[EnrolledDevice]:
        """Wait until enough devices are here since `began`; for ever, unless the rules say how long."""
        known = -1
        while True:
            waited = self._timing.clock() - began
            members, least = self.check_members("waiting"), self.needed
            if len(members) >= least:
                return members
            self.give_model(members, waited)
            if len(members) != known:
                known = len(members)
                self.note_missing(members)
                log.info("round waits", extra={"fields": {"here": known, "needed": least, "missing": least - known}})
            if self._rules.patience is not None and waited >= self._rules.patience:
                by_rules = least == max(self._rules.quorum, self._rules.minimum)
                code = ReasonCode.QUORUM_MISSED if by_rules else ReasonCode.SECURE_QUORUM_MISSED
                raise FieldError.because(code, here=known, needed=least, seconds=self._rules.patience)
            self._timing.sleep(_step(waited))

    def is_over(self, waited: float) -> bool:
        """Say whether this was waited for as long as the rules allow."""
        return self._rules.patience is not None and waited >= self._rules.patience

    def keep_distributing(self) -> None:
        """Give the model to every device that connects, for ever."""
        while True:
            self.give_model(self.check_members("finished"), LONG_WAIT)
            self._timing.sleep(LONGER_WAIT)


def _step(waited: float) -> float:
    """Return how long to sleep between two checks in a wait of so many seconds."""
    return LONGER_WAIT if waited >= LONG_WAIT else WAIT
