"""fed-svd: the leading item directions of all histories, found by sums alone.

Subspace iteration on X'X needs only the sum over clients of x_u (x_u' Q). Each client multiplies its history with the
basis on its device and sends one row per item it has. The server adds and orthonormalises. A handful of rounds gives
the subspace that a centralised SVD has. In each row stands Q' x_u: only a secure sum hides it from the server.

With `cold_items.content` histories are summed in the directions of the public vectors as well: the table is [Q, E], and
E makes Q's space the one that holds the vectors too. E has a part in the rows of cold items only.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tacit.errors import MethodError
from tacit.methods.base import FederatedSpec, register
from tacit.methods.parts import reasons
from tacit.methods.parts.cold_items import COLD_ITEMS, VECTORS, ColdItemsConfig
from tacit.methods.parts.order import RECENCY, newest_item, recent_history, recent_matrix
from tacit.methods.parts.sums import (
    WARM,
    BySums,
    OuterSum,
    distinct,
    earlier,
    orthonormal,
    plan_items,
    rounding,
    shared_floats,
    start_table,
    to_float64,
)
from tacit.numerics import inner_product
from tacit.privacy.update_sink import UpdateSink
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Config, Floats, Model, Reason
from tacit.updates import Ring, Total, UpdatePlan

CONTAINED = 1e-4  # a column of the public vectors that Q holds but for so little adds no direction


class FedSVDColdItemsConfig(ColdItemsConfig):
    """Options of the map from public vectors to rows, which are regressions on what the sum tells of histories."""

    content: float = Field(
        0.0,
        ge=0,
        le=1e6,
        description="weight of a history's public vectors beside its directions, to predict who has an item; above 0, "
        "each row that is sent has as many numbers more as a vector",
    )
    shrinkage: float = Field(
        0.5,
        gt=0,
        le=1e6,
        description="L2 regularisation of the regressions that give the rows to learn from, in mean squares of a "
        "direction over all clients",
    )


class FedSVDConfig(Config):
    """Options of fed-svd."""

    former_names: ClassVar[Mapping[str, str]] = {"method.person_weight": "method.user_weight"}
    factors: int = Field(32, gt=0, description="k: number of singular directions that are kept")
    epochs: int = Field(6, gt=0, description="rounds; every client is asked in each")
    item_weight: float = Field(
        0.25, ge=0, le=1, description="weight of an item in n histories is n^-w: popular items count less"
    )
    user_weight: float = Field(
        0.0,
        ge=0,
        le=0.5,
        description="weight of a history of n items is n^-v; at 0.5 each client's contribution is bounded by 1",
    )
    recency: float | None = Field(None, gt=0, description=RECENCY)
    cold_items: FedSVDColdItemsConfig | None = Field(None, description=COLD_ITEMS)
    warm_start: str | None = Field(None, description=WARM)


@register("fed-svd", FedSVDConfig)
class FedSVD(BySums):
    """The singular value decomposition of all histories by sums: exact, in a few rounds, new users fold in."""

    spec = FederatedSpec(
        item_tables=("basis",),
        downloads=("basis", "weights"),
        server_state=("angles",),
        counted=("basis",),
        item_rows="own",
        growth={"basis": "orthonormal"},
    )

    def __init__(self, config: FedSVDConfig) -> None:
        super().__init__(config)
        self.config = config
        self.outer = OuterSum(config.user_weight)
        self.has_content = config.cold_items is not None and config.cold_items.content > 0
        if self.has_content and config.user_weight > 0:
            raise MethodError(
                f"method.cold_items.content needs method.user_weight 0, not {config.user_weight:g}.",
                "Set method.user_weight to 0, or leave content out.",
            )

    def init(self, clients: Clients, catalog: Catalog, key: Key) -> Model:
        """Draw a random basis, or take that of an earlier run; the weights of items are learnt from the first sum."""
        c, n_items = self.config, catalog.n_items
        if c.factors > n_items:
            raise MethodError(
                f"fed-svd cannot find {c.factors} directions among {n_items} items.", "Lower method.factors."
            )
        start = _draw_basis(key.child("basis"), n_items, c.factors)
        weights = np.ones(n_items)
        if c.warm_start is not None:
            start = np.linalg.qr(start_table(start, c.warm_start, "basis", catalog))[0]
            before, there, here = earlier(c.warm_start, ("weights",), catalog)
            weights[here] = before["weights"][there]
        width = c.factors + (0 if not self.has_content or catalog.vectors is None else catalog.vectors.shape[1])
        cold = self.cold.start(catalog, width)
        arrays = {"basis": self._with_content(start, cold), "weights": weights, "angles": np.zeros(0), **cold}
        return Model(shared_floats(arrays), {})

    def _with_content(self, basis: Array, shared: Mapping[str, Array]) -> Array:
        """Return orthonormal columns Q, and beside them those that the public vectors add, where they are summed."""
        if not self.has_content:
            return basis
        vectors = shared[VECTORS][:, :-1].astype(np.float64)  # the last number is the constant term
        for _ in range(2):  # once is not enough where Q holds nearly all of a column
            vectors = vectors - basis @ (basis.T @ vectors)
        return np.hstack([basis, orthonormal(vectors, CONTAINED)])

    def _directions(self, shared: Mapping[str, Array]) -> Floats:
        """Return Q."""
        return np.ascontiguousarray(shared["basis"][:, : self.config.factors])

    def project_users(self, shared: Mapping[str, Array], clients: Clients) -> Floats:
        """Return [Q, E]' x_u of each client: from the history alone, so that new users have one too."""
        if self.config.recency is not None:
            table = shared["weights"][:, None] * shared["basis"]
            return np.asarray(recent_matrix(clients, self.config.recency) @ table, np.float32)
        return self.outer.project_users(shared["basis"], shared["weights"], distinct(clients))

    def plan(self, model: Model, clients: Clients, key: Key) -> UpdatePlan:
        """A row for every item."""
        return UpdatePlan(clients.ids, (plan_items("basis", clients),))

    def learn(
        self, model: Model, clients: Clients, plan: UpdatePlan, sink: UpdateSink, key: Key
    ) -> Mapping[str, Array]:
        """Put x_u (x_u' [Q, E])."""
        self.outer.put(model.shared["basis"], model.shared["weights"], clients, plan, sink)
        return {}

    def solve(self, shared: Mapping[str, Array], total: Total, ring: Ring) -> Mapping[str, Array]:
        """Orthonormalise the sum; the first also gives the clients per item. An empty sum changes nothing.

        Directions beyond what the data supports, up to rounding, become zero and stay so.
        """
        counts = total.counts["basis"]
        if not total.sums["basis"].any():
            return shared
        before, weights = self._directions(shared).astype(np.float64), shared["weights"].astype(np.float64)
        sums = to_float64(total.sums["basis"][:, : before.shape[1]], ring)
        if not len(shared["angles"]):
            earlier_weights, weights = weights, np.maximum(counts, 1) ** -self.config.item_weight
            sums *= (weights / earlier_weights)[:, None]  # each row carries the old weight of its item
        basis = orthonormal(sums, rounding(counts, ring))
        angles = np.append(shared["angles"], largest_angle(before, basis))
        wide = self._with_content(basis, shared)
        return {**shared, **shared_floats({"basis": wide, "weights": weights, "angles": angles})}

    def rows_to_map(
        self, before: Mapping[str, Array], found: Mapping[str, Array], total: Total, ring: Ring
    ) -> NDArray[np.floating]:
        """Return rows that predict who has an item from the *other* items of a history, as a cold item needs it.

        With p = T'x for the table T = [Q, E], an item's part of the sum is that of p over the clients that have it. Its
        own part of each p is taken out, n w t, and the ridge regression on z = A'p is solved, where z is Q'x and, with
        content, the sum of public vectors. Its Gramian A'T'X'X T A follows from the sum too. Where histories have
        weights, an item's own part of the sum is not known: then rows are as they were learnt.
        """
        cold = self.config.cold_items
        if self.config.user_weight > 0 or cold is None:
            return self.learnt_rows(found)
        table, weights = (before[name].astype(np.float64) for name in ("basis", "weights"))
        sums = to_float64(total.sums["basis"], ring) / self.outer.unit
        others = sums / weights[:, None] - (total.counts["basis"] * weights)[:, None] * table
        chosen = np.eye(table.shape[1])[:, : self.config.factors]  # A: T A is what histories are multiplied with
        if self.has_content:
            chosen = np.hstack([chosen, cold.content * table.T @ before[VECTORS][:, :-1].astype(np.float64)])
        gram = chosen.T @ (table.T @ sums) @ chosen
        values, vectors = np.linalg.eigh((gram + gram.T) / 2)
        values = np.maximum(values, 0.0)  # noise of a guarantee
        unit = max(np.diag(gram)[: self.config.factors].mean(), 1e-12)
        solved = chosen @ (vectors / (values + cold.shrinkage * unit)) @ vectors.T @ chosen.T
        coordinates = found["basis"].astype(np.float64).T @ ((weights / found["weights"])[:, None] * table)
        return np.asarray(others @ solved @ coordinates.T, np.float64)

    def score(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients) -> Floats:
        """Return (x W) Q Q' W^-1: the weighted history, projected on the kept directions, unweighted again.

        Cold items are scored with all of [Q, E].
        """
        users = self.project_users(shared, clients)
        if not self.has_content:
            return np.asarray(users @ self.scored_rows(shared).T, np.float32)
        known = np.ascontiguousarray(users[:, : self.config.factors])
        scores = np.asarray(known @ self._weighed_directions(shared).T, np.float32)
        cold = self.cold.unknown(shared)
        if len(cold):
            scores[:, cold] = users @ self.scored_rows(shared)[cold].T
        return scores

    def learnt_rows(self, shared: Mapping[str, Array]) -> Floats:
        """Return W^-1 [Q, 0]: what an item's public vector says has no part in its own score."""
        rows = self._weighed_directions(shared)
        spare = shared["basis"].shape[1] - rows.shape[1]
        return np.pad(rows, ((0, 0), (0, spare))) if spare else rows

    def _weighed_directions(self, shared: Mapping[str, Array]) -> Floats:
        """Return W^-1 Q."""
        return np.asarray(self._directions(shared) / shared["weights"][:, None], np.float32)

    def explain(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], client: Clients, item: int
    ) -> list[Reason]:
        """Return the part of each item of the history in the score."""
        history, weights = recent_history(client, self.config.recency)
        parts = weights * shared["weights"][history] * (shared["basis"][history] @ self.scored_rows(shared)[item])
        return reasons.from_history(history, parts, newest_item(client, self.config.recency))


@lru_cache(maxsize=1)
def _draw_basis(key: Key, n_items: int, n_factors: int) -> Array:
    """Draw an orthonormal table; local-only models, one after the other, begin with the same one."""
    found: Array = np.linalg.qr(key.normal(np.arange(n_items), n_factors).astype(np.float64))[0]
    found.flags.writeable = False
    return found


def largest_angle(before: Array, after: Array) -> float:
    """Return the largest principal angle from one subspace to another in radians: 0 once the iteration stands still."""
    products = inner_product(before, after)
    kept = products.any(axis=0)  # columns of zeros are left out; whole ones are looked at only where that may be
    kept = kept if kept.all() else after.any(axis=0)
    cosines = np.linalg.svd(products[:, kept], compute_uv=False)
    return float(np.arccos(np.clip(cosines.min(initial=1.0), 0.0, 1.0)))
