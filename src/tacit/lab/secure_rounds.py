"""Secure sums in a simulation: `exact` leaves out the masks, which change no number, `protocol` makes every message.

Both give the same bits: the same people are lost in the same phases, the same rows are listed, and the same rounds are
called off. A law holds them together.
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
    VectorLayout,
    decode_sum,
    encode_message,
    people_layout,
    people_of,
    rows_layout,
)
from tacit.protocols.secure_aggregation.graph import NeighbourGraph, plan_masking
from tacit.protocols.secure_aggregation.identity import Identity
from tacit.protocols.secure_aggregation.local_session import SessionOutcome, can_finish, run_session
from tacit.protocols.secure_aggregation.masks import Vector, bytes_of
from tacit.protocols.secure_aggregation.server import ServerPhase
from tacit.protocols.secure_aggregation.two_stage import (
    People,
    RoundContext,
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
    """Whether and how sums hide what each person sends."""

    mode: Literal["exact", "protocol"] = Field(
        "exact", description="only the sum, without masks, or every message of the protocol; both give the same bits"
    )
    draw: bool = Field(
        False,
        description="participant lottery: tickets draw clients_per_round on average, and every device verifies it",
    )


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
        for person, stage, draw in zip(lost.tolist(), stages.tolist(), chance[:, 1], strict=True):
            leaves[person] = stage, _EARLY[int(draw * len(_EARLY))]
        chance = key.child("late").uniform(answered, 2)
        for person, draw in zip(answered.tolist(), chance, strict=True):
            if draw[0] < dropout:
                leaves[person] = 2, _LATE[int(draw[1] * len(_LATE))]
        return cls(answered, lost[stages == 2] if config.two_stage else lost[:0], leaves, config.two_stage)

    def without(self, withheld: NDArray[np.int64]) -> DropoutPlan:
        """Return the same for people some of whom have nothing that fits to send."""
        leaves = {
            **self.leaves,
            **{int(person): (1 if self.is_counted else 2, ServerPhase.VECTORS) for person in withheld},
        }
        rest = [np.setdiff1d(people, withheld, assume_unique=True) for people in (self.summed, self.between)]
        return DropoutPlan(rest[0], rest[1], leaves, self.is_counted)

    @property
    def everybody(self) -> NDArray[np.int64]:
        """All who were asked, ascending."""
        return np.union1d(self.summed, np.array(list(self.leaves), np.int64))


@dataclass
class PendingMessages:
    """What some people would send: in which message each person's rows stand, and where in it."""

    by_client: dict[int, tuple[Message, int]] = field(default_factory=dict)

    def add(self, positions: Array, message: Message) -> None:
        """Keep a message of the people at some positions, in its order."""
        self.by_client.update({int(person): (message, at) for at, person in enumerate(positions)})


