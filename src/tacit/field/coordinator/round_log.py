"""The rounds in a coordinator's journal: what happened in each, in counts, and how long it took.

Why a round ended as it did is a code with counts. Nothing here reveals what a single device sent.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tacit.field.coordinator.journal_file import JournalFile
from tacit.field.coordinator.round_stats import PhaseCounts, RoundStats, SummedQuality
from tacit.reasons import ReasonCode, RoundReason

ROLLED_BACK = "rolled back"
ENDED = "ended"  # name of a fact: when the last round ended


@dataclass(frozen=True)
class RoundRecord:
    """What happened in a round, in counts."""

    number: int
    state: str  # finished, abandoned, skipped (no device was asked), or rolled back
    asked: int
    answered: int
    refused: int
    lost: int
    bytes_up: int
    bytes_down: int
    seconds: float
    called_off: int = 0  # not waited for: enough others had answered
    masked: int = 0  # 1: answers could be read as a sum only
    reason: RoundReason | None = None  # why it was masked or not, skipped or abandoned; none in old journals

    def public(self) -> dict[str, Any]:
        """Return it for logs and programs, without what is about a single device."""
        return vars(self) | {"reason": None if self.reason is None else self.reason.public().as_dict()}


class RoundLog:
    """The rounds in an open journal."""

    def __init__(self, file: JournalFile) -> None:
        self._file = file

    def records(self) -> list[RoundRecord]:
        """Return what happened, round by round."""
        found = self._file.read("SELECT * FROM rounds ORDER BY number")
        return [RoundRecord(*(*counts, _reason(stored))) for *counts, stored in found]

    @property
    def next_number(self) -> int:
        """The number of the round that comes next."""
        return self._file.read_number("SELECT coalesce(max(number) + 1, 0) FROM rounds")

    def stats(self, since: int = 0, until: int = 2**31) -> dict[int, RoundStats]:
        """Return how rounds went, from one to another; rounds of which that was not written down are left out."""
        phases: dict[int, list[PhaseCounts]] = {}
        which = "WHERE round BETWEEN ? AND ? ORDER BY round"
        for number, _, *values in self._file.read(f"SELECT * FROM phases {which}, place", (since, until)):
            phases.setdefault(number, []).append(PhaseCounts(*values))
        rated = self._file.read(f"SELECT * FROM quality {which}", (since, until))
        quality = {number: SummedQuality(hits, people) for number, hits, people in rated}
        return {
            number: RoundStats(tuple(phases.get(number, ())), quality.get(number)) for number in {*phases, *quality}
        }

    def phase_sums(self) -> list[PhaseCounts]:
        """Return each phase summed over all rounds."""
        columns = ("asked", "answered", "refused", "called_off", "bytes_up", "bytes_down", "seconds")
        sums = ", ".join(f"sum({name})" for name in columns)
        found = self._file.read(f"SELECT stage, name, {sums} FROM phases GROUP BY stage, name ORDER BY min(place)")
        return [PhaseCounts(*row) for row in found]

    def quality(self, last: int | None = None) -> SummedQuality:
        """Return the quality summed over all rounds, or the last that have one; with no users where none has."""
        rated = "SELECT hits, people FROM quality ORDER BY round DESC LIMIT ?"
        summed = f"SELECT coalesce(sum(hits), 0), coalesce(sum(people), 0) FROM ({rated})"
        ((hits, people),) = self._file.read(summed, (-1 if last is None else last,))
        return SummedQuality(hits, people)

    def abandon(self, happened: RoundRecord, course: RoundStats | None = None) -> None:
        """Close a round in which nothing was added: too few answered, or none was asked."""
        with self._file.transaction():
            self.add(happened, course)

    def add(self, happened: RoundRecord, course: RoundStats | None = None) -> None:
        """Write a round down, inside a transaction."""
        reason = "" if happened.reason is None else happened.reason.public().to_json()
        self._file.insert("rounds", tuple((vars(happened) | {"reason": reason}).values()))
        for place, phase in enumerate(() if course is None else course.phases):
            self._file.insert("phases", (happened.number, place, *asdict(phase).values()))
        if course is not None and course.quality is not None:
            self._file.insert("quality", (happened.number, *asdict(course.quality).values()))

    def skip(self, count: int) -> None:
        """Leave out so many numbers of rounds: after a restore, devices may have answered rounds with these."""
        number = self.next_number + count - 1
        self.abandon(RoundRecord(number, "skipped", 0, 0, 0, 0, 0, 0, 0.0, reason=RoundReason(ReasonCode.RESTORED)))

    @property
    def last_time(self) -> int:
        """When the last round ended, in unix seconds; 0 if that is not known."""
        return self._file.number(ENDED, 0)

    def note_time(self, now: int) -> None:
        """Note that a round ended now, in unix seconds."""
        with self._file.transaction():
            self._file.keep_fact(ENDED, now)


def _reason(stored: str) -> RoundReason | None:
    return RoundReason.from_json(stored) if stored else None
