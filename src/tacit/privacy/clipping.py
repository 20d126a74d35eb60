"""Clipping: bounds the norm of each row, or of all rows of a client.

It bounds what one client, honest or not, can do to a sum, and it is the first half of differential privacy. Too long
vectors are shortened, their direction stays. Alone it hides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from tacit.privacy.draft import Limits
from tacit.privacy.update_sink import Stage
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
    in_sum: bool = Field(
        False,
        description="person bounds what a client's rows can add up to in the sum, not the rows as they are sent; they "
        "differ where a client sends the same row more than once (fpl, fcf)",
    )

    @model_serializer(mode="wrap")
    def _without_the_default(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave `in_sum` out where it is not set: the terms of federations founded before it keep their digest."""
        written: dict[str, Any] = write(self)
        return written if self.in_sum else {name: value for name, value in written.items() if name != "in_sum"}

    @model_validator(mode="after")
    def _has_an_effect(self) -> ClippingConfig:
        if self.row is None and self.person is None:
            raise ValueError("clip has no effect without 'row' or 'person'; give at least one of them")
        if self.in_sum and self.person is None:
            raise ValueError("in_sum has no effect without 'person'")
        return self


@dataclass(frozen=True)
class Clipping(Stage):
    """The stage. Lengths hold up to the rounding to the ring's grid that follows.

    They are those of rows as they are sent. Where a client sends a row more than once (`rows_repeat`: fpl, fcf), its
    rows add up in the sum. What it moves there can be longer, at most as many times as the row occurs. With `in_sum` it
    cannot: the lengths of rows with the same number are added before the client's is taken.
    """

    row: float = np.inf
    person: float = np.inf
    in_sum: bool = False
    shapes_values = True

    @classmethod
    def build(cls, config: ClippingConfig) -> Clipping:
        """Take the two bounds."""
        row, person = (np.inf if bound is None else bound for bound in (config.row, config.person))
        return cls(row, person, config.in_sum)

    @property
    def limits(self) -> Limits:
        """Shorten what is too long, and do nothing else."""
        return Limits(self.row, self.person, self.in_sum)
