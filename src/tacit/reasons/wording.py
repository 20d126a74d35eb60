"""The wording of a reason: templates, and the sentences that several of them share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from string import Formatter
from typing import NamedTuple


class Description(NamedTuple):
    """A reason in words: what happened, what it means, what to do."""

    what: str
    meaning: str
    remedy: str

    def __str__(self) -> str:
        return " ".join(self)


ROUND, ANSWER, DEVICE = "a round", "one answer", "a device"
"""What a reason is about: the outcome of a round, one answer that the coordinator refused, what a device refused."""


@dataclass(frozen=True)
class Wording:
    """The templates of one code, what it is about, and which personal parameters it may carry beside theirs."""

    about: tuple[str, ...]
    what: str
    meaning: str
    remedy: str
    personal: tuple[str, ...] = ()

    @cached_property
    def public(self) -> frozenset[str]:
        """The parameters that the templates use."""
        parts = (part for template in (self.what, self.meaning, self.remedy) for part in Formatter().parse(template))
        return frozenset(name for _, name, _, _ in parts if name)


NOTHING = "There is nothing to do."
DROPPED = "The answer was dropped, and the round went on without it."
SUSPECT = "If this happens often, a device runs another version, is faulty or is an adversary."
NOT_UNMASKED = "Nothing was unmasked, and the model is unchanged."
LONGER = "Give devices longer (rounds.deadline), or ask more of them (rounds.over_selection)."
MORE = "Enrol more devices, or reconnect those that are offline."
NO_SUM = "A secure aggregation is not possible now."
NO_PART = "The device takes no part in this sum."
DISTRUST = "The server is faulty or dishonest. If this happens again, leave the federation: tacit device leave."
ASK_OPERATOR = "If this happens again, ask the operator of the federation."
