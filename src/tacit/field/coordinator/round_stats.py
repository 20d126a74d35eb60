"""How a round went: what each of its phases was asked, what came back and how long it took; and what it was worth.

Counts only. Whose answer was lost in which phase is known while the round runs and is not written down; who was in the
sum of which stage is (see the journal).
"""

from __future__ import annotations

from dataclasses import dataclass

WAITING, ANSWERS, APPLYING = "waiting", "answers", "applying"  # phases of any round; a secure sum has its own


@dataclass(frozen=True)
class PhaseCounts:
    """One phase of a round: of a secure sum in stage 1 or 2, of anything else in stage 0."""

    stage: int
    name: str
    asked: int = 0
    answered: int = 0
    refused: int = 0
    called_off: int = 0  # not waited for: enough others had answered
    bytes_up: int = 0
    bytes_down: int = 0
    seconds: float = 0.0

    @property
    def lost(self) -> int:
        """How many gave no answer in time."""
        return max(0, self.asked - self.answered - self.refused - self.called_off)


@dataclass(frozen=True)
class SummedQuality:
    """For how many users the newest thing they did stood among the best of the list they would have been shown.

    Both numbers are read from a secure sum; there is none of a single user.
    """

    hits: int
    people: int


@dataclass(frozen=True)
class RoundStats:
    """The phases of a round in their order, and the quality that was summed in it, if any was."""

    phases: tuple[PhaseCounts, ...] = ()
    quality: SummedQuality | None = None
