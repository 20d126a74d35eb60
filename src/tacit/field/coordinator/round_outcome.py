"""The outcome of a round, readable or masked: sums, whose answers are in them, and which devices get a strike."""

from __future__ import annotations

from dataclasses import dataclass, field

from tacit.errors import TacitError
from tacit.field.coordinator.round_stats import PhaseCounts, SummedQuality
from tacit.reasons import ReasonCode, RoundReason
from tacit.updates import Message, Total


@dataclass
class RoundOutcome:
    """What came of a round: sums, and whose answers are in them."""

    totals: list[Total] = field(default_factory=list)  # none: the round is abandoned
    counted: list[int] = field(default_factory=list)
    reason: RoundReason | None = None  # why nothing came of it
    absent: set[int] = field(default_factory=set)  # devices that did not answer in some phase of a secure sum
    refused: int = 0
    called_off: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    phases: list[PhaseCounts] = field(default_factory=list)
    unjoined: list[int] = field(default_factory=list)  # devices that did not even join the secure sum
    joined: set[int] = field(default_factory=set)  # devices that sent anything, whatever became of it
    quality: SummedQuality | None = None
    answers: dict[int, Message] = field(default_factory=dict)  # by device; none under masks
    strikes: dict[int, ReasonCode] = field(default_factory=dict)  # devices that sent what no honest device sends


STRIKES = frozenset(
    {
        ReasonCode.MALFORMED_MESSAGE,
        ReasonCode.BAD_SIGNATURE,
        ReasonCode.BAD_KEY,
        ReasonCode.BAD_TAG,
        ReasonCode.REPEATED_KEY,
        ReasonCode.WRONG_RECIPIENTS,
        ReasonCode.BROKEN_COMMITMENT,
        ReasonCode.UNREQUESTED_SHARE,
        ReasonCode.BAD_SHARE,
        ReasonCode.BAD_CONFIRMATION,
    }
)
"""Refusals that no late, lost or repeated message of an honest device causes."""


def note_strike(outcome: RoundOutcome, device: int, error: TacitError) -> None:
    """Note a refusal as a strike against the device, if an honest one cannot have caused it."""
    if error.code in STRIKES:
        outcome.strikes[device] = error.code
