"""Clipping: bounds the norm of each row, or of all rows of a client.

It bounds what one person, honest or not, can do to a sum, and it is the first half of differential privacy. Too long
vectors are shortened, their direction stays. Alone it hides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from tacit.privacy.update_sink import Draft, Stage
from tacit.random import Key
from tacit.types import Config


class ClippingConfig(Config):
    """How long what leaves may be."""

    name: Literal["clip"] = "clip"
    row: float | None = Field(None, gt=0, description="largest Euclidean norm of a row; none: no bound")
    person: float | None = Field(
        None,
        gt=0,
        description="largest Euclidean norm of a client's update, over all rows of all tables; none: no bound",
    )

    @model_validator(mode="after")
    def _has_an_effect(self) -> ClippingConfig:
        if self.row is None and self.person is None:
            raise ValueError("clip has no effect without 'row' or 'person'; give at least one of them")
        return self


@dataclass(frozen=True)
class Clipping(Stage):
    """The stage. Lengths hold up to the rounding to the ring's grid that follows.

    They are those of rows as they are sent. Where a client sends a row more than once (`rows_repeat`: fpl, fcf), its
    rows add up in the sum, and what it moves there can be longer: at most as many times as the row occurs.
    """

    row: float = np.inf
    person: float = np.inf
    shapes_values = True

    @classmethod
    def build(cls, config: ClippingConfig) -> Clipping:
        """Take the two bounds."""
        bounds = (np.inf if bound is None else bound for bound in (config.row, config.person))
        return cls(*bounds)

    def shape(self, draft: Draft, key: Key) -> None:
        """Shorten what is too long."""
        draft.clip(self.row, self.person)
