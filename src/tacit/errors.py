"""The tree of errors. Each says what is wrong, what was seen and what to do, and has an exit number of its own.

TacitError                 1   anything below
├── ConfigError            3   an option that does not exist or cannot be
├── DataError              4   input that cannot be read as what it should be
│   ├── DownloadError      5   no network, wrong checksum, no disk
│   └── BadRowsError      16   some rows of a person's file cannot be read; names them
├── MethodError            6   a method cannot work with this data
│   └── DivergedError      7   learning left the finite numbers
├── EvaluationError        8   nothing to evaluate, or a protocol that cannot be kept
├── StorageError           9   a run folder that cannot be written or read
├── WireError             12   a message that is malformed, too large, or meant for others
├── DeviceError           13   a device's file that cannot be opened or written; a wrong passphrase
├── ConsentError          14   something that the person has not allowed
├── FieldError            15   a coordinator or a device that cannot do its part now
└── SecureSumError        20   a secure sum that cannot be made
    ├── MessageError      21   bytes that are no message of the protocol
    ├── OutOfTurnError    22   a message that is late, repeated, or of another round, task or phase
    ├── GuardError        23   a device refuses: too few people, or too like an earlier cohort
    ├── ForgedError       24   a signature, key, tag or share that does not check
    ├── AbortedError      25   too few people remained; nothing was unmasked
    └── RangeError        26   numbers that could overflow the ring

Exit numbers are never reused; 2 is the shell's word for wrong usage and 130 for Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, ClassVar, Self

from tacit.reasons import ReasonCode, RoundReason, Value, describe_reason


class TacitError(Exception):
    """Base of all errors a user can cause or mend; `hint` says what to do.

    Where the fate of a round depends on an error, `reason` says why in a code with parameters. What such an error says
    in words names nobody; who it is about is in the parameters alone.
    """

    exit_code = 1
    usual: ClassVar[ReasonCode | None] = None  # the code where none is given

    def __init__(self, message: str, hint: str = "", reason: RoundReason | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.reason = reason if reason is not None or self.usual is None else RoundReason(self.usual)

    @classmethod
    def because(cls, code: ReasonCode, **parameters: Value) -> Self:
        """Return the error for a reason, in the words of that reason."""
        reason = RoundReason(code, parameters)
        said = describe_reason(reason)
        return cls(f"{said.what} {said.meaning}", said.remedy, reason)

    @property
    def code(self) -> ReasonCode | None:
        """The code of the reason, none where no round depends on it."""
        return None if self.reason is None else self.reason.code

    def public(self) -> dict[str, Any]:
        """Return what a log may hold of it: the reason without what tells of somebody, else the kind of error."""
        return {"error": type(self).__name__} if self.reason is None else {"reason": self.reason.public().as_dict()}

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class ConfigError(TacitError):
    """An option that does not exist, has the wrong type or contradicts another."""

    exit_code = 3


class DataError(TacitError):
    """Input data that cannot be read as what it should be."""

    exit_code = 4


class DownloadError(DataError):
    """A dataset that could not be fetched, checked or stored."""

    exit_code = 5


class BadRowsError(DataError):
    """Some rows of a file cannot be read; `rows` are (line, what stands there, why), and `good` the others' number."""

    exit_code = 16

    def __init__(self, message: str, hint: str, rows: Iterable[tuple[int, str, str]], good: int) -> None:
        super().__init__(message, hint)
        self.rows, self.good = list(rows), good


class MethodError(TacitError):
    """A method that cannot work with this data or these options."""

    exit_code = 6


class DivergedError(MethodError):
    """Learning produced NaN or exploding numbers and was stopped."""

    exit_code = 7
    usual = ReasonCode.DIVERGED


class EvaluationError(TacitError):
    """Nothing to evaluate, or a protocol that cannot be kept."""

    exit_code = 8


class StorageError(TacitError):
    """A run folder that cannot be written or read."""

    exit_code = 9


class WireError(TacitError):
    """A message that is malformed, too large, or meant for another round, federation or catalogue."""

    exit_code = 12
    usual = ReasonCode.MALFORMED_MESSAGE


class DeviceError(TacitError):
    """A device's file that cannot be opened or written, or a wrong passphrase."""

    exit_code = 13


class ConsentError(TacitError):
    """Something that the person whose device it is has not allowed."""

    exit_code = 14


class FieldError(TacitError):
    """A coordinator or a device that cannot do its part now: unreachable, not enrolled, port taken."""

    exit_code = 15


class SecureSumError(TacitError):
    """A secure sum that cannot be made, or a message of one that is refused. Nothing has changed."""

    exit_code = 20
    usual = ReasonCode.SECURE_AGGREGATION_FAILED


class MessageError(SecureSumError):
    """Bytes that are no message of the protocol: wrong version, kind, length or content."""

    exit_code = 21
    usual = ReasonCode.MALFORMED_MESSAGE


class OutOfTurnError(SecureSumError):
    """A message that is late, repeated, or belongs to another round, task or phase."""

    exit_code = 22
    usual = ReasonCode.OUT_OF_TURN


class GuardError(SecureSumError):
    """A device refuses to take part: too few people, too like an earlier cohort, too soon, or not drawn."""

    exit_code = 23


class ForgedError(SecureSumError):
    """A signature, key, tag or share that does not check; `reason` holds the position of its sender, if it has one."""

    exit_code = 24


class AbortedError(SecureSumError):
    """Too few people remained: the round is over, and nothing of it was unmasked."""

    exit_code = 25


class RangeError(SecureSumError):
    """Numbers, or options, with which a sum could leave the ring."""

    exit_code = 26


def nearest(word: str, known: Iterable[str]) -> str:
    """Return "Did you mean 'x'?" with the closest known word, or the list of all of them."""
    names = sorted(known)
    close = get_close_matches(word, names, n=1, cutoff=0.6)
    return f"Did you mean '{close[0]}'?" if close else f"Known: {', '.join(names)}."
