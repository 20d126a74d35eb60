"""What a device demands, whatever the server asks: enough participants, few cohorts, and a cool-down.

Cohorts are known and contributions repeat, so that sums over different cohorts are linear equations in participants.
Two that differ by a few show what these sent (FedNCF, section 3.5.2), and four that differ by many can still be solved
for one participant. The same participants again are harmless: equal sets have no difference. Of each cohort some
participants therefore *stay*: they are in sums of no other cohort from then on. The others may join sums of other
cohorts (`most_cohorts`), so that a cohort that has lost a device does not end for all. However sums are combined, those
who stay in the earliest of them are left in the result, and they are at least `k_min` honest ones
(docs/decisions/0024-who-stays.md). Who stays follows from the list of participants, and each device goes by it itself.

The check is made on those whose vectors are in the sum, because a server can also pretend that a participant dropped
out. Participation is counted when the vector is sent: the device cannot know what becomes of the sum after that.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pydantic import Field

from tacit.errors import DevicePolicyError, OutOfTurnError
from tacit.protocols.secure_aggregation.bytes import MOST_PARTICIPANTS, ByteReader, ByteWriter
from tacit.protocols.secure_aggregation.context import Session
from tacit.protocols.secure_aggregation.encoding import SegmentKind
from tacit.protocols.secure_aggregation.graph import MaskingPlan, is_safe
from tacit.protocols.secure_aggregation.two_stage import QUALITY
from tacit.reasons import ReasonCode
from tacit.types import Config

NAME_BYTES = 8
MOST_SUMS = 100_000
MAY_GO_ON = 0x40  # beside the stage of a stored sum; sums of earlier versions lack it: their participants stay
FEWEST_STAYING = 2  # honest ones: what one sent is never left alone, whatever k_min is


class DevicePolicy(Config):
    """A device's own limits."""

    n_min: int = Field(10, ge=2, description="least number of participants in a sum")
    k_min: int = Field(3, ge=1, description="least number of participants behind each row of a two-stage sum")
    d_min: int | None = Field(
        None,
        ge=0,
        description="least participants by which two cohorts differ, if they do; none: a quarter, at least k_min",
    )
    corrupted: float = Field(0.2, ge=0, lt=1, description="share of participants that may collude with the server")
    cool_down: int = Field(5, ge=0, description="cool-down: rounds that the device sits out after a masked round")
    most_rounds: int = Field(1000, ge=1, description="most masked rounds that the device takes part in, per federation")
    most_cohorts: int | None = Field(
        4,
        ge=1,
        description="most sets of participants that the device is summed with, per federation, those who stay with one "
        "only; none: any, and none stays",
    )

    def differ_by(self, n_participants: int) -> int:
        """Return d_min for a sum of so many."""
        return max(self.k_min, math.ceil(n_participants / 4)) if self.d_min is None else self.d_min

    def in_trial(self, devices: int) -> DevicePolicy:
        """Return the limits in a trial that begins with so few devices; what a user has set is not lowered.

        One device in five may drop out. Two participants behind each row are what small sums have.
        """
        lowered = {"n_min": devices * 4 // 5, "k_min": 2, "cool_down": 0}
        usual = type(self)()
        return self.model_copy(
            update={name: value for name, value in lowered.items() if getattr(self, name) == getattr(usual, name)}
        )

    def under_noise(self) -> DevicePolicy:
        """Return the limits of sums whose every number carries noise that is accounted.

        Rows of few participants, cohorts that change, and many sums in a row are what the noise is for; the
        budget counts them. How many participants there are, and how many may collude, matters as before.
        """
        return self.model_copy(update={"k_min": 1, "d_min": 0, "cool_down": 0, "most_cohorts": None})


@dataclass(frozen=True)
class PastSum:
    """A sum that this device has sent its vector to: round and stage, and its participants as short hashes.

    Participants are known with the confirmation. Without it the sum may still be opened, so that it counts all the
    same.
    """

    round: int
    stage: int
    participants: frozenset[bytes]  # empty: not known
    stays: bool = True  # this device is in sums of no other cohort afterwards


@dataclass(frozen=True)
class ParticipationHistory:
    """What a device remembers of one task from round to round, and beside it what it remembers of others."""

    task: str = ""  # the only one that this memory is of
    latest: tuple[int, int] = (-1, 0)  # round and stage of the last session joined, finished or not
    sums: tuple[PastSum, ...] = ()
    others: tuple[ParticipationHistory, ...] = ()  # of other tasks: a device that joins again continues with it

    def of(self, task: str) -> ParticipationHistory:
        """Return what is remembered of a task, nothing if it is new; the others are kept beside it."""
        if self.task in ("", task):
            return self
        found = next((other for other in self.others if other.task == task), ParticipationHistory(task))
        rest = tuple(other for other in self.others if other.task != task)
        return replace(found, others=(*rest, replace(self, others=())))

    @property
    def rounds(self) -> set[int]:
        """The rounds in which this device has sent a vector."""
        return {past.round for past in self.sums}

    def with_session(self, session: Session) -> ParticipationHistory:
        """Remember that a session was joined: it, and any before it, cannot be joined again."""
        return replace(self, task=session.terms.task, latest=(session.terms.round, session.terms.stage))

    def with_vector(self, session: Session) -> ParticipationHistory:
        """Remember that a vector is sent: from now on others can open the sum without this device."""
        return replace(self, sums=(*self.sums, PastSum(session.terms.round, session.terms.stage, frozenset())))

    def with_sum(self, session: Session, survivors: Iterable[int], stays: bool = True) -> ParticipationHistory:
        """Remember who was in a sum. Of a cohort that comes again only the last time is kept: no check needs more.

        Who had to stay with a cohort once, stays: its first sum may have been opened then, or only later.
        """
        past = PastSum(session.terms.round, session.terms.stage, names_of(session, survivors), stays)
        had_to = any(other.stays and _is_same_cohort(other, past) for other in self.sums)
        past = replace(past, stays=stays or had_to)
        before = (
            replace(other, participants=frozenset()) if _is_same_cohort(other, past) else other
            for other in self.sums
            if (other.round, other.stage) != (past.round, past.stage)
        )
        return replace(self, sums=(*before, past))

    def encode(self) -> bytes:
        """Return it for the journal."""
        writer = (
            ByteWriter()
            .text(self.task)
            .number(self.latest[0] + 1, 8)
            .number(self.latest[1], 1)
            .number(len(self.sums), 4)
        )
        for past in self.sums:
            writer.number(past.round, 8).number(past.stage | (0 if past.stays else MAY_GO_ON), 1)
            writer.block(b"".join(sorted(past.participants)))
        for other in self.others:
            writer.block(other.encode())
        return writer.done()

    @classmethod
    def decode(cls, data: bytes) -> ParticipationHistory:
        """Read it from the journal."""
        reader = ByteReader(data, "A history")
        task, latest = reader.text(), (reader.number(8) - 1, reader.number(1))
        sums = []
        for _ in range(reader.number(4, MOST_SUMS)):
            number, stage, participants = (
                reader.number(8),
                reader.number(1),
                reader.block(MOST_PARTICIPANTS * NAME_BYTES),
            )
            names = (participants[start : start + NAME_BYTES] for start in range(0, len(participants), NAME_BYTES))
            sums.append(PastSum(number, stage & ~MAY_GO_ON, frozenset(names), not stage & MAY_GO_ON))
        others = []
        while not reader.is_over:
            others.append(cls.decode(reader.block()))
        return cls(task, latest, tuple(sums), tuple(others))


def names_of(session: Session, participants: Iterable[int]) -> frozenset[bytes]:
    """Return some participants of a cohort as hashes that mean nothing outside this task."""
    return frozenset(name_of(session, participant) for participant in participants)


def name_of(session: Session, participant: int) -> bytes:
    """Return a participant of a cohort as a hash that means nothing outside this task."""
    return name_identity(session.terms.task, session.cohort[participant])


def name_identity(task: str, identity: bytes) -> bytes:
    """Return an identity as a hash that means nothing outside a task."""
    return hashlib.sha256(b"tacit person" + task.encode() + identity).digest()[:NAME_BYTES]


def has_ended(device_policy: DevicePolicy, history: ParticipationHistory, revoked: Iterable[bytes]) -> bool:
    """Say whether a device can be in no sum any more: its last cohort has a revoked identity, and it may join no other.

    Stages are apart, as in `check_participants`: who has to stay with a half that was counted stays with its batch.
    """
    most = device_policy.most_cohorts
    if most is None:
        return False
    gone, is_bound, is_over = {name_identity(history.task, identity) for identity in revoked}, False, False
    for stage in (1, 2):
        known = [past for past in history.sums if past.participants and past.stage == stage]
        if known:
            is_bound |= known[-1].stays or len({past.participants for past in known}) >= most
            is_over |= bool(gone & known[-1].participants)
    return is_bound and is_over


def staying(device_policy: DevicePolicy, session: Session, participants: Iterable[int]) -> frozenset[int]:
    """Return who of a sum stays with its cohort: as many as leave enough honest ones who know of it.

    Up to `corrupted` participants may lie about it. Others may not know who was in the sum, because as many as rebuild
    a secret can open it. In graphs that are not complete it is not known how many know, and all stay. Those with the
    lowest names stay: names cannot be chosen once the cohort is known, and who has left one batch is likely to leave
    the next.
    """
    present, terms, n_invited = sorted(participants), session.terms, session.n_participants
    if device_policy.most_cohorts is None or device_policy.most_cohorts == 1 or terms.degree < n_invited - 1:
        return frozenset(present)
    n_unaware = max(0, len(present) - terms.threshold)
    n_staying = max(FEWEST_STAYING, device_policy.k_min) + math.floor(device_policy.corrupted * n_invited) + n_unaware
    return frozenset(sorted(present, key=lambda one: name_of(session, one))[:n_staying])


def check_invitation(device_policy: DevicePolicy, history: ParticipationHistory, session: Session) -> None:
    """Refuse an invitation whose limits are too weak, that comes too soon, or is over."""
    terms = session.terms
    if history.task not in ("", terms.task):
        raise OutOfTurnError.because(ReasonCode.OTHER_FEDERATION)
    if (terms.round, terms.stage) <= history.latest:
        raise OutOfTurnError.because(ReasonCode.ROUND_REPEATED, round=terms.round, stage=terms.stage)
    if terms.n_min < device_policy.n_min or terms.k_min < device_policy.k_min:
        raise DevicePolicyError.because(
            ReasonCode.WEAK_TERMS,
            n_min=terms.n_min,
            k_min=terms.k_min,
            device_n_min=device_policy.n_min,
            device_k_min=device_policy.k_min,
        )
    if not is_safe(session.n_participants, MaskingPlan(terms.degree, terms.threshold), device_policy.corrupted):
        raise DevicePolicyError.because(ReasonCode.UNSAFE_THRESHOLD, threshold=terms.threshold, degree=terms.degree)
    others = history.rounds - {terms.round}
    if len(others) >= device_policy.most_rounds:
        raise DevicePolicyError.because(ReasonCode.DEVICE_PARTICIPATION_LIMIT, rounds=len(others))
    if others and terms.round - max(others) <= device_policy.cool_down:
        raise DevicePolicyError.because(
            ReasonCode.DEVICE_COOL_DOWN, earlier=max(others), cool_down=device_policy.cool_down, round=terms.round
        )
    check_participants(device_policy, history, session, range(session.n_participants))
    first = _first_stage(history, session)
    if terms.stage == 2:
        if first is None and terms.k_min > 1:
            raise DevicePolicyError.because(ReasonCode.UNCOUNTED_ROWS)
        if first is not None:
            _check_second_stage(device_policy, first.participants, names_of(session, range(session.n_participants)))
    check_parts(session, was_counted=first is not None)


def _check_second_stage(device_policy: DevicePolicy, first: frozenset[bytes], invited: frozenset[bytes]) -> None:
    """Refuse participants whose rows were not counted, but for another part of the cohort that is a sum by itself."""
    if not invited <= first and not (first <= invited and len(invited - first) >= device_policy.n_min):
        raise DevicePolicyError.because(ReasonCode.NEW_PARTICIPANTS)


def check_parts(session: Session, *, was_counted: bool) -> None:
    """Refuse a stage that holds what belongs into another one.

    The first counts participants and nothing else, of all rows. After it the rows that it listed are added, and none is
    counted again: the difference would be about those who dropped out in between. A sum in one stage has no quality.
    """
    stage = session.terms.stage
    for part in session.terms.layout.segments:
        if stage == 1:
            is_right = part.kind is SegmentKind.COUNTS and part.rows is None
        elif was_counted:
            is_right = part.kind is SegmentKind.NUMBERS and part.rows is not None
        else:
            is_right = part.kind is not SegmentKind.COUNTS and part.table != QUALITY
        if not is_right:
            kind = part.kind.name.lower()
            raise DevicePolicyError.because(ReasonCode.WRONG_STAGE_CONTENT, stage=stage, kind=kind, table=part.table)


def check_participants(
    device_policy: DevicePolicy, history: ParticipationHistory, session: Session, participants: Iterable[int]
) -> None:
    """Refuse a cohort beyond those that the policy allows, and one that differs from an earlier one, but too little.

    Stages are counted apart: rows may be counted in halves of the cohort whose rows are then added.
    """
    names, least = names_of(session, participants), device_policy.differ_by(session.n_participants)
    known = [
        past
        for past in history.sums
        if past.participants and past.stage == session.terms.stage and past.round != session.terms.round
    ]
    if device_policy.most_cohorts is not None and known and names != known[-1].participants:
        cohorts = {past.participants for past in known}
        if known[-1].stays or len(cohorts | {names}) > max(device_policy.most_cohorts, len(cohorts)):
            raise DevicePolicyError.because(ReasonCode.DEVICE_OTHER_COHORT, earlier=known[-1].round)
    for past in history.sums:
        differ = len(names ^ past.participants)
        if past.participants and past.round != session.terms.round and 0 < differ < least:
            raise DevicePolicyError.because(
                ReasonCode.DEVICE_COHORT_TOO_SIMILAR, earlier=past.round, differ=differ, needed=least
            )


def check_loss(
    device_policy: DevicePolicy, history: ParticipationHistory, session: Session, survivors: Iterable[int]
) -> None:
    """Refuse a second stage that has lost more participants since the first than its list of rows allows for.

    Where cohorts are few, none may be lost: counts and rows would be of two.
    """
    first = _first_stage(history, session)
    if session.terms.stage == 2 and first is not None:
        n_lost = len(first.participants - names_of(session, survivors))
        spare = 0 if device_policy.most_cohorts is not None else session.terms.spare
        if n_lost > spare:
            raise DevicePolicyError.because(ReasonCode.LOST_BETWEEN_STAGES, lost=n_lost, spare=spare)


def _is_same_cohort(one: PastSum, other: PastSum) -> bool:
    return (one.stage, one.participants) == (other.stage, other.participants)


def _first_stage(history: ParticipationHistory, session: Session) -> PastSum | None:
    found = (
        past for past in history.sums if past.participants and (past.round, past.stage) == (session.terms.round, 1)
    )
    return next(found, None)
