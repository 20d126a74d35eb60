"""What a device insists on, whatever the server asks: enough people, sums that differ enough, and time in between.

Two sums over nearly the same people differ by what the few others sent (FedNCF, section 3.5.2). A device therefore
remembers the people of every sum it has been in and refuses one that differs from an earlier one, but by fewer than
`d_min` people. The same people again are no harm: equal sets have no difference. The check is made on those whose
vectors are in the sum, because a server can also pretend that somebody dropped out. Participation is counted when the
vector is sent: what becomes of the sum after that is not in the device's hands.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pydantic import Field

from tacit.errors import GuardError, OutOfTurnError
from tacit.protocols.secure_aggregation.bytes import MOST_PEOPLE, ByteReader, ByteWriter
from tacit.protocols.secure_aggregation.context import Session
from tacit.protocols.secure_aggregation.encoding import SegmentKind
from tacit.protocols.secure_aggregation.graph import MaskingPlan, is_safe
from tacit.protocols.secure_aggregation.two_stage import QUALITY
from tacit.reasons import ReasonCode
from tacit.types import Config

NAME_BYTES = 8
MOST_SUMS = 100_000


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

    def differ_by(self, n_people: int) -> int:
        """Return d_min for a sum of so many."""
        return max(self.k_min, math.ceil(n_people / 4)) if self.d_min is None else self.d_min


@dataclass(frozen=True)
class PastSum:
    """A sum that this device has sent its vector to: round and stage, and its people as short hashes.

    People are known with the confirmation. Without it the sum may still be opened, so that it counts all the same.
    """

    round: int
    stage: int
    people: frozenset[bytes]  # empty: not known


@dataclass(frozen=True)
class ParticipationHistory:
    """What a device remembers of one task from round to round, and beside it what it remembers of others."""

    task: str = ""  # the only one that this memory is of
    latest: tuple[int, int] = (-1, 0)  # round and stage of the last session joined, finished or not
    sums: tuple[PastSum, ...] = ()
    others: tuple[ParticipationHistory, ...] = ()  # of other tasks: who comes back finds what was remembered

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

    def with_sum(self, session: Session, survivors: Iterable[int]) -> ParticipationHistory:
        """Remember who was in a sum."""
        past = PastSum(session.terms.round, session.terms.stage, names_of(session, survivors))
        before = (other for other in self.sums if (other.round, other.stage) != (past.round, past.stage))
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
            writer.number(past.round, 8).number(past.stage, 1).block(b"".join(sorted(past.people)))
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
            number, stage, people = reader.number(8), reader.number(1), reader.block(MOST_PEOPLE * NAME_BYTES)
            names = (people[start : start + NAME_BYTES] for start in range(0, len(people), NAME_BYTES))
            sums.append(PastSum(number, stage, frozenset(names)))
        others = []
        while not reader.is_over:
            others.append(cls.decode(reader.block()))
        return cls(task, latest, tuple(sums), tuple(others))


def names_of(session: Session, people: Iterable[int]) -> frozenset[bytes]:
    """Return some people of a cohort as hashes that mean nothing outside this task."""
    salt = b"tacit person" + session.terms.task.encode()
    return frozenset(hashlib.sha256(salt + session.cohort[person]).digest()[:NAME_BYTES] for person in people)


def check_invitation(guards: DevicePolicy, history: ParticipationHistory, session: Session) -> None:
    """Refuse an invitation that asks for too little care, comes too soon, or is over."""
    terms = session.terms
    if history.task not in ("", terms.task):
        raise OutOfTurnError.because(ReasonCode.OTHER_FEDERATION)
    if (terms.round, terms.stage) <= history.latest:
        raise OutOfTurnError.because(ReasonCode.ROUND_REPEATED, round=terms.round, stage=terms.stage)
    if terms.n_min < guards.n_min or terms.k_min < guards.k_min:
        raise GuardError.because(
            ReasonCode.WEAK_TERMS,
            n_min=terms.n_min,
            k_min=terms.k_min,
            device_n_min=guards.n_min,
            device_k_min=guards.k_min,
        )
    if not is_safe(session.n_people, MaskingPlan(terms.degree, terms.threshold), guards.corrupted):
        raise GuardError.because(ReasonCode.UNSAFE_THRESHOLD, threshold=terms.threshold, degree=terms.degree)
    others = history.rounds - {terms.round}
    if len(others) >= guards.most_rounds:
        raise GuardError.because(ReasonCode.DEVICE_PARTICIPATION_LIMIT, rounds=len(others))
    if others and terms.round - max(others) <= guards.cool_down:
        raise GuardError.because(
            ReasonCode.DEVICE_COOL_DOWN, earlier=max(others), cool_down=guards.cool_down, round=terms.round
        )
    check_people(guards, history, session, range(session.n_people))
    first = _first_stage(history, session)
    if terms.stage == 2:
        if first is None and terms.k_min > 1:
            raise GuardError.because(ReasonCode.UNCOUNTED_ROWS)
        if first is not None and not names_of(session, range(session.n_people)) <= first.people:
            raise GuardError.because(ReasonCode.NEW_PARTICIPANTS)
    check_parts(session, was_counted=first is not None)


def check_parts(session: Session, *, was_counted: bool) -> None:
    """Refuse a stage that holds what belongs into another one.

    The first counts people and nothing else, of all rows. After it the rows that it listed are added, and nobody is
    counted again: the difference would speak of those who dropped out in between. A sum in one stage has no quality.
    """
    stage = session.terms.stage
    for part in session.terms.layout.segments:
        if stage == 1:
            is_right = part.kind is SegmentKind.PEOPLE and part.rows is None
        elif was_counted:
            is_right = part.kind is SegmentKind.NUMBERS and part.rows is not None
        else:
            is_right = part.kind is not SegmentKind.PEOPLE and part.table != QUALITY
        if not is_right:
            kind = part.kind.name.lower()
            raise GuardError.because(ReasonCode.WRONG_STAGE_CONTENT, stage=stage, kind=kind, table=part.table)


def check_people(guards: DevicePolicy, history: ParticipationHistory, session: Session, people: Iterable[int]) -> None:
    """Refuse a set of people that differs from an earlier sum, but too little."""
    names, least = names_of(session, people), guards.differ_by(session.n_people)
    for past in history.sums:
        differ = len(names ^ past.people)
        if past.people and past.round != session.terms.round and 0 < differ < least:
            raise GuardError.because(
                ReasonCode.DEVICE_COHORT_TOO_SIMILAR, earlier=past.round, differ=differ, needed=least
            )


def check_loss(history: ParticipationHistory, session: Session, survivors: Iterable[int]) -> None:
    """Refuse a second stage that has lost more people since the first than its list of rows allows for."""
    first = _first_stage(history, session)
    if session.terms.stage == 2 and first is not None:
        n_lost = len(first.people - names_of(session, survivors))
        if n_lost > session.terms.spare:
            raise GuardError.because(ReasonCode.LOST_BETWEEN_STAGES, lost=n_lost, spare=session.terms.spare)


def _first_stage(history: ParticipationHistory, session: Session) -> PastSum | None:
    found = (past for past in history.sums if past.people and (past.round, past.stage) == (session.terms.round, 1))
    return next(found, None)
