"""How a coordinator runs its rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from tacit.protocols.directory import DirectoryPolicy
from tacit.protocols.robust import RobustConfig
from tacit.protocols.secure_aggregation import DevicePolicy
from tacit.protocols.secure_aggregation.two_stage import SecureAggregationConfig
from tacit.types import Config

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
YEAR = 366 * 86_400.0
USUAL_PAUSE = 3600.0  # seconds between rounds without end


def parse_duration(given: object) -> object:
    """Return the seconds of a text such as 90s, 30m, 6h or 2d; anything else as it is."""
    if not isinstance(given, str) or given[-1:] not in UNITS:
        return given
    try:
        return float(given[:-1]) * UNITS[given[-1]]
    except ValueError:
        return given


Duration = Annotated[float, BeforeValidator(parse_duration)]


class WitnessRules(Config):
    """The witness of the directory of identities: who it is, and what devices demand where it is named."""

    key: str = Field(pattern=r"^[0-9a-f]{64}$", description="its public key: tacit witness key")
    settled_hours: float = Field(
        DirectoryPolicy().settled_hours,
        ge=0,
        le=8760,
        description="hours for which a device must be in the signed directory before it is asked; devices demand 24",
    )

    @property
    def public(self) -> bytes:
        """The key as bytes."""
        return bytes.fromhex(self.key)


class RoundRules(Config):
    """When rounds begin, how many devices are asked, how long is waited, and when a round is given up.

    None of it is a term of the federation: an operator may change it at any time.
    """

    former_names: ClassVar[Mapping[str, str]] = {"rounds.guards": "rounds.device_policy"}
    rounds: int | None = Field(None, ge=1, description="number of rounds; none: rounds go on for ever")
    clients_per_round: int = Field(
        0, ge=0, description="answers wanted in a round, more if a masked sum needs more; 0: from all connected devices"
    )
    quorum: int = Field(1, ge=1, description="devices that must be connected before a round begins")
    minimum: int = Field(1, ge=1, description="least number of answers; with fewer, the round is abandoned")
    over_selection: float = Field(
        0.0, ge=0, le=4, description="devices asked beyond those wanted, as a share of those wanted"
    )
    deadline: float = Field(60.0, gt=0, le=86_400, description="seconds that a round waits for answers")
    patience: Duration | None = Field(
        None,
        gt=0,
        le=YEAR,
        description="how long the coordinator waits for a quorum, or eligible devices, before it ends; none: for ever",
    )
    pause: Duration | None = Field(
        None,
        ge=0,
        le=YEAR,
        description="time between rounds, in seconds or as 30m, 6h, 2d; none: an hour if rounds go on for ever, else 0",
    )
    newcomers: int = Field(
        0,
        ge=0,
        description="a round begins before its pause is over if so many devices that were in none are here; 0: never",
    )
    secure: SecureAggregationConfig | Literal["auto"] | None = Field(
        "auto",
        description="secure aggregation; auto: as devices demand it; none: the coordinator reads each answer",
    )
    readable: bool = Field(
        False,
        description="rounds may be readable: with secure=auto until enough devices are here, and where secure is none",
    )
    device_policy: DevicePolicy = Field(
        DevicePolicy(), description="the device policies that the coordinator expects in masked rounds"
    )
    batch: int = Field(
        20,
        ge=2,
        description="devices that are summed together, about; of use while clients_per_round is 0",
    )
    strikes: int = Field(
        3, ge=1, description="rounds with messages that no honest device sends, after which a device is revoked"
    )
    keep_sums: int = Field(
        100,
        ge=1,
        description="rounds for which the journal keeps who was in a secure sum, where devices allow several cohorts",
    )
    keep_models: int = Field(
        10, ge=1, description="newest models that the journal keeps, so that a federation can be rolled back to one"
    )
    witness: WitnessRules | None = Field(
        None, description="the witness that signs who is a member; none: devices trust the coordinator in that"
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
        if not self.readable and (self.secure is None or self.robust is not None):
            which = "secure: none" if self.secure is None else "a robust rule"
            raise ValueError(
                f"with {which} the coordinator reads each answer, which nobody has allowed; set readable: true if that "
                "is what members agreed to"
            )
        most = self._most_asked()
        if most is not None and self.minimum > most:
            raise ValueError(
                f"no round can ever have minimum: {self.minimum} answers, because at most {most} devices are asked; "
                "lower minimum, or raise clients_per_round or batch"
            )
        return self

    def _most_asked(self) -> int | None:
        """Return how many devices a round asks at most; none if that is all who are here."""
        needed = math.ceil(self.device_policy.n_min / (1 - SecureAggregationConfig().dropped))
        if self.clients_per_round:
            return max(math.ceil(self.clients_per_round * (1 + self.over_selection)), needed)
        is_batched = self.secure == "auto" and not self.readable and self.device_policy.most_cohorts is not None
        return 2 * max(self.batch, needed) - 1 if is_batched else None

    def in_trial(self, devices: int | None) -> RoundRules:
        """Return the rules of a trial that begins with so few devices; none: it is no trial."""
        if devices is None:
            return self
        policy = self.device_policy.in_trial(devices)
        lowered = {"minimum": min(self.minimum, policy.n_min), "newcomers": min(self.newcomers, devices)}
        return self.model_copy(update={"device_policy": policy, **lowered})

    @property
    def pause_seconds(self) -> float:
        """Seconds between rounds."""
        if self.pause is None:
            return USUAL_PAUSE if self.rounds is None else 0.0
        return self.pause
