"""What leaves with a peer model: the model as it is, or bounded, or bounded with noise, which is a local guarantee.

    bound     how far a sent model may be from the peer's own first model, all sent arrays together (Euclidean)
    noise     its standard deviation on every number, as a multiple of the bound
    periods   how often a peer sends; afterwards it receives and learns only

The first model follows from keys and not from the history, so what is sent lies within the bound around it, whatever
the history and whatever others sent. Two histories can therefore move it by twice the bound, and that is what is
accounted. A peer without any history also mixes what it receives, so there is no model that "nothing" would send. Each
period sends one model, the same to everyone in the view: it is one Gaussian release, and releases add up
(`privacy.accounting`). All of the noise is in every message: the guarantee is *local* and depends on no other peer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tacit.errors import ConfigError, PrivacyError
from tacit.types import Array
from tacit.updates import PeerModels

if TYPE_CHECKING:
    from tacit.privacy.accounting import PrivacyEvent
    from tacit.privacy.noise import NoiseSource

STEPS = 2.0**30  # of the grid of noise in 1
COARSEST, WIDEST = 2.0**16, 2.0**36  # steps in a standard deviation
DELTA = 1e-6  # probability with which epsilon may not hold
DIAMETER = 2  # bounds between what any two histories can send


@dataclass(frozen=True)
class PeerRelease:
    """How peer models are shaped before they leave."""

    bound: float
    noise: float = 0.0
    periods: int = 0  # 0: no end

    def __post_init__(self) -> None:
        if self.noise and not (self.bound and self.periods):
            raise ConfigError(
                "method.send_noise gives a guarantee only with a bound and an end.",
                "Set method.send_bound and method.send_periods too.",
            )
        if self.noise and not COARSEST <= self.noise * self.bound * STEPS <= WIDEST:
            raise ConfigError(
                f"Noise of standard deviation {self.noise * self.bound:.2g} is too fine or too wide.",
                "Change method.send_noise or method.send_bound.",
            )

    def is_over(self, sent: int) -> bool:
        """Say whether a peer that has sent so often sends no more."""
        return bool(self.periods) and sent >= self.periods

    def shape(self, models: PeerModels, first: Mapping[str, Array], source: NoiseSource | None) -> PeerModels:
        """Return one peer model as it leaves; with noise, the number of its owner's samples stays here."""
        if not self.bound:
            return models
        assert len(models) == 1, "a peer sends one model"
        moved = {name: table.astype(np.float64) - first[name] for name, table in models.tables.items()}
        size = sum(table.size for table in moved.values())
        # rounding to the grid may lengthen what was clipped: so much shorter it is clipped
        bound = self.bound - math.sqrt(size) / (2 * STEPS) if self.noise else self.bound
        length = math.sqrt(sum(float((table**2).sum()) for table in moved.values()))
        factor = min(1.0, max(0.0, bound) / length) if length > 0 else 1.0
        tables = {}
        for name, table in moved.items():
            shaped = table * factor
            if self.noise:
                from tacit.privacy.noise import gaussian_steps

                assert source is not None, "noise has a source"
                drawn = gaussian_steps(source, table.size, self.noise * self.bound * STEPS).reshape(table.shape)
                shaped = (np.rint(shaped * STEPS) + drawn) / STEPS
            tables[name] = (first[name] + shaped).astype(np.float32)
        return replace(models, tables=tables, samples=models.samples * 0 if self.noise else models.samples)

    def event(self, count: int, n_numbers: int) -> PrivacyEvent:
        """Return so many releases of models with so many numbers, for the account."""
        from tacit.privacy.accounting import PrivacyEvent

        steps = self.noise * self.bound * STEPS
        return PrivacyEvent(
            "gaussian", self.noise / DIAMETER, count=count, std_in_steps=steps, dimension=n_numbers, label="peer models"
        )

    def epsilon(self, sent: int, n_numbers: int) -> float:
        """Return what so many releases cost, with `DELTA`; infinity without noise, or with too little of it."""
        from tacit.privacy.accounting import account

        if not sent:
            return 0.0
        if not self.noise:
            return math.inf
        try:
            return account([self.event(sent, n_numbers)], DELTA).epsilon_server
        except PrivacyError:  # an epsilon so large that no delta is left
            return math.inf
