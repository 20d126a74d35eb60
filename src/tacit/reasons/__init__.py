"""Reasons of decided, skipped, abandoned and refused rounds: a stable code, its parameters, and their wording.

Code that decides names a reason code; only this package has sentences. A parameter declares whether it is personal,
that is, about a single user or device. `public()` drops personal parameters. No sentence uses one or names a user.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tacit.languages.sentences import Sentence
from tacit.reasons.codes import PARAMETERS, Parameter, ReasonCode
from tacit.reasons.of_devices import DEVICE_WORDINGS
from tacit.reasons.of_rounds import ROUND_WORDINGS
from tacit.reasons.wording import ANSWER, DEVICE, ROUND, Description, Wording

__all__ = [
    "ANSWER",
    "DEVICE",
    "PARAMETERS",
    "ROUND",
    "WORDINGS",
    "Description",
    "Parameter",
    "ReasonCode",
    "RoundReason",
    "Value",
    "Wording",
    "describe_reason",
]

Value = int | float | str
WORDINGS: Mapping[ReasonCode, Wording] = {**ROUND_WORDINGS, **DEVICE_WORDINGS}


@dataclass(frozen=True)
class RoundReason:
    """The reason for the outcome of a round, or of one message of it."""

    code: ReasonCode
    parameters: Mapping[str, Value] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        wording, given = WORDINGS[self.code], self.parameters.keys()
        if not wording.public <= given <= wording.public.union(wording.personal):
            raise ValueError(
                f"'{self.code}' takes {sorted(wording.public)} and perhaps {sorted(wording.personal)}, "
                f"not {sorted(given)}"
            )

    def public(self) -> RoundReason:
        """Return it without personal parameters."""
        kept = {name: value for name, value in self.parameters.items() if not PARAMETERS[name].is_personal}
        return RoundReason(self.code, kept)

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON, personal parameters included; call `public()` first to drop them."""
        return {"code": str(self.code), "parameters": dict(self.parameters)}

    def to_json(self) -> str:
        """Write it for a journal."""
        return json.dumps(self.as_dict(), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> RoundReason:
        """Read what `to_json` wrote; an unknown code becomes `legacy`, with the text as its parameter.

        >>> RoundReason.from_json('{"code": "thin-sum", "parameters": {"needed": 4, "share": 0.25}}').code
        <ReasonCode.THIN_SUM: 'thin-sum'>
        >>> RoundReason.from_json('{"code": "of tomorrow", "parameters": {}}').code
        <ReasonCode.LEGACY: 'legacy'>
        """
        try:
            stored = json.loads(text)
            return cls(ReasonCode(stored["code"]), dict(stored["parameters"]))
        except (ValueError, KeyError, TypeError):
            return cls(ReasonCode.LEGACY, {"text": text})


def describe_reason(reason: RoundReason) -> Description:
    """Return the sentences of a reason: what happened, what it means, what to do. They name no user.

    >>> describe_reason(RoundReason(ReasonCode.TOO_FEW_ANSWERS, {"answered": 1, "needed": 3})).what
    '1 device answered, and at least 3 must answer (rounds.minimum).'
    """
    wording, parameters = WORDINGS[reason.code], reason.public().parameters
    return Description(*(Sentence(text, **parameters) for text in (wording.what, wording.meaning, wording.remedy)))
