"""What the sums of a federation have spent of its devices' privacy budgets, as far as a coordinator knows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tacit.errors import PrivacyError
from tacit.privacy.accounting import PrivacyEvent, account
from tacit.reasons import ReasonCode

LACK_OF_NOISE = ReasonCode.TOO_MANY_DROPOUTS  # of a round with a guarantee: a sum needs as many as its noise does


@dataclass(frozen=True)
class NoisySum:
    """A sum whose vectors were asked for: the share of their budgets that its devices spent, and what they released."""

    round: int
    share: float
    event: PrivacyEvent


def find_epsilon(sums: Sequence[NoisySum], delta: float, until: int | None = None) -> float:
    """Return what all sums, or those until a round, reveal about a device that was in each of them."""
    events = [one.event for one in sums if until is None or one.round <= until]
    try:
        return account(events, delta).epsilon_server
    except PrivacyError:
        return math.inf
