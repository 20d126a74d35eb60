"""The values that a search tries: lists whose combinations are listed, and ranges from which values are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import exp, log
from typing import Any, Self

import numpy as np
from pydantic import Field, model_validator

from tacit.errors import ConfigError
from tacit.random import Key
from tacit.types import Config

DRAWS = 50  # for each trial that is wanted, before a space is taken to have no more points


class Range(Config):
    """All numbers between two; whole ones if both ends are whole."""

    low: int | float = Field(description="the smallest value")
    high: int | float = Field(description="the largest value")
    log: bool = Field(False, description="equal ratios are equally likely, not equal differences")

    @model_validator(mode="after")
    def _has_numbers(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low {self.low} must be below high {self.high}")
        if self.log and self.low <= 0:
            raise ValueError(f"a range by ratios begins above 0, not at {self.low}")
        return self

    def value(self, share: float) -> int | float:
        """Return the number at a share of the range, from its lower end; `share` is in [0, 1)."""
        low, high = float(self.low), float(self.high)
        if not (isinstance(self.low, int) and isinstance(self.high, int)):
            return exp(log(low) + share * (log(high) - log(low))) if self.log else low + share * (high - low)
        if not self.log:
            return self.low + int(share * (self.high - self.low + 1))
        edges = log(low - 0.5), log(high + 0.5)  # every whole number owns what rounds to it
        return min(max(round(exp(edges[0] + share * (edges[1] - edges[0]))), self.low), self.high)


Space = Mapping[str, Sequence[Any] | Range]


def list_points(space: Space, trials: int, key: Key) -> list[dict[str, Any]]:
    """Return the settings to try: all combinations of lists, or `trials` different ones that are drawn."""
    if any(isinstance(values, Range) for values in space.values()):
        return _draw_points(space, trials, key)
    every = [dict(zip(space, values, strict=True)) for values in product(*space.values())]
    chosen = np.arange(len(every))
    if 0 < trials < len(every):
        draws = key.uniform(chosen, 1)[:, 0]
        chosen = np.sort(np.argsort(draws)[:trials])
    return [every[i] for i in chosen]


def _draw_points(space: Space, trials: int, key: Key) -> list[dict[str, Any]]:
    """Draw different points; more trials draw the same ones first."""
    if trials == 0:
        raise ConfigError("A range has no end of values to try.", "Set trials to the number of points to draw.")
    shares = key.child("ranges").uniform(np.arange(DRAWS * trials), len(space))
    found: dict[str, dict[str, Any]] = {}
    for row in shares.tolist():
        point = {
            path: values.value(share) if isinstance(values, Range) else values[int(share * len(values))]
            for (path, values), share in zip(space.items(), row, strict=True)
        }
        found.setdefault(repr(point), point)
        if len(found) == trials:
            break
    return [*found.values()]
