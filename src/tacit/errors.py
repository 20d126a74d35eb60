"""The tree of errors. Each says what is wrong, where, and what to do, and has an exit number of its own.

TacitError                 1   anything below
├── ConfigError            3   an option that does not exist or has a value that is not allowed
├── DataError              4   input that cannot be read
│   ├── DownloadError      5   no network, wrong checksum, no disk
│   └── BadRowsError      16   some rows of a user's file cannot be read; names them
├── MethodError            6   a method cannot work with this data
│   └── DivergedError      7   learning diverged
├── EvaluationError        8   nothing to evaluate, or evaluations that do not match
├── StorageError           9   a run folder that cannot be written or read
├── WireError             12   a message that is malformed, too large, or meant for others
├── DeviceError           13   a device's file that cannot be opened or written; a wrong passphrase
├── ConsentError          14   something that the user has not allowed
├── FieldError            15   a coordinator or a device that cannot take part now
├── PrivacyError          17   a guarantee of differential privacy that cannot be given or computed
├── EngineError           18   workers of a simulation that cannot be reached, do not fit or died too often
└── SecureSumError        20   a secure aggregation that failed
    ├── MessageError      21   bytes that are not a message of the protocol
    ├── OutOfTurnError    22   a message that is late, repeated, or of another round, task or phase
    ├── DevicePolicyError 23   a device refuses: too few participants, or a cohort too similar to an earlier one
    ├── ForgedError       24   a signature, key, tag or share that fails its check
    ├── AbortedError      25   too few participants remained; nothing was unmasked
    └── RangeError        26   numbers that could overflow the ring

Exit numbers are never reused. In a shell, 2 means wrong usage and 130 means Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, ClassVar, Self

from tacit.languages.sentences import join_sentences
from tacit.reasons import ReasonCode, RoundReason, Value, describe_reason


class TacitError(Exception):
    """Base of all errors that a user can cause or fix; `hint` says what to do.

    If an error decides the outcome of a round, `reason` has a code with parameters. The text of such an error names
    no user and no device; only the parameters do.
    """

    exit_code = 1
    usual: ClassVar[ReasonCode | None] = None  # the code if none is given

    def __init__(self, message: str, hint: str = "", reason: RoundReason | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.reason = reason if reason is not None or self.usual is None else RoundReason(self.usual)

    @classmethod
    def because(cls, code: ReasonCode, **parameters: Value) -> Self:
        """Return the error for a reason, with its wording."""
        reason = RoundReason(code, parameters)
        description = describe_reason(reason)
        return cls(join_sentences(description.what, description.meaning), description.remedy, reason)

    @property
    def code(self) -> ReasonCode | None:
        """The code of the reason; none if the error decides no round."""
        return None if self.reason is None else self.reason.code

    def public(self) -> dict[str, Any]:
        """Return what a log may hold: the reason without personal parameters, or else the kind of error."""
        return {"error": type(self).__name__} if self.reason is None else {"reason": self.reason.public().as_dict()}

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class ConfigError(TacitError):
    """An option that does not exist, has the wrong type or contradicts another."""

    exit_code = 3


class DataError(TacitError):
    """Input data that cannot be read."""

    exit_code = 4


class DownloadError(DataError):
    """A dataset that could not be fetched, checked or stored."""

    exit_code = 5


class BadRowsError(DataError):
    """Some rows of a file cannot be read; `rows` are (line, its text, why), and `good` counts the other rows."""

    exit_code = 16

    def __init__(self, message: str, hint: str, rows: Iterable[tuple[int, str, str]], good: int) -> None:
        super().__init__(message, hint)
        self.rows, self.good = list(rows), good


class MethodError(TacitError):
    """A method that cannot work with this data or these options."""

    exit_code = 6


class DivergedError(MethodError):
    """Learning diverged: it produced NaN or numbers that are too large, and was stopped."""

    exit_code = 7
    usual = ReasonCode.DIVERGED


class EvaluationError(TacitError):
    """Nothing to evaluate, or evaluations that do not match."""

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
    """Something that the user of this device has not allowed."""

    exit_code = 14


class FieldError(TacitError):
    """A coordinator or a device that cannot take part now: unreachable, not enrolled, port taken."""

    exit_code = 15


class PrivacyError(TacitError):
    """A guarantee of differential privacy that cannot be given or computed: a wrong parameter, an unknown event."""

    exit_code = 17


class EngineError(TacitError):
    """Workers of a simulation that cannot be reached, have other versions, or died too often."""

    exit_code = 18


class SecureSumError(TacitError):
    """A secure aggregation that failed, or a message of one that was refused. Nothing has changed."""

    exit_code = 20
    usual = ReasonCode.SECURE_AGGREGATION_FAILED


class MessageError(SecureSumError):
    """Bytes that are not a message of the protocol: wrong version, kind, length or content."""

    exit_code = 21
    usual = ReasonCode.MALFORMED_MESSAGE


class OutOfTurnError(SecureSumError):
    """A message that is late, repeated, or belongs to another round, task or phase."""

    exit_code = 22
    usual = ReasonCode.OUT_OF_TURN


class DevicePolicyError(SecureSumError):
    """A device refuses to take part: too few participants, a cohort too similar, cool-down, or not drawn."""

    exit_code = 23


class ForgedError(SecureSumError):
    """A signature, key, tag or share that fails its check; `reason` holds the sender's position, if it has one."""

    exit_code = 24


class AbortedError(SecureSumError):
    """Too few participants remained: the round is over, and nothing of it was unmasked."""

    exit_code = 25


class RangeError(SecureSumError):
    """Numbers, or options, with which a sum could overflow the ring."""

    exit_code = 26


def nearest(word: str, known: Iterable[str]) -> str:
    """Return "Did you mean 'x'?" with the closest known word, or the list of all of them."""
    names = sorted(known)
    close = get_close_matches(word, names, n=1, cutoff=0.6)
    return f"Did you mean '{close[0]}'?" if close else f"Known: {', '.join(names)}."


def missing_extra(what: str, extra: str) -> ConfigError:
    """Return the error for something that needs a package which is not installed."""
    return ConfigError(f"{what} needs packages that are not installed.", f"Install them: pip install 'tacit[{extra}]'.")
