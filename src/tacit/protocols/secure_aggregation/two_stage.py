"""Sums of sparse tables in two stages: first the number of participants that mention each row, then the rows of enough.

In a sum of a sparse table, a row that only one participant touches is that participant's row. All rows of a participant
point the same way, so they can be linked: a sum in one stage hides little. The first stage counts the participants that
mention each row, with two bytes a row. The second stage adds the rows that at least `k_min` participants mention; no
other row leaves a device. The size of a message follows the length of that list instead of the catalogue's.

A row's count is that of the first stage. The difference to a second count would reveal the items of participants who
dropped out in between. Rows are listed from `k_min + spare` participants on, and no device unmasks a second stage that
has lost more than `spare`: so every listed row keeps at least `k_min` participants.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tacit.protocols.secure_aggregation.context import Terms
from tacit.protocols.secure_aggregation.encoding import VectorLayout, counts_layout, decode_sum, rows_layout
from tacit.protocols.secure_aggregation.graph import plan_masking
from tacit.protocols.secure_aggregation.identity import KEY_BYTES
from tacit.protocols.secure_aggregation.masks import Vector
from tacit.types import Array, Config
from tacit.updates import Ring, Total

RowCounts = Mapping[str, NDArray[np.int64]]  # per table, the number of participants that mention each row
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
    unaware: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="share of participants that may fall silent after their vectors, at least one; the fewer, the more "
        "devices may change cohorts; none: as many as is safe",
    )

    @property
    def behind_rows(self) -> int:
        """Participants behind each row of a sum, at least."""
        return self.k_min if self.two_stage else 1

    def spare_for(self, n_participants: int, dropout: float) -> int:
        """Return how many may be lost between the stages, where a share of participants is expected to drop out."""
        return math.ceil(n_participants * dropout) if self.spare is None else self.spare


@dataclass(frozen=True)
class RoundContext:
    """Which sum it is that participants are invited to."""

    task: str
    number: int
    model: bytes  # hash of the shared model, 32 bytes
    beacon: bytes  # 32 bytes

    def terms(
        self,
        stage: int,
        layout: VectorLayout,
        n_participants: int,
        secure_config: SecureAggregationConfig,
        spare: int = 0,
    ) -> Terms:
        """Return the terms of one stage (2 where there is only one)."""
        chosen = plan_masking(n_participants, secure_config.corrupted, secure_config.dropped)
        threshold = chosen.threshold
        if secure_config.unaware is not None:
            threshold = max(threshold, chosen.degree - max(1, math.floor(secure_config.unaware * chosen.degree)))
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
            threshold,
            self.beacon,
            bytes(KEY_BYTES),
        )

    def counting(self, shapes: Shapes, n_participants: int, secure_config: SecureAggregationConfig) -> Terms:
        """Return the terms of the first stage."""
        return self.terms(1, counts_layout(shapes, n_participants), n_participants, secure_config)

    def adding(
        self,
        shapes: Shapes,
        ring: Ring,
        n_participants: int,
        secure_config: SecureAggregationConfig,
        rows: RowCounts,
        spare: int,
    ) -> Terms:
        """Return the terms of the second stage, for the listed rows."""
        return self.terms(2, rows_layout(shapes, ring, n_participants, rows), n_participants, secure_config, spare)

    def adding_all(
        self,
        shapes: Shapes,
        ring: Ring,
        n_participants: int,
        secure_config: SecureAggregationConfig,
        counted: Collection[str] | None = None,
    ) -> Terms:
        """Return the terms of a sum in one stage; under differential privacy only `counted` tables are counted."""
        layout = rows_layout(shapes, ring, n_participants, counted=counted)
        return self.terms(2, layout, n_participants, secure_config)


def list_rows(mentions: RowCounts, least: int) -> dict[str, NDArray[np.int64]]:
    """Return the rows of each table that at least so many participants mention."""
    return {name: np.flatnonzero(counts >= max(1, least)) for name, counts in mentions.items()}


def drop_rare_rows(total: Total, mentions: RowCounts, least: int) -> Total:
    """Return what a two-stage sum shows of a plain one: rows that enough participants mention, and how many do."""
    shown = {name: counts >= max(1, least) for name, counts in mentions.items()}
    sums = {name: np.where(_along(shown[name], array), array, 0) for name, array in total.sums.items()}
    return Total(sums, {name: np.where(shown[name], mentions[name], 0) for name in sums}, total.n_clients)


def read_second_stage(
    vector: Vector, layout: VectorLayout, shapes: Shapes, mentions: RowCounts, n_participants: int
) -> Total:
    """Read the sum of a second stage; counts are those of the first."""
    total = decode_sum(vector, layout, shapes, n_participants)
    for part in layout.segments:
        total.counts[part.table][part.listed] = mentions[part.table][part.listed]
    return total


def _along(mask: NDArray[np.bool_], array: Array) -> Array:
    return mask.reshape(-1, *[1] * (array.ndim - 1))
