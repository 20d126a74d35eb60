"""Averages of updates: what a sum is divided by, and what each device multiplies its rows by before it sends them.

    simple-avg   every number over all who took part
    fedavg       every number weighted by the samples behind it (McMahan et al., 2017)
    mf-fedavg    a row of a table over those who learnt it, layers weighted by samples (FedNCF)

A device that does not touch a row sends nothing for it, which is a move of zero. Dividing by all clients, as the first
two do, keeps rows of rare items where they are. Devices send moves, not values, so that a sum needs no old model.

A rule is an object with the methods of `Average`; `AVERAGES` names ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.types import Array, Floats
from tacit.updates import Ring, Total

LONG_HISTORY = 4096  # samples; whoever has more weighs as much


@dataclass(frozen=True)
class Average:
    """How rows of tables and layers are averaged. Layers travel as rows that end with their weight."""

    weighs_rows: bool  # by samples
    weighs_layers: bool
    by_row: bool  # over those who learnt the row, instead of all

    def weights(self, samples: Array, ring: Ring) -> Floats:
        """Return what each device multiplies its rows and its layers by, [2, C]: on the grid, at most what it holds."""
        found = np.ones((2, len(samples)), np.float32)
        if self.weighs_rows or self.weighs_layers:
            weighed = np.minimum(samples, LONG_HISTORY) * (ring.largest / LONG_HISTORY)
            on_grid = np.maximum(np.rint(weighed * ring.scale), np.minimum(samples, 1)) / ring.scale
            found[[self.weighs_rows, self.weighs_layers]] = on_grid
        return found

    def rows(
        self, sums: Floats, counts: NDArray[np.int64], n_clients: int, weight: float, shrink: float = 0.0
    ) -> Floats:
        """Return the averaged update of each row of a table [n, D]; zero for rows that no client mentions.

        `counts` says how many mentioned each row, `weight` is the sum of the layers' weights. `shrink` adds so many
        clients who would leave every row as it is: a row that few have learnt then moves less.
        """
        voters: Array = counts if self.by_row else np.full(len(counts), n_clients)
        each = weight / n_clients if self.weighs_rows and n_clients else 1.0
        by = np.where((counts > 0) & (each > 0), (voters + shrink) * each, np.inf)  # rows without weight move nothing
        return sums * (1.0 / by).astype(np.float32)[:, None]

    def layers(self, sums: Floats, weight: float) -> Floats:
        """Return the average move of the layers [P] from their weighted sum."""
        return sums * np.float32(1.0 / weight if weight > 0 else 0.0)

    def moves(self, total: Total, ring: Ring, shrink: float = 0.0) -> tuple[dict[str, Floats], dict[str, Array]]:
        """Return the average moves of 'items' and of 'layers' (one row, its weight last), and which rows got one.

        Where all clients count, a client that does not mention a row sends a move of zero, so every row received one.
        Otherwise only mentioned rows did. Layers received one if their weights have a positive sum.
        """
        layers, counts, n_clients = ring.decode(total.sums["layers"])[0], total.counts["items"], total.n_clients
        weight = float(layers[-1])
        items = self.rows(ring.decode(total.sums["items"]), counts, n_clients, weight, shrink)
        moves = {"items": items, "layers": np.append(self.layers(layers[:-1], weight), np.float32(0))[None, :]}
        received = counts > 0 if self.by_row else np.full(len(counts), n_clients > 0)
        return moves, {"items": received, "layers": np.array([weight > 0])}


AVERAGES = {
    "simple-avg": Average(weighs_rows=False, weighs_layers=False, by_row=False),
    "fedavg": Average(weighs_rows=True, weighs_layers=True, by_row=False),
    "mf-fedavg": Average(weighs_rows=False, weighs_layers=True, by_row=True),
}
