"""Sums of sparse tables in two stages: first the number of participants that mention each row, then the rows of enough.

A row that one person alone touches would stand in the sum as she sent it, and the rows of one person point the same
way, so that they can be told to belong together: a secure sum of a sparse table in one stage hides little. In the first
stage only people are counted, two bytes a row; in the second the rows that at least `k_min` people speak of are added,
and no others leave. What is sent follows the length of that list instead of the catalogue's.

A row's count is that of the first stage. Were it counted again, the difference would tell which items those have who
dropped out in between. So that they do not leave rows with fewer than `k_min` people either, rows are listed from
`k_min + spare` people on, and no device unmasks a second stage that has lost more than `spare`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tacit.protocols.secure_aggregation.context import Terms
from tacit.protocols.secure_aggregation.encoding import VectorLayout, decode_sum, people_layout, rows_layout
from tacit.protocols.secure_aggregation.graph import plan_masking
from tacit.protocols.secure_aggregation.identity import KEY_BYTES
from tacit.protocols.secure_aggregation.masks import Vector
from tacit.types import Array, Config
from tacit.updates import Ring, Total

People = Mapping[str, NDArray[np.int64]]  # per table, the number of participants that mention each row
Shapes = Mapping[str, tuple[int, ...]]
QUALITY = "(quality)"  # a table of one number that is no part of a model, and has a name that none of those can have
QUALITY_SHAPE = (1, 1)


class SecureAggregationConfig(Config):
    """How careful sums are; server and devices go by the same."""

    two_stage: bool = Field(
        True, description="two stages: count participants per row first, then add the rows that enough of them mention"
    )
    n_min: int = Field(10, ge=2, description="least number of participants in a sum; smaller rounds are abandoned")
    k_min: int = Field(3, ge=1, description="least number of participants behind each row of a two-stage sum")
    spare: int | None = Field(
        None,
        ge=0,
        description="participants that may drop out between the stages; none: as many as drop out on average",
    )
    corrupted: float = Field(0.2, ge=0, lt=1, description="share of participants that may collude with the server")
    dropped: float = Field(
        0.2, ge=0, lt=1, description="share of participants that may drop out without ending the round"
    )

    @property
    def behind_rows(self) -> int:
        """People behind each row of a sum, at least."""
        return self.k_min if self.two_stage else 1

    def spare_for(self, n_people: int, dropout: float) -> int:
        """Return how many may be lost between the stages, where a share of people is expected to drop out."""
        return math.ceil(n_people * dropout) if self.spare is None else self.spare


@dataclass(frozen=True)
class RoundContext:
    """Which sum it is that people are invited to."""

    task: str
    number: int
    model: bytes  # hash of the shared model, 32 bytes
    beacon: bytes  # 32 bytes

    def terms(
        self, stage: int, layout: VectorLayout, n_people: int, secure_config: SecureAggregationConfig, spare: int = 0
    ) -> Terms:
        """Return the terms of one stage (2 where there is only one)."""
        chosen = plan_masking(n_people, secure_config.corrupted, secure_config.dropped)
        return Terms(
            self.task,
            self.number,
            stage,
            self.model,
            layout,
            secure_config.n_min,
            secure_config.behind_rows,
            spare,
            chosen.degree,
            chosen.threshold,
            self.beacon,
            bytes(KEY_BYTES),
        )

    def counting(self, shapes: Shapes, n_people: int, secure_config: SecureAggregationConfig) -> Terms:
        """Return the terms of the first stage."""
        return self.terms(1, people_layout(shapes, n_people), n_people, secure_config)

    def adding(
        self,
        shapes: Shapes,
        ring: Ring,
        n_people: int,
        secure_config: SecureAggregationConfig,
        rows: People,
        spare: int,
    ) -> Terms:
        """Return the terms of the second stage, for the listed rows."""
        return self.terms(2, rows_layout(shapes, ring, n_people, rows), n_people, secure_config, spare)

    def adding_all(self, shapes: Shapes, ring: Ring, n_people: int, secure_config: SecureAggregationConfig) -> Terms:
        """Return the terms of a sum in one stage."""
        return self.terms(2, rows_layout(shapes, ring, n_people), n_people, secure_config)


def list_rows(people: People, least: int) -> dict[str, NDArray[np.int64]]:
    """Return the rows of each table of which at least so many people speak."""
    return {name: np.flatnonzero(counts >= max(1, least)) for name, counts in people.items()}


def drop_rare_rows(total: Total, people: People, least: int) -> Total:
    """Return what a two-stage sum shows of a plain one: rows of which enough people speak, counted in people."""
    shown = {name: counts >= max(1, least) for name, counts in people.items()}
    sums = {name: np.where(_along(shown[name], array), array, 0) for name, array in total.sums.items()}
    return Total(sums, {name: np.where(shown[name], people[name], 0) for name in sums}, total.n_clients)


def read_second_stage(vector: Vector, layout: VectorLayout, shapes: Shapes, people: People, n_people: int) -> Total:
    """Read the sum of a second stage; counts are those of the first."""
    total = decode_sum(vector, layout, shapes, n_people)
    for part in layout.segments:
        total.counts[part.table][part.listed] = people[part.table][part.listed]
    return total


def _along(mask: NDArray[np.bool_], array: Array) -> Array:
    return mask.reshape(-1, *[1] * (array.ndim - 1))
