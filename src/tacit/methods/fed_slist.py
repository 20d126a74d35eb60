"""fed-slist: the next-item model of `slist` by sums, exact at full width and through a learnt basis below.

`slist` needs S'S and S'T, sums over the steps of all histories. Of S'T, the leading left and right directions P and V
[n_items, m] are found by alternating. A round that *finds* sums (S'T) V, which gives the next P. The round after it
*solves*: it sums S'S P and (S'T)'P, which give the regression restricted to P, B = P (P'S'S P + reg P'P)^-1 P'S'T, and
the next V. A device's rows follow from recursions over its steps, in one pass. With m = n_items, P is the identity,
nothing is left to find, and B is that of `slist` after one round.

Range: no number of a row is above 1, however long the history is, since P and V have no longer rows than 1.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy import linalg

from tacit.errors import MethodError
from tacit.kernels.sequences import direction_rows, regression_rows
from tacit.methods.base import FederatedSpec, Schedule, register
from tacit.methods.parts import reasons
from tacit.methods.parts.cold_items import COLD_ITEMS, ColdItemsConfig
from tacit.methods.parts.order import Decays, newest_item, newest_rows, recent_history, recent_matrix
from tacit.methods.parts.sums import (
    WARM,
    BySums,
    keep_items,
    orthonormal,
    rounding,
    shared_floats,
    start_table,
    to_float64,
)
from tacit.methods.slist import DECAY, TARGET_DECAY
from tacit.privacy.draft import largest_of
from tacit.privacy.update_sink import UpdateSink
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Config, Floats, Model, Reason
from tacit.updates import PlannedRows, Ring, Total, UpdatePlan

MOST_CELLS = 10**8  # of a table: about 5 GB while it is solved


class FedSLISTConfig(Config):
    """Options of fed-slist."""

    factors: int = Field(
        96,
        gt=0,
        description="m: width of the basis, at most the number of items; a row sent has m or 2 m numbers in turn",
    )
    epochs: int = Field(
        2, gt=0, description="passes of two rounds, one that finds directions and one that solves; all clients in each"
    )
    decay: float = Field(3.0, gt=0, le=100, description=DECAY)
    target_decay: float = Field(1.0, ge=0, le=100, description=TARGET_DECAY)
    reg: float = Field(100.0, gt=0, description="lambda: L2 regularisation of the item-to-item weights")
    item_weight: float = Field(
        0.4, ge=0, le=1, description="directions are found with items of n histories weighted by n^-w"
    )
    user_weight: float = Field(
        0.0,
        ge=0,
        le=1,
        description="weight of the steps of a history of n items is n^-v; at 0.5 a client's contribution is bounded",
    )
    cold_items: ColdItemsConfig | None = Field(None, description=COLD_ITEMS)
    warm_start: str | None = Field(None, description=WARM)


@register("fed-slist", FedSLISTConfig)
class FedSLIST(BySums):
    """slist by sums: what comes next, from order that stays on devices, in a few rounds."""

    spec = FederatedSpec(
        item_tables=("steps",),
        downloads=("targets", "sources", "basis", "solves"),
        counted=("steps",),
        item_rows="own",
        shows_order=True,
        growth={"basis": "orthonormal", "sources": "zeros", "targets": "orthonormal"},
    )

    def __init__(self, config: FedSLISTConfig) -> None:
        super().__init__(config)
        self.config = config
        self.decays = Decays(config.decay, config.target_decay)

    def init(self, clients: Clients, catalog: Catalog, key: Key) -> Model:
        """Draw a basis, or take the directions that an earlier run has found; at full width it is the identity."""
        c, n_items = self.config, catalog.n_items
        width = min(c.factors, n_items)
        if n_items * width > MOST_CELLS:
            raise MethodError(
                f"fed-slist would have {n_items:,} items with {width:,} numbers each ({MOST_CELLS:,} in all at most).",
                f"Set method.factors to {MOST_CELLS // n_items} or less.",
            )
        is_full = width == n_items
        basis: Array = np.eye(n_items, width)
        targets: Array = basis
        if not is_full:
            drawn = key.child("targets").normal(np.arange(n_items), width)
            targets = np.linalg.qr(drawn.astype(np.float64))[0]
            if c.warm_start is not None:
                targets = np.linalg.qr(start_table(targets, c.warm_start, "targets", catalog))[0]
        sources = np.zeros((n_items, width))
        solves = np.array([float(is_full)])
        arrays = {"basis": basis, "targets": targets, "sources": sources, "solves": solves}
        return Model(shared_floats({**arrays, **self.cold.start(catalog, width)}), {})

    def schedule(self, clients: Clients) -> Schedule:
        """All clients in every round; a pass has two of them, or one where nothing is to be found."""
        return Schedule(self.config.epochs, 1 if self.config.factors >= clients.n_items else 2, len(clients))

    def shapes(self, shared: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
        """As wide as the basis in a round that finds directions, twice as wide in one that solves."""
        n_items, width = shared["basis"].shape
        return {"steps": (n_items, (2 if shared["solves"][0] else 1) * width)}

    def plan(self, model: Model, clients: Clients, key: Key) -> UpdatePlan:
        """A row for every item."""
        own = newest_rows(clients)
        return UpdatePlan(clients.ids, (PlannedRows("steps", own.ptr, own.items, True),))

    def learn(
        self, model: Model, clients: Clients, plan: UpdatePlan, sink: UpdateSink, key: Key
    ) -> Mapping[str, Array]:
        """Put the rows of the round, made of the disclosed items alone, as if there were no others."""
        own, part = newest_rows(clients), plan.parts[0]
        is_whole = part.kept is None or bool(part.kept.all())
        known = own if is_whole else keep_items(own, part.kept.astype(np.bool_))  # type: ignore[union-attr]
        items = known.items[known.in_order]
        shares = np.maximum(known.sizes, 1).astype(np.float32) ** np.float32(-self.config.user_weight)
        shared = model.shared
        leave_rows, table = (
            (regression_rows, shared["basis"]) if shared["solves"][0] else (direction_rows, shared["targets"])
        )
        steps = np.array(self.decays.units, np.float32), np.float32(self.decays.a), np.float32(self.decays.b)
        fits = largest_of(table) <= sink.ring.largest  # no number of a row is above those of the table
        total = sink.direct() if fits else None
        if total is not None:
            leave_rows(known.ptr, items, items, shares, *steps, table, sink.ring.scale, total.sums["steps"])
            total.counts["steps"] += np.bincount(items, minlength=known.n_items)
            return {}
        places = known.in_order if is_whole else np.flatnonzero(part.kept)[known.in_order]  # type: ignore[arg-type]
        width = self.shapes(shared)["steps"][1]
        for block in sink.blocks(4 * width * max(1, len(own.items) // max(1, len(own)))):
            first, last = int(own.ptr[block.start]), int(own.ptr[block.stop])
            at = slice(int(known.ptr[block.start]), int(known.ptr[block.stop]))
            rows = np.zeros((last - first, width), np.float32)
            ptr = known.ptr[block.start : block.stop + 1] - at.start
            leave_rows(ptr, items[at], places[at] - first, shares[block], *steps, table, sink.ring.scale, rows)
            sink.put(0, rows)
        return {}

    def solve(self, shared: Mapping[str, Array], total: Total, ring: Ring) -> Mapping[str, Array]:
        """Find the next basis, or solve the regression restricted to it. An empty sum changes nothing."""
        if not total.sums["steps"].any():
            return shared
        basis, counts = shared["basis"].astype(np.float64), total.counts["steps"]
        m, (near, far) = basis.shape[1], self.decays.units
        sums, noise = to_float64(total.sums["steps"], ring), rounding(counts, ring) / far
        if not shared["solves"][0]:
            weights = np.maximum(counts, 1.0)[:, None] ** -self.config.item_weight
            found = weights * orthonormal(weights * sums / far, noise)
            return {**shared, **shared_floats({"basis": found, "solves": np.ones(1)})}
        to_targets = sums[:, m:] / far  # (S'T)'P
        solved = self._solve(basis, sums[:, :m] / near)  # P C^-1, [n, m]
        if m == len(basis):
            return {**shared, **shared_floats({"sources": solved @ to_targets.T})}
        targets = orthonormal(to_targets, noise)
        sources = solved @ (to_targets.T @ targets)
        return {**shared, **shared_floats({"sources": sources, "targets": targets, "solves": np.zeros(1)})}

    def _solve(self, basis: NDArray[np.float64], gram: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return P (P'S'S P + reg P'P)^-1; directions that the basis lacks stay zero. Noise makes nothing negative."""
        used = np.flatnonzero(basis.any(axis=0))
        known = basis[:, used]
        core, ridge = known.T @ gram[:, used], self.config.reg * (known.T @ known)
        core = (core + core.T) / 2
        try:
            factor = linalg.cho_factor(core + ridge, lower=True)
        except linalg.LinAlgError:  # noise of a guarantee
            values, vectors = linalg.eigh(core)
            factor = linalg.cho_factor((vectors * np.maximum(values, 0.0)) @ vectors.T + ridge, lower=True)
        solved = np.zeros_like(basis)
        solved[:, used] = linalg.cho_solve(factor, known.T).T
        return solved

    def score(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients) -> Floats:
        """Return s B for the source s after the last step."""
        sources = recent_matrix(clients, self.config.decay) @ shared["sources"]
        return np.asarray(sources @ self.scored_rows(shared).T, np.float32)

    def moves_rows(self, shared: Mapping[str, Array]) -> bool:
        """A round that finds directions leaves them as they are."""
        return bool(shared["solves"][0])

    def learnt_rows(self, shared: Mapping[str, Array]) -> Floats:
        """Return the targets."""
        return np.asarray(shared["targets"], np.float32)

    def explain(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], client: Clients, item: int
    ) -> list[Reason]:
        """Return items of the history by their part of the score, which is their sum: recent ones weigh more."""
        history, weights = recent_history(client, self.config.decay)
        return reasons.from_history(
            history,
            weights * (shared["sources"][history] @ self.scored_rows(shared)[item]),
            newest_item(client, self.config.decay),
        )
