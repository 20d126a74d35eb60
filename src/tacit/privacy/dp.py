"""Differential privacy: what each client adds to a sum is bounded, and every number of the sum carries noise.

    bound     a client's whole contribution, counts included, is at most S long as whole numbers of the ring
    noise     of standard deviation S / mu_i on every number of the public support, touched by clients or not
    account   sums compose: mu^2 = sum of mu_i^2, and mu-GDP is (epsilon, delta)-DP (`privacy.accounting`)

Who adds the noise is the mode. *distributed*: every device adds a share inside the secure sum, large enough for those
that are sure to be honest and there; the server sees noisy sums only. *central*: a trusted server adds it. *local*:
every message carries all of it. Noise here is Gaussian or nearly so; `privacy.pure` has mechanisms that need no delta.
docs/privacy.md has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

import numpy as np
from pydantic import Field, field_validator, model_validator

from tacit.errors import ConfigError, PrivacyError
from tacit.privacy.accounting import PrivacyEvent, account, mu_for
from tacit.privacy.draft import Draft
from tacit.privacy.noise import NoiseSource, gaussian_steps, skellam_steps
from tacit.privacy.update_sink import Stage
from tacit.random import Key
from tacit.types import Config
from tacit.updates import Ring, Total

RESERVE = 0.999  # of epsilon: the rest is what noise in whole numbers costs beyond a Gaussian
COARSEST = 64.0  # steps of the ring in a standard deviation, at least: below, whole numbers are no Gaussian


class DPConfig(Config):
    """How much may be learnt about any one client, by any reader."""

    name: Literal["dp"] = "dp"
    epsilon: float = Field(gt=0, allow_inf_nan=False, description="bound on what all rounds together tell of a client")
    delta: float | None = Field(
        None, gt=0, lt=1, description="probability with which epsilon may not hold; none: one tenth of 1 / clients"
    )
    mode: Literal["distributed", "central", "local"] = Field(
        "distributed", description="who adds noise: every device a share of it, a trusted server, or every message all"
    )
    mechanism: Literal["skellam", "gaussian", "laplace", "randomised-response"] | None = Field(
        None,
        description="noise; none: skellam where devices add shares, gaussian elsewhere; laplace: central or local; "
        "randomised-response: local, for methods that tell items and nothing else",
    )
    bound: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="largest Euclidean norm of what a client adds to a sum (laplace: sum of magnitudes; "
        "randomised-response: number of items); none: the method's own Euclidean bound",
    )
    count_weight: float = Field(
        0.1,
        gt=0,
        le=1,
        description="what a row's count is worth, as a share of the bound, where the server reads counts",
    )
    dropped: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of asked clients that may drop out; with more, the round is abandoned (distributed only)",
    )
    corrupted: float = Field(
        0.0, ge=0, lt=1, description="share of asked clients that may collude with the server (distributed only)"
    )

    @field_validator("mechanism", mode="before")
    @classmethod
    def _refuse_choices(cls, given: object) -> object:
        if given == "exponential":
            raise ValueError(
                "the exponential mechanism chooses one of several candidates, and a sum of numbers is no choice: use "
                "skellam, gaussian or laplace here; 'tacit tune' chooses options by it (private_choice)"
            )
        return given

    @model_validator(mode="after")
    def _refuse_without_effect(self) -> DPConfig:
        if self.mechanism == "laplace" and self.mode == "distributed":
            raise ValueError(
                "shares of Laplace noise do not add up to Laplace noise: set mode to central or local, or mechanism to "
                "skellam"
            )
        if self.mechanism == "randomised-response" and self.mode != "local":
            raise ValueError("randomised response flips the bits of every message: set mode to local")
        idle = [name for name in ("dropped", "corrupted") if getattr(self, name) and self.mode != "distributed"]
        if idle:
            raise ValueError(f"{idle[0]} has no effect: in mode {self.mode} no noise is shared among devices")
        return self


class AgreedPrivacyConfig(Config):
    """Differential privacy as the members of a federation agree on it: every device adds a share of the noise."""

    epsilon: float = Field(gt=0, allow_inf_nan=False, description="bound on what all rounds together tell of a device")
    delta: float = Field(gt=0, lt=1, description="probability with which epsilon may not hold; below 1 / devices")
    mode: Literal["distributed"] = Field("distributed", description="every device adds a share of the noise")
    bound: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="largest Euclidean norm of what a device adds to a sum; none: the method's own bound",
    )
    count_weight: float = Field(
        0.1,
        gt=0,
        le=1,
        description="what a row's count is worth, as a share of the bound, where the server reads counts",
    )
    dropped: float = Field(
        0.2, ge=0, lt=1, description="share of asked devices that may drop out; with more, the round is abandoned"
    )
    corrupted: float = Field(0.2, ge=0, lt=1, description="share of asked devices that may collude with the server")
    participations: int | None = Field(
        None, ge=1, description="sums of equal share that a device is in; none: the method has shares of its own"
    )

    @field_validator("mode", mode="before")
    @classmethod
    def _refuse_noise_of_others(cls, given: object) -> object:
        if given in ("central", "local"):
            raise ValueError(
                "a device cannot see whether a server adds noise, and noise on every message drowns what is learnt: in "
                "a federation it is distributed"
            )
        return given

    def config(self) -> DPConfig:
        """Return the options of the stage."""
        return DPConfig(**self.model_dump(exclude={"participations"}))


def count_share(share: float, n: int) -> int:
    """Return how many of n a share is, rounded down, as it is written: in floats .29 of 100 would be 28.

    >>> count_share(0.29, 100), int(0.29 * 100)
    (29, 28)
    """
    return int(Fraction(repr(share)) * n)


@dataclass(frozen=True)
class ContributionSpec:
    """What the stage must know of a method: its tables' counts, its own bound, and its rounds."""

    counted: tuple[str, ...]
    bound: float | None
    rows_repeat: bool
    participations: int  # sums that one client may be part of
    tells_items: bool = False  # a message is one number for each item of a client, and nothing else
    tables: tuple[str, ...] = ()  # what a client adds rows to: named where nothing bounds them


