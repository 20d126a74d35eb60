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

    rounds: int = Field(10, ge=1, description="rounds in all")
    clients_per_round: int = Field(
        0, ge=0, description="answers wanted in a round, more if a sum takes more; 0: of all who are there"
    )
    quorum: int = Field(1, ge=1, description="devices that must be there before a round begins")
    minimum: int = Field(1, ge=1, description="answers below which a round is abandoned")
    over_selection: float = Field(0.0, ge=0, le=4, description="ask so many more, as a share of those wanted")
    deadline: float = Field(60.0, gt=0, le=86_400, description="seconds that a round waits for answers")
    patience: float = Field(
        600.0,
        gt=0,
        le=604_800,
        description="seconds that the coordinator waits for a quorum, or for people who may be asked",
    )
    pause: float = Field(0.0, ge=0, le=604_800, description="seconds between rounds")
    secure: SecureAggregationConfig | Literal["auto"] | None = Field(
        "auto", description="sums under masks; auto: once enough devices are there; none: each answer is read"
    )
    guards: DevicePolicy = Field(DevicePolicy(), description="what devices are taken to insist on in sums under masks")
    robust: RobustConfig | None = Field(None, description="a rule that bears with adversaries, over sums of groups")

    @model_validator(mode="after")
    def _possible_together(self) -> Self:
        if isinstance(self.secure, SecureAggregationConfig) and self.robust is not None:
            raise ValueError(
                "a robust rule must see sums of groups, and one secure sum shows only the whole; take one away"
            )
        return self