@dataclass(frozen=True)
class SecureSumOutcome:
    """The sum of a round, and what each person sent and received for it."""

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
        lots: ParticipantLottery | None = None,
    ) -> None:
        """Refuse, before a key is made, rounds that ask too few people for these options."""
        if n_asked < config.n_min:
            raise ConfigError(
                f"Each round asks {n_asked} clients, fewer than the {config.n_min} that a masked round must have.",
                "Raise method.clients_per_round, or lower runtime.secure.n_min.",
            )
        plan_masking(n_asked, config.corrupted, config.dropped)
        self.config, self.ring, self.dropout, self.lots = config, ring, dropout, lots

    @classmethod
    def of(
        cls, config: SecureRoundsConfig, ring: Ring, rules: RoundsConfig, schedule: Schedule, n_clients: int, key: Key
    ) -> SecureSums:
        """Return those of a simulation, with lots where they are drawn."""
        lots, wanted = None, schedule.clients_per_round
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
            lots = ParticipantLottery(key.child("lots"), n_clients, schedule.rounds, min(1.0, wanted / n_clients))
        return cls(config, ring, rules.dropout, wanted, lots)

    def exact(self, total: Total, people: People | None, fates: DropoutPlan) -> SecureSumOutcome:
        """Return what the protocol would show of a plain sum; `people` are counted over `between` too."""
        secure_config, shapes = self.config, {name: array.shape for name, array in total.sums.items()}
        everybody, second = fates.everybody, np.union1d(fates.summed, fates.between)
        up = {int(person): 0 for person in fates.summed}
        if people is None:
            layouts = [(everybody, rows_layout(shapes, self.ring, len(everybody)))]
        else:
            spare = self._spare(fates, len(everybody))
            rows = list_rows(people, secure_config.k_min + spare)
            layouts = [(everybody, people_layout(shapes, len(everybody)))]
            if any(map(len, rows.values())):
                layouts.append((second, rows_layout(shapes, self.ring, len(second), rows)))
            total = drop_rare_rows(total, people, secure_config.k_min + spare)
        for stage, (cohort, layout) in enumerate(layouts, start=2 if people is None else 1):
            self._refuse_if_stuck(cohort, stage, fates)
            size = bytes_sent(plan_masking(len(cohort), secure_config.corrupted, secure_config.dropped).degree, layout)
            up = {person: sent + size for person, sent in up.items()}
        return SecureSumOutcome(total, up, {})

    def protocol(
        self,
        said: PendingMessages,
        shared: Mapping[str, Array],
        shapes: Mapping[str, tuple[int, ...]],
        fates: DropoutPlan,
        number: int,
    ) -> SecureSumOutcome:
        """Run the sum with all its messages, masks, losses and recoveries."""
        secure_config = self.config
        guards = DevicePolicy(
            n_min=secure_config.n_min,
            k_min=secure_config.behind_rows,
            corrupted=secure_config.corrupted,
            d_min=0,
            cool_down=0,
        )
        everybody = fates.everybody.tolist()
        self._refuse_if_few(everybody)
        devices, beacon = self._devices(everybody, guards, number)
        digest = hashlib.sha256(b"".join(np.ascontiguousarray(shared[name]).tobytes() for name in sorted(shared)))
        here = RoundContext(TASK, number, digest.digest(), beacon)
        up, down = dict.fromkeys(everybody, 0), dict.fromkeys(everybody, 0)

        def run(terms: Terms, cohort: list[int]) -> SessionOutcome:
            def give(at: int) -> Vector:
                message, client = said.by_client[cohort[at]]
                return encode_message(message, terms.layout, client)

            drawn = None if self.lots is None else self.lots.prove_draw(cohort, number)
            leaves = self._leaves(cohort, terms.stage, fates)
            done = run_session(terms, [devices[person] for person in cohort], give, leaves, drawn)
            for at, person in enumerate(cohort):
                up[person] += done.sent[at]
                down[person] += done.received[at]
            return done

        if not secure_config.two_stage:
            terms = here.adding_all(shapes, self.ring, len(everybody), secure_config)
            done = run(terms, everybody)
            return SecureSumOutcome(decode_sum(done.total, terms.layout, shapes, len(done.survivors)), up, down)
        counting = here.counting(shapes, len(everybody), secure_config)
        counted = run(counting, everybody)
        people, spare = people_of(counted.total, counting.layout), self._spare(fates, len(everybody))
        rows = list_rows(people, secure_config.k_min + spare)
        if not any(map(len, rows.values())):
            nothing = Total.zero(shapes)
            return SecureSumOutcome(Total(nothing.sums, nothing.counts, len(fates.summed)), up, down)
        second = [everybody[at] for at in counted.finished]
        self._refuse_if_few(second)
        adding = here.adding(shapes, self.ring, len(second), secure_config, rows, spare)
        done = run(adding, second)
        return SecureSumOutcome(
            read_second_stage(done.total, adding.layout, shapes, people, len(done.survivors)), up, down
        )

    def _devices(
        self, people: Sequence[int], guards: DevicePolicy, number: int
    ) -> tuple[dict[int, SecureDevice], bytes]:
        """Return the devices of a round and its beacon; where lots are drawn, devices that know who has enrolled."""
        if self.lots is None:
            return {person: SecureDevice(Identity.fresh(), guards) for person in people}, secrets.token_bytes(32)
        lots, directory = self.lots, self.lots.directory(TASK, number)
        found = {person: SecureDevice(lots.identities[person], guards, directory=directory) for person in people}
        return found, lots.beacon(number)

    def _spare(self, fates: DropoutPlan, n_people: int) -> int:
        spare = self.config.spare_for(n_people, self.dropout)
        if len(fates.between) > spare:
            raise AbortedError.because(ReasonCode.LOST_BETWEEN_STAGES, lost=len(fates.between), spare=spare)
        return spare

    def _leaves(self, cohort: Sequence[int], stage: int, fates: DropoutPlan) -> dict[int, ServerPhase]:
        """Return who of a cohort leaves in a stage, by place in it."""
        found = {}
        for at, person in enumerate(cohort):
            when, phase = fates.leaves.get(person, (0, ServerPhase.DONE))
            if when == stage:
                found[at] = phase
        return found

    def _refuse_if_stuck(self, cohort: NDArray[np.int64], stage: int, fates: DropoutPlan) -> None:
        secure_config = self.config
        self._refuse_if_few(cohort)
        chosen = plan_masking(len(cohort), secure_config.corrupted, secure_config.dropped)
        graph = NeighbourGraph(len(cohort), chosen.degree, bytes(32))
        if not can_finish(graph, secure_config.n_min, chosen.threshold, self._leaves(cohort.tolist(), stage, fates)):
            raise AbortedError(f"Too many of {len(cohort)} participants dropped out.")

    def _refuse_if_few(self, cohort: Sequence[int] | NDArray[np.int64]) -> None:
        least = max(self.config.n_min, 0 if self.lots is None else self.lots.least)
        if len(cohort) < least:
            raise AbortedError.because(ReasonCode.COHORT_TOO_SMALL, cohort=len(cohort), needed=least)


def bytes_sent(degree: int, layout: VectorLayout) -> int:
    """Return the bytes that a participant sends for one stage, if all its neighbours answer."""
    heads = 198 + 38 + 4 + 16 + 38 + 16 + 38 + 4 + 16 + 38 + 32 + 4 + 16
    return heads + degree * (118 + 20 + 38) + bytes_of(layout.sizes)
