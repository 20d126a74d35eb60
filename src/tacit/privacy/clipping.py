"""Clipping: nobody moves a row, or everything together, further than a given length.

It bounds what one person, honest or not, can do to a sum, and it is the first half of differential privacy. Too long
vectors are shortened, their direction stays. Alone it hides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from tacit.random import Key
from tacit.types import Config, Floats
from tacit.updates import Rows, Update


class ClippingConfig(Config):
    """How long what leaves may be."""

    name: Literal["clip"] = "clip"
    row: float | None = Field(None, gt=0, description="longest row, as Euclidean norm; none: any")
    person: float | None = Field(
        None, gt=0, description="longest update of one person, all rows of all tables together"
    )

    @model_validator(mode="after")
    def _has_an_effect(self) -> ClippingConfig:
        if self.row is None and self.person is None:
            raise ValueError("clip shortens nothing without 'row' or 'person'; give at least one of them")
        return self


@dataclass(frozen=True)
class Clipping:
    """The stage. Lengths hold up to the rounding to the ring's grid that follows."""

    row: float | None = None
    person: float | None = None

    @classmethod
    def build(cls, config: ClippingConfig) -> Clipping:
        """Take the two bounds."""
        return cls(config.row, config.person)

    @property
    def reveals(self) -> str:
        """What the reader of the rows still learns."""
        return "each row sent, shortened where it was too long"

    def on_device(self, update: Update, key: Key) -> Update:
        """Shorten what is too long; rows that are made anew later are shortened again."""
        tables = dict(update.tables)
        if self.row is not None:
            tables = {name: _scaled(rows, _shortening(_lengths(rows), self.row)) for name, rows in tables.items()}
        if self.person is not None:
            squares = np.zeros(len(update.clients))
            for rows in tables.values():
                squares += np.bincount(_owner(rows), weights=_lengths(rows) ** 2, minlength=len(squares))
            by = _shortening(np.sqrt(squares), self.person)
            tables = {name: _scaled(rows, by[_owner(rows)]) for name, rows in tables.items()}
        make = update.remake
        again = None if make is None else (lambda rest: self.on_device(make(rest), key))
        return replace(update, tables=tables, remake=again)


def _owner(rows: Rows) -> NDArray[np.int64]:
    return np.repeat(np.arange(len(rows.ptr) - 1), np.diff(rows.ptr))


def _lengths(rows: Rows) -> NDArray[np.float64]:
    found: NDArray[np.float64] = np.linalg.norm(rows.values.astype(np.float64), axis=1)
    return found


def _shortening(lengths: NDArray[np.float64], longest: float) -> NDArray[np.float64]:
    """Return the factor, at most 1, that makes each length fit."""
    return np.minimum(1.0, longest / np.maximum(lengths, longest))


def _scaled(rows: Rows, by: NDArray[np.float64]) -> Rows:
    values: Floats = (rows.values * by[:, None]).astype(np.float32)
    return replace(rows, values=values)
