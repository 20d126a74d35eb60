"""fed-svd: the leading item directions of all histories, found by sums alone.

Subspace iteration on X'X needs only the sum over clients of x_u (x_u' Q). Each client multiplies its history with the
basis on its device and sends one row per item it has. The server adds and orthonormalises. A handful of rounds gives
the subspace that a centralised SVD has. In each row stands Q' x_u: only a secure sum hides it from the server.
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
from tacit.methods.parts.cold_items import COLD_ITEMS, ColdItemsConfig
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

SHRINKAGE = 0.5  # of the regression that the map for cold items learns from, in mean diagonal elements of its Gramian


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
    cold_items: ColdItemsConfig | None = Field(None, description=COLD_ITEMS)
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
        arrays = {"basis": start, "weights": weights, "angles": np.zeros(0), **self.cold.start(catalog, c.factors)}
        return Model(shared_floats(arrays), {})

    def project_users(self, shared: Mapping[str, Array], clients: Clients) -> Floats:
        """Return Q' x_u of each client, [C, k]: from the history alone, so that new users have one too."""
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
        """Put x_u (x_u' Q)."""
        self.outer.put(model.shared["basis"], model.shared["weights"], clients, plan, sink)
        return {}

    def solve(self, shared: Mapping[str, Array], total: Total, ring: Ring) -> Mapping[str, Array]:
        """Orthonormalise the sum; the first also gives the clients per item. An empty sum changes nothing.

        Directions beyond what the data supports, up to rounding, become zero and stay so.
        """
        counts = total.counts["basis"]
        if not total.sums["basis"].any():
            return shared
        sums, weights = to_float64(total.sums["basis"], ring), shared["weights"].astype(np.float64)
        if not len(shared["angles"]):
            before, weights = weights, np.maximum(counts, 1) ** -self.config.item_weight
            sums *= (weights / before)[:, None]  # each row carries the old weight of its item
        basis = orthonormal(sums, rounding(counts, ring))
        angles = np.append(shared["angles"], largest_angle(shared["basis"].astype(np.float64), basis))
        return {**shared, **shared_floats({"basis": basis, "weights": weights, "angles": angles})}

    def rows_to_map(
        self, before: Mapping[str, Array], found: Mapping[str, Array], total: Total, ring: Ring
    ) -> NDArray[np.floating]:
        """Return rows that predict who has an item from the *other* items of a history, as a cold item needs it.

        With p = Q'x, an item's part of the sum is that of p over the clients that have it. Its own part of each p is
        taken out, n w q, and the ridge regression on p is solved, whose Gramian Q'X'X Q follows from the sum too.
        Where histories have weights, an item's own part of the sum is not known: then rows are as they were learnt.
        """
        if self.config.user_weight > 0:
            return self.learnt_rows(found)
        basis, weights = (before[name].astype(np.float64) for name in ("basis", "weights"))
        sums = to_float64(total.sums["basis"], ring) / self.outer.unit
        gram = basis.T @ sums
        others = sums / weights[:, None] - (total.counts["basis"] * weights)[:, None] * basis
        values, vectors = np.linalg.eigh((gram + gram.T) / 2)
        values = np.maximum(values, 0.0)  # noise of a guarantee
        solved = (vectors / (values + SHRINKAGE * max(values.mean(), 1e-12))) @ vectors.T
        rows = others @ solved
        coordinates = found["basis"].astype(np.float64).T @ ((weights / found["weights"])[:, None] * basis)
        return np.asarray(rows @ coordinates.T, np.float64)

    def score(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients) -> Floats:
        """Return (x W) Q Q' W^-1: the weighted history, projected on the kept directions, unweighted again."""
        return np.asarray(self.project_users(shared, clients) @ self.scored_rows(shared).T, np.float32)

    def learnt_rows(self, shared: Mapping[str, Array]) -> Floats:
        """Return W^-1 Q."""
        return np.asarray(shared["basis"] / shared["weights"][:, None], np.float32)

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
