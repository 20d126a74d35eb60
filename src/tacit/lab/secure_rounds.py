"""Secure sums in a simulation: `exact` leaves out the masks, which change no number, `protocol` makes every message.

Both give the same bits: the same participants are lost in the same phases, the same rows are listed, and the same
rounds are called off. A law holds them together.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tacit.errors import AbortedError, ConfigError
from tacit.lab.lottery import ParticipantLottery
from tacit.methods.base import Schedule
from tacit.protocols.rounds import RoundsConfig
from tacit.protocols.secure_aggregation.context import Terms
from tacit.protocols.secure_aggregation.device import SecureDevice
from tacit.protocols.secure_aggregation.device_policy import DevicePolicy
from tacit.protocols.secure_aggregation.encoding import (
    decode_counts,
    decode_sum,
    encode_message,
)
from tacit.protocols.secure_aggregation.graph import NeighbourGraph, plan_masking
from tacit.protocols.secure_aggregation.identity import Identity
from tacit.protocols.secure_aggregation.local_session import SessionOutcome, can_finish, run_session
from tacit.protocols.secure_aggregation.masks import Vector
from tacit.protocols.secure_aggregation.message_sizes import count_session_bytes
from tacit.protocols.secure_aggregation.server import ServerPhase
from tacit.protocols.secure_aggregation.two_stage import (
    RoundContext,
    RowCounts,
    SecureAggregationConfig,
    drop_rare_rows,
    list_rows,
    read_second_stage,
)
from tacit.random import Key
from tacit.reasons import ReasonCode
from tacit.types import Array
from tacit.updates import Message, Ring, Total

TASK = "simulation"
_EARLY = (
    ServerPhase.ADVERTS,
    ServerPhase.SHARES,
    ServerPhase.VECTORS,
)  # whoever leaves in one of them is not in the sum
_LATE = (ServerPhase.CONFIRMATIONS, ServerPhase.UNMASKINGS)


class SecureRoundsConfig(SecureAggregationConfig):
    """Whether and how sums hide what each participant sends."""

    mode: Literal["exact", "protocol"] = Field(
        "exact", description="only the sum, without masks, or every message of the protocol; both give the same bits"
    )
    draw: bool = Field(
        False,
        description="participant lottery: tickets draw clients_per_round on average, and every device verifies it",
    )
    coordinators: int = Field(
        1, ge=1, le=100_000, description="secure sums of a round, each of a coordinator's own clients; their totals add"
    )

    def assign(self, positions: NDArray[np.int64], n_clients: int) -> list[NDArray[np.int64]]:
        """Return the clients of each coordinator that has any in a round; a client stays with its coordinator."""
        owner = positions * self.coordinators // n_clients
        return [positions[owner == one] for one in np.unique(owner)]


@dataclass(frozen=True)
class DropoutPlan:
    """Who is asked in a round and what becomes of them, by position in all of the clients."""

    summed: NDArray[np.int64]  # whose vectors are in the sum
    between: NDArray[np.int64]  # who are counted, and lost before the second stage
    leaves: Mapping[int, tuple[int, ServerPhase]]  # whoever stops answering: in which stage and phase
    is_counted: bool  # in a stage of its own, the first

    @classmethod
    def draw(
        cls,
        config: SecureAggregationConfig,
        asked: NDArray[np.int64],
        answered: NDArray[np.int64],
        dropout: float,
        key: Key,
    ) -> DropoutPlan:
        """Draw the phase in which clients without a counted answer drop out, and who drops out after a counted one."""
        leaves: dict[int, tuple[int, ServerPhase]] = {}
        lost = np.setdiff1d(asked, answered, assume_unique=True)
        chance = key.child("phase").uniform(lost, 2)
        stages = np.where(chance[:, 0] < 0.5, 1, 2) if config.two_stage else np.full(len(lost), 2)
        for participant, stage, draw in zip(lost.tolist(), stages.tolist(), chance[:, 1], strict=True):
            leaves[participant] = stage, _EARLY[int(draw * len(_EARLY))]
        chance = key.child("late").uniform(answered, 2)
        for participant, draw in zip(answered.tolist(), chance, strict=True):
            if draw[0] < dropout:
                leaves[participant] = 2, _LATE[int(draw[1] * len(_LATE))]
        return cls(answered, lost[stages == 2] if config.two_stage else lost[:0], leaves, config.two_stage)

    def without(self, withheld: NDArray[np.int64]) -> DropoutPlan:
        """Return the same for participants some of whom have nothing that fits to send."""
        leaves = {
            **self.leaves,
            **{int(participant): (1 if self.is_counted else 2, ServerPhase.VECTORS) for participant in withheld},
        }
        rest = [
            np.setdiff1d(participants, withheld, assume_unique=True) for participants in (self.summed, self.between)
        ]
        return DropoutPlan(rest[0], rest[1], leaves, self.is_counted)

    @property
    def invited(self) -> NDArray[np.int64]:
        """All who were asked, ascending."""
        return np.union1d(self.summed, np.array(list(self.leaves), np.int64))


@dataclass
class PendingMessages:
    """What some participants would send: in which message each participant's rows stand, and where in it."""

    by_client: dict[int, tuple[Message, int]] = field(default_factory=dict)

    def add(self, positions: Array, message: Message) -> None:
        """Store a message of the participants at some positions, in its order."""
        self.by_client.update({int(participant): (message, at) for at, participant in enumerate(positions)})


