"""The status that devices get when they poll: what the coordinator does, how many devices are here and missing."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

from tacit.languages import translate

HEADER = "x-tacit-status"
MOST_BYTES, MOST = 200, 10**9
CoordinatorPhase = Literal["waiting", "round", "pause", "finished"]
PHASES: tuple[CoordinatorPhase, ...] = ("waiting", "round", "pause", "finished")


@dataclass(frozen=True)
class CoordinatorStatus:
    """What a coordinator does now, how many devices are connected, and how many a round needs."""

    phase: CoordinatorPhase
    here: int = 0
    needed: int = 0
    seconds: int = 0  # until the next round, in a pause
    new_here: int = 0  # connected devices that are in no batch
    new_needed: int = 0  # how many of them a new batch takes; 0 where there are no batches yet, or none at all

    @property
    def missing(self) -> int:
        """How many devices more must connect."""
        return max(0, self.needed - self.here)

    @property
    def new_missing(self) -> int:
        """How many devices without a batch must connect before a new batch is made."""
        return max(0, self.new_needed - self.new_here)

    def write(self) -> str:
        """Write it as one line."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def read(cls, line: str) -> CoordinatorStatus | None:
        """Read it from one line; none if that is something else."""
        try:
            given = json.loads(line) if len(line) <= MOST_BYTES else {}
            numbers = [given[name] for name in ("here", "needed", "seconds")]
            numbers += [given.get(name, 0) for name in ("new_here", "new_needed")]  # earlier coordinators lack them
            is_right = all(type(number) is int and 0 <= number <= MOST for number in numbers)
            return cls(given["phase"], *numbers) if is_right and given["phase"] in PHASES else None
        except (ValueError, KeyError, TypeError, RecursionError):
            return None

    def describe(self) -> str:
        """Return it as a sentence for a user."""
        if self.phase == "waiting":
            return f"{self.here} of {self.needed} devices are connected; the next round waits for {self.missing} more."
        if self.phase == "pause":
            return (
                f"The next round begins in {describe_duration(self.seconds)}, if {self.needed} devices are connected."
            )
        if self.phase == "finished":
            return "All rounds are done."
        return "A round is running."


def describe_duration(seconds: float) -> str:
    """Return a duration in words, as exactly as it matters."""
    for size, text in ((86_400, "{n} days"), (3600, "{n} hours"), (60, "{n} minutes")):
        if seconds >= 1.5 * size:
            return translate(text, n=f"{seconds / size:.0f}")
    return translate("{n} seconds", n=f"{seconds:.0f}")
