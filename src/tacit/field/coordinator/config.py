"""How a coordinator runs its rounds."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from tacit.protocols.robust import RobustConfig
from tacit.protocols.secure_aggregation import DevicePolicy
from tacit.protocols.secure_aggregation.two_stage import SecureAggregationConfig
from tacit.types import Config


class RoundRules(Config):
    """How many are asked, how long is waited, and when a round is given up. Every wait is finite."""

    rounds: int = Field(10, ge=1, description="number of rounds")
    clients_per_round: int = Field(
        0, ge=0, description="answers wanted in a round, more if a masked sum needs more; 0: from all connected devices"
    )
    quorum: int = Field(1, ge=1, description="devices that must be connected before a round begins")
    minimum: int = Field(1, ge=1, description="least number of answers; with fewer, the round is abandoned")
    over_selection: float = Field(
        0.0, ge=0, le=4, description="devices asked beyond those wanted, as a share of those wanted"
    )
    deadline: float = Field(60.0, gt=0, le=86_400, description="seconds that a round waits for answers")
    patience: float = Field(
        600.0,
        gt=0,
        le=604_800,
        description="seconds that the coordinator waits for a quorum, or for eligible devices",
    )
    pause: float = Field(0.0, ge=0, le=604_800, description="seconds between rounds")
    secure: SecureAggregationConfig | Literal["auto"] | None = Field(
        "auto",
        description="secure aggregation; auto: when enough devices are here; none: the coordinator reads each answer",
    )
    guards: DevicePolicy = Field(
        DevicePolicy(), description="the device policies that the coordinator expects in masked rounds"
    )
    robust: RobustConfig | None = Field(
        None, description="robust aggregation rule over the sums of groups; none: the plain sum"
    )

    @model_validator(mode="after")
    def _possible_together(self) -> Self:
        if isinstance(self.secure, SecureAggregationConfig) and self.robust is not None:
            raise ValueError(
                "a robust rule needs the sums of groups, and secure aggregation shows one sum; remove one of the two"
            )
        return self
