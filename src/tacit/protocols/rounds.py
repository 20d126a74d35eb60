"""What may go wrong in a round, and what is done about it: who answers, and when a round is given up.

A device that was asked and drops out is as it was before the round: what it learnt is lost with its answer. A round
that too few answer is abandoned: nothing is added and no model moves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tacit.methods.base import Schedule
from tacit.protocols.criteria import CriteriaConfig
from tacit.protocols.robust import RobustConfig
from tacit.protocols.selection import select_clients
from tacit.random import Key
from tacit.types import Config


class RoundsConfig(Config):
    """How rounds tolerate dropouts and adversaries."""

    dropout: float = Field(0.0, ge=0, lt=1, description="share of asked clients that drop out, drawn in each round")
    over_selection: float = Field(
        0.0,
        ge=0,
        le=4,
        description="clients asked beyond those wanted, as a share; the round ends when enough have answered",
    )
    minimum: int = Field(1, ge=1, description="least number of answers; with fewer, the round is abandoned")
    robust: RobustConfig | None = Field(
        None, description="robust aggregation rule over the sums of groups; none: the plain sum"
    )
    criteria: CriteriaConfig | None = Field(None, description="weights of clients, by criteria in order of priority")

    @property
    def is_failure_free(self) -> bool:
        """Whether all asked clients answer, and their messages are just added."""
        plain = self.robust is None and self.criteria is None
        return not self.dropout and not self.over_selection and plain and self.minimum == 1


@dataclass(frozen=True)
class Attendance:
    """Who was asked in a round and whose answer counts: positions in the cohort, ascending."""

    asked: NDArray[np.int64]
    answered: NDArray[np.int64]


def draw_attendance(
    schedule: Schedule,
    config: RoundsConfig,
    key: Key,
    number: int,
    n_clients: int,
    members: NDArray[np.int64] | None = None,
) -> Attendance:
    """Draw who is asked and who answers in round `number`; with too many answers the first ones count.

    `members` are asked instead of those whom the schedule would ask, where tickets have drawn them.
    """
    if members is None:
        members = select_clients(schedule, key.child("choose"), number, n_clients)
    if not config.dropout and not config.over_selection:
        return Attendance(members, np.sort(members))
    wanted = len(members)
    spare = min(int(np.ceil(wanted * config.over_selection)), n_clients - wanted)
    if spare > 0:
        others = np.setdiff1d(np.arange(n_clients), members, assume_unique=True)
        draws = key.child("spare", number).uniform(others, 1)[:, 0]
        members = np.sort(np.concatenate([members, others[np.argsort(draws, kind="stable")[:spare]]]))
    chance = key.child("answer", number).uniform(members, 2)
    there = chance[:, 0] >= config.dropout
    order = np.argsort(np.where(there, chance[:, 1], np.inf), kind="stable")
    first = order[: min(wanted, int(there.sum()))]
    return Attendance(members, np.sort(members[first]))


def is_abandoned(attendance: Attendance, config: RoundsConfig) -> bool:
    """Say whether too few answered."""
    return len(attendance.answered) < max(1, config.minimum)