@dataclass(frozen=True)
class DifferentialPrivacy(Stage):
    """The stage. `mu` is the bound over the standard deviation of one sum that spends a client's whole budget.

    A round spends a share of mu^2.
    """

    config: DPConfig
    ring: Ring
    delta: float
    mu: float
    bound: float
    count_units: Mapping[str, float]
    rows_repeat: bool
    participations: int
    shapes_values = True

    @classmethod
    def build(cls, config: DPConfig, of: ContributionSpec, ring: Ring, n_clients: int) -> DifferentialPrivacy:
        """Set the noise from epsilon; refuse what no guarantee follows from."""
        delta = 0.1 / max(n_clients, 1) if config.delta is None else config.delta
        if delta >= 1.0 / max(n_clients, 1):
            raise ConfigError(
                f"privacy.delta is {delta:g}, but there are {n_clients} clients: publishing one of them whole has "
                "that delta.",
                f"Set it below {1.0 / max(n_clients, 1):g}; 1 / (10 clients) is usual.",
            )
        bound = cls.find_bound(config, of)
        if config.dropped + config.corrupted >= 1:
            raise ConfigError(
                "privacy.dropped and privacy.corrupted leave no honest client to add noise.", "Lower one of them."
            )
        units = dict.fromkeys(of.counted, config.count_weight * bound)
        stage = cls(
            config,
            ring,
            delta,
            cls.find_mu(config.epsilon * RESERVE, delta, bound),
            bound,
            units,
            of.rows_repeat,
            of.participations,
        )
        if stage.std(1.0) * float(ring.scale) < COARSEST:
            raise ConfigError(
                f"Noise of {stage.std(1.0):.2g} is too fine for the ring: a step is 2^-{ring.fraction}.",
                "Raise ring.fraction (in a run: runtime.ring.fraction) or privacy.bound, or lower privacy.epsilon.",
            )
        return stage

    @classmethod
    def find_bound(cls, config: DPConfig, of: ContributionSpec) -> float:
        """Return the largest length of what a client adds to a sum; refuse a method without any."""
        bound = of.bound if config.bound is None else config.bound
        if bound is None:
            what = " and ".join(repr(table) for table in of.tables) or "a sum"
            raise ConfigError(
                f"What a client adds to {what} has no bound: one client could move the sum by any amount.",
                "Set privacy.bound, the largest Euclidean norm of all that a client adds to a sum, inside the stage: "
                "privacy=[{name: dp, epsilon: 2, bound: 1}].",
            )
        if of.bound is not None and bound < of.bound:
            raise ConfigError(
                f"privacy.bound is {bound:g}, and this method sends contributions of length {of.bound:g}.",
                "Remove privacy.bound: the method keeps its own.",
            )
        return bound

    @classmethod
    def find_mu(cls, epsilon: float, delta: float, bound: float) -> float:
        """Return the mu that costs epsilon."""
        return mu_for(epsilon, delta)

    @property
    def mechanism(self) -> str:
        """Which noise it is."""
        return self.config.mechanism or ("skellam" if self.config.mode == "distributed" else "gaussian")

    def shape(self, draft: Draft, key: Key) -> None:
        """Bound what each client adds to a sum."""
        draft.bound_contributions(self.bound, self.count_units, self.rows_repeat, self.ring)

    def share_of(self, given: float | None) -> float:
        """Return the share of the budget that a round spends: what the method says, or an equal one."""
        return 1.0 / self.participations if given is None else given

    def std(self, share: float) -> float:
        """Return the standard deviation of the noise that a round must carry, in the unit of values."""
        return self.bound / (self.mu * math.sqrt(share))

    def refuse_coarse(self, share: float, n_asked: int, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Refuse noise in steps so coarse that sums of this share would cost more than epsilon together."""
        try:
            event = self.event(share, "a sum", n_asked, shapes)
            cost = account([replace(event, count=max(1, round(1 / share - 0.5)))], self.delta).epsilon_server
        except PrivacyError:
            cost = math.inf
        if cost > self.config.epsilon:
            raise ConfigError(
                "The noise has too few steps: as whole numbers it costs more than privacy.epsilon.",
                "Raise the ring's fraction or privacy.bound, or lower privacy.epsilon.",
            )

    def n_numbers(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """Return how many numbers of a sum carry noise: all cells of all tables, and counts where they are read."""
        cells = sum(math.prod(shape) for shape in shapes.values())
        return cells + sum(shapes[table][0] for table in self.count_units)

    def event(self, share: float, label: str, n_asked: int, shapes: Mapping[str, tuple[int, ...]]) -> PrivacyEvent:
        """Return what a round with this share costs every client in it: by the noise that is sure to be there."""
        return PrivacyEvent(
            self.mechanism,
            noise_multiplier=self.std(share) / self.bound,
            std_in_steps=self.std(share) * float(self.ring.scale),
            dimension=self.n_numbers(shapes),
            shares=self.n_honest(n_asked) if self.config.mode == "distributed" else None,
            label=label,
        )

    def n_needed(self, n_asked: int) -> int:
        """Return how many of the asked clients a sum must have: with fewer its noise would fall short."""
        return n_asked - count_share(self.config.dropped, n_asked) if self.config.mode == "distributed" else 1

    def n_honest(self, n_asked: int) -> int:
        """Return how many clients of a sum are sure to have added noise that no other party knows."""
        return self.n_needed(n_asked) - count_share(self.config.corrupted, n_asked)

    def variance(self, share: float, n_asked: int, n_summed: int) -> float:
        """Return the variance of the noise in a sum of `n_summed` messages, in the unit of values."""
        whole = self.std(share) ** 2
        if self.config.mode == "central":
            return whole
        return n_summed * (whole if self.config.mode == "local" else whole / max(1, self.n_honest(n_asked)))

    def share_variance(self, share: float, n_asked: int) -> float:
        """Return the variance of what one device adds to each number, in steps of the ring."""
        return self.variance(share, n_asked, 1) * float(self.ring.scale) ** 2

    def draw(self, source: NoiseSource, size: int, variance_in_steps: float) -> np.ndarray:
        """Draw noise for so many numbers, in whole steps of the ring."""
        if self.mechanism == "skellam":
            return skellam_steps(source, size, variance_in_steps)
        return gaussian_steps(source, size, math.sqrt(variance_in_steps))

    def add_noise(self, total: Total, share: float, n_asked: int, source: NoiseSource) -> Total:
        """Add the noise of a whole sum at once: what the shares of its devices, or a trusted server, would add."""
        sums, counts = {}, {}
        for name, array in total.sums.items():
            sums[name] = array + self.draw_whole(source, array.size, share, n_asked, total.n_clients).reshape(
                array.shape
            )
            counts[name] = total.counts[name]
            if name in self.count_units:
                counts[name] = counts[name] + self.draw_whole(source, len(array), share, n_asked, total.n_clients)
        return replace(total, sums=sums, counts=counts)

    def draw_whole(self, source: NoiseSource, size: int, share: float, n_asked: int, n_summed: int) -> np.ndarray:
        """Draw the noise of a whole sum for so many numbers, in steps of the ring."""
        return self.draw(source, size, self.variance(share, n_asked, n_summed) * float(self.ring.scale) ** 2)

    def read(self, total: Total, share: float, n_asked: int) -> Total:
        """Return a noisy sum with counts as numbers of rows, none below what noise alone makes of it.

        Tables without counts count every client for every row. All of this is post-processing.
        """
        std = math.sqrt(self.variance(share, n_asked, total.n_clients))
        counts = {}
        for name, numbers in total.counts.items():
            if name in self.count_units:
                unit = self.count_units[name]
                floor = max(1.0, 2.0 * std / unit)
                counts[name] = np.rint(np.maximum(numbers / (float(self.ring.scale) * unit), floor)).astype(np.int64)
            else:
                counts[name] = np.full(len(numbers), total.n_clients, np.int64)
        return replace(total, counts=counts, noise=std)