@dataclass(frozen=True)
class SecureSumOutcome:
    """The sum of a round, and what each participant sent and received for it."""

    total: Total
    up: Mapping[int, int]  # bytes
    down: Mapping[int, int]


class SecureSums:
    """Makes the secure sums of one simulation."""

    def __init__(
        self,
        config: SecureRoundsConfig,
        ring: Ring,
        dropout: float,
        n_asked: int,
        lottery: ParticipantLottery | None = None,
    ) -> None:
        """Refuse, before a key is made, rounds that ask too few participants for these options."""
        if n_asked < config.n_min:
            raise ConfigError(
                f"Each round asks {n_asked} clients, fewer than the {config.n_min} that a masked round must have.",
                "Raise method.clients_per_round, or lower runtime.secure.n_min.",
            )
        plan_masking(n_asked, config.corrupted, config.dropped)
        self.config, self.ring, self.dropout, self.lottery = config, ring, dropout, lottery

    @classmethod
    def of(
        cls, config: SecureRoundsConfig, ring: Ring, rules: RoundsConfig, schedule: Schedule, n_clients: int, key: Key
    ) -> SecureSums:
        """Return those of a simulation, with a lottery where participants are drawn by one."""
        lottery, wanted = None, schedule.clients_per_round // config.coordinators
        if config.coordinators > 1 and (config.draw or rules.robust is not None):
            raise ConfigError(
                "Several coordinators allow neither the participant lottery nor groups of robust rules.",
                "Remove runtime.secure.coordinators, or runtime.secure.draw and runtime.rounds.robust.",
            )
        if config.draw:
            if rules.over_selection:
                raise ConfigError(
                    "The participant lottery allows no over-selection (runtime.rounds.over_selection).",
                    "Set it to 0, and raise method.clients_per_round instead.",
                )
            if rules.robust is not None:
                raise ConfigError(
                    "The participant lottery allows no groups, which robust rules need (runtime.rounds.robust).",
                    "Remove runtime.rounds.robust or runtime.secure.draw.",
                )
            lottery = ParticipantLottery(key.child("lots"), n_clients, schedule.rounds, min(1.0, wanted / n_clients))
        return cls(config, ring, rules.dropout, wanted, lottery)

    def exact(self, total: Total, participants: RowCounts | None, dropouts: DropoutPlan) -> SecureSumOutcome:
        """Return what the protocol would show of a plain sum; `participants` are counted over `between` too."""
        secure_config, shapes = self.config, {name: array.shape for name, array in total.sums.items()}
        invited, second = dropouts.invited, np.union1d(dropouts.summed, dropouts.between)
        here, n_invited = RoundContext(TASK, 0, bytes(32), bytes(32)), len(invited)
        self._refuse_if_few(invited)
        if participants is None:
            sessions = [(invited, here.adding_all(shapes, self.ring, n_invited, secure_config))]
        else:
            spare = self._spare(dropouts, n_invited)
            rows = list_rows(participants, secure_config.k_min + spare)
            sessions = [(invited, here.counting(shapes, n_invited, secure_config))]
            if any(map(len, rows.values())):
                self._refuse_if_few(second)
                sessions.append((second, here.adding(shapes, self.ring, len(second), secure_config, rows, spare)))
            total = drop_rare_rows(total, participants, secure_config.k_min + spare)
        up, down = dict.fromkeys(invited.tolist(), 0), dict.fromkeys(invited.tolist(), 0)
        for cohort, terms in sessions:
            self._refuse_if_stuck(cohort, terms.stage, dropouts)
            leaves = self._leaves(cohort.tolist(), terms.stage, dropouts)
            counted = count_session_bytes(terms, len(cohort), leaves, self.lottery is not None)
            for at, participant in enumerate(cohort.tolist()):
                sent, received = counted.of(leaves.get(at, ServerPhase.DONE))
                up[participant] += sent
                down[participant] += received
        return SecureSumOutcome(total, up, down)

    def protocol(
        self,
        pending: PendingMessages,
        shared: Mapping[str, Array],
        shapes: Mapping[str, tuple[int, ...]],
        dropouts: DropoutPlan,
        number: int,
    ) -> SecureSumOutcome:
        """Run the sum with all its messages, masks, losses and recoveries."""
        secure_config = self.config
        device_policy = DevicePolicy(
            n_min=secure_config.n_min,
            k_min=secure_config.behind_rows,
            corrupted=secure_config.corrupted,
            d_min=0,
            cool_down=0,
            most_cohorts=None,
        )
        invited = dropouts.invited.tolist()
        self._refuse_if_few(invited)
        devices, beacon = self._devices(invited, device_policy, number)
        digest = hashlib.sha256(b"".join(np.ascontiguousarray(shared[name]).tobytes() for name in sorted(shared)))
        here = RoundContext(TASK, number, digest.digest(), beacon)
        up, down = dict.fromkeys(invited, 0), dict.fromkeys(invited, 0)

        def run(terms: Terms, cohort: list[int]) -> SessionOutcome:
            def give(at: int) -> Vector:
                message, client = pending.by_client[cohort[at]]
                return encode_message(message, terms.layout, client)

            drawn = None if self.lottery is None else self.lottery.prove_draw(cohort, number)
            leaves = self._leaves(cohort, terms.stage, dropouts)
            done = run_session(terms, [devices[participant] for participant in cohort], give, leaves, drawn)
            for at, participant in enumerate(cohort):
                up[participant] += done.sent[at]
                down[participant] += done.received[at]
            return done

        if not secure_config.two_stage:
            terms = here.adding_all(shapes, self.ring, len(invited), secure_config)
            done = run(terms, invited)
            return SecureSumOutcome(decode_sum(done.total, terms.layout, shapes, len(done.survivors)), up, down)
        counting = here.counting(shapes, len(invited), secure_config)
        counted = run(counting, invited)
        participants, spare = decode_counts(counted.total, counting.layout), self._spare(dropouts, len(invited))
        rows = list_rows(participants, secure_config.k_min + spare)
        if not any(map(len, rows.values())):
            nothing = Total.zero(shapes)
            return SecureSumOutcome(Total(nothing.sums, nothing.counts, len(dropouts.summed)), up, down)
        second = [invited[at] for at in counted.finished]
        self._refuse_if_few(second)
        adding = here.adding(shapes, self.ring, len(second), secure_config, rows, spare)
        done = run(adding, second)
        return SecureSumOutcome(
            read_second_stage(done.total, adding.layout, shapes, participants, len(done.survivors)), up, down
        )

    def _devices(
        self, participants: Sequence[int], device_policy: DevicePolicy, number: int
    ) -> tuple[dict[int, SecureDevice], bytes]:
        """Return the devices of a round and its beacon; with a lottery, devices that know who has enrolled."""
        if self.lottery is None:
            return {
                participant: SecureDevice(Identity.fresh(), device_policy) for participant in participants
            }, secrets.token_bytes(32)
        lottery, directory = self.lottery, self.lottery.directory(TASK, number)
        found = {
            participant: SecureDevice(lottery.identities[participant], device_policy, directory=directory)
            for participant in participants
        }
        return found, lottery.beacon(number)

    def _spare(self, dropouts: DropoutPlan, n_participants: int) -> int:
        spare = self.config.spare_for(n_participants, self.dropout)
        if len(dropouts.between) > spare:
            raise AbortedError.because(ReasonCode.LOST_BETWEEN_STAGES, lost=len(dropouts.between), spare=spare)
        return spare

    def _leaves(self, cohort: Sequence[int], stage: int, dropouts: DropoutPlan) -> dict[int, ServerPhase]:
        """Return who of a cohort leaves in a stage, by place in it."""
        found = {}
        for at, participant in enumerate(cohort):
            when, phase = dropouts.leaves.get(participant, (0, ServerPhase.DONE))
            if when == stage:
                found[at] = phase
        return found

    def _refuse_if_stuck(self, cohort: NDArray[np.int64], stage: int, dropouts: DropoutPlan) -> None:
        secure_config = self.config
        chosen = plan_masking(len(cohort), secure_config.corrupted, secure_config.dropped)
        graph = NeighbourGraph(len(cohort), chosen.degree, bytes(32))
        leaves = self._leaves(cohort.tolist(), stage, dropouts)
        if not can_finish(graph, secure_config.n_min, chosen.threshold, leaves):
            left = len(cohort) - len(leaves)
            raise AbortedError.because(ReasonCode.TOO_MANY_DROPOUTS, left=left, needed=secure_config.n_min, phase="sum")

    def _refuse_if_few(self, cohort: Sequence[int] | NDArray[np.int64]) -> None:
        least = max(self.config.n_min, 0 if self.lottery is None else self.lottery.least)
        if len(cohort) < least:
            raise AbortedError.because(ReasonCode.COHORT_TOO_SMALL, cohort=len(cohort), needed=least)
