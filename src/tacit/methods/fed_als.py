"""fed-als: implicit ALS (Hu, Koren, Volinsky, 2008) with the item side solved from sums of normal equations.

A device solves its own vector p from the item table and its Gramian. For each of its items it sends the upper triangle
of p p' and p itself, and one row more for the Gramian of all clients. The server solves every item: (P'P + reg I +
alpha sum p p') q = (1 + alpha) sum p. The objective, and its minimum, are those of `als`.

Range: p minimises (1 + alpha) sum over own items of (1 - p.q)^2 + sum over others of (p.q)^2 + reg |p|^2, from which
|p|^2 <= (1 + alpha) n / (4 reg) for n items, whatever the item table is. Rows are scaled so that 4,096 items fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tacit.kernels.als import solve_rows, solve_weighted_rows
from tacit.kernels.outer import normal_rows
from tacit.methods.base import FederatedSpec, register
from tacit.methods.parts import reasons
from tacit.methods.parts.cold_items import COLD_ITEMS, ColdItemsConfig
from tacit.methods.parts.order import RECENCY, newest_item, recent_history, recent_matrix
from tacit.methods.parts.sums import (
    LONG_HISTORY,
    WARM,
    BySums,
    disclose_histories,
    distinct,
    plan_items,
    shared_floats,
    start_table,
    to_float64,
)
from tacit.privacy.update_sink import UpdateSink
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Config, Floats, Model, Reason
from tacit.updates import PlannedRows, Ring, Total, UpdatePlan

SOLVED_AT_ONCE = 2**22  # numbers in the systems that are solved together


class FedALSConfig(Config):
    """Options of fed-als."""

    former_names: ClassVar[Mapping[str, str]] = {"method.person_weight": "method.user_weight"}
    factors: int = Field(
        16, gt=0, le=128, description="F: length of a latent vector; each row of a message has F(F+3)/2 numbers"
    )
    epochs: int = Field(10, gt=0, description="rounds; every client is asked in each")
    alpha: float = Field(2.0, gt=0, description="weight of an item of the history is 1 + alpha, of any other item 1")
    reg: float = Field(20.0, gt=0, description="lambda: L2 regularisation of all vectors")
    init_scale: float = Field(0.1, gt=0, description="standard deviation of the initial item vectors")
    user_weight: float = Field(
        0.0,
        ge=0,
        le=1.5,
        description="weight of a client with n items is n^-v on the item side; at 1.5 its contribution is bounded",
    )
    recency: float | None = Field(None, gt=0, description=RECENCY)
    cold_items: ColdItemsConfig | None = Field(None, description=COLD_ITEMS)
    warm_start: str | None = Field(None, description=WARM)


@register("fed-als", FedALSConfig)
class FedALS(BySums):
    """Implicit ALS by sums: clients solve themselves, the server solves items from sums of normal equations."""

    spec = FederatedSpec(
        item_tables=("normal",),
        other_tables=("gram",),
        downloads=("items",),
        counted=("normal",),
        item_rows="own",
        growth={"items": "zeros"},  # a client's vector is solved from all items: drawn rows would move it
    )

    def __init__(self, config: FedALSConfig) -> None:
        super().__init__(config)
        self.config = config

    def init(self, clients: Clients, catalog: Catalog, key: Key) -> Model:
        """Draw the item vectors, or take those of an earlier run."""
        c, n_items = self.config, catalog.n_items
        drawn = key.child("items").normal(np.arange(n_items), c.factors, c.init_scale)
        items = start_table(drawn, c.warm_start, "items", catalog).astype(np.float64)
        return Model(shared_floats({"items": items, **self.cold.start(catalog, c.factors)}), {})

    def solve_users(self, shared: Mapping[str, Array], clients: Clients) -> Floats:
        """Return the vector p of each client, [C, F]: from the history alone, so that new users have one too."""
        items, alone = shared["items"], distinct(clients)
        system = self._system(items).astype(np.float32)
        return np.asarray(solve_rows(alone.ptr, alone.items, items, system, np.float32(self.config.alpha)))

    def bound(self, n_items: int) -> float:
        """Return the largest |p|^2 of a client with so many items."""
        return (1.0 + self.config.alpha) * n_items / (4.0 * self.config.reg)

    def scales(self, ring: Ring) -> NDArray[np.float32]:
        """Return what p p' and p are multiplied with so that a history of 4,096 fits the ring: powers of two."""
        longest = self.bound(int(LONG_HISTORY))
        return np.exp2(np.floor(np.log2(ring.largest / np.array([longest, np.sqrt(longest)])))).astype(np.float32)

    def shapes(self, shared: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
        """Normal equations of items, and one row for the Gramian of clients."""
        n_items, factors = shared["items"].shape
        triangle = factors * (factors + 1) // 2
        return {"normal": (n_items, triangle + factors), "gram": (1, triangle)}

    def plan(self, model: Model, clients: Clients, key: Key) -> UpdatePlan:
        """A row for every item, and one for the Gramian, which names no item."""
        one = PlannedRows("gram", np.arange(len(clients) + 1), np.zeros(len(clients), np.int32), False)
        return UpdatePlan(clients.ids, (plan_items("normal", clients), one))

    def learn(
        self, model: Model, clients: Clients, plan: UpdatePlan, sink: UpdateSink, key: Key
    ) -> Mapping[str, Array]:
        """Put the same row for every item: the upper triangle of p p', which is the Gramian's row too, and p."""
        shared, known = model.shared, disclose_histories(clients, plan.parts[0])
        solve_users = self.solve_users(shared, known)
        shares = np.maximum(known.sizes, 1).astype(np.float32) ** np.float32(-self.config.user_weight)
        shapes = self.shapes(shared)
        rows = np.empty((len(known), shapes["normal"][1]), np.float32)
        normal_rows(solve_users, shares, self.scales(sink.ring), sink.ring.scale, rows)
        sink.put_outer(0, rows)
        sink.put(1, np.ascontiguousarray(rows[:, : shapes["gram"][1]]))
        return {}

    def solve(self, shared: Mapping[str, Array], total: Total, ring: Ring) -> Mapping[str, Array]:
        """Solve for every item; an item that no client mentions becomes zero. An empty sum changes nothing."""
        counts = total.counts["normal"]
        if not counts.any():
            return shared
        c, scales = self.config, self.scales(ring).astype(np.float64)
        triangle = self.shapes(shared)["gram"][1]
        gram = to_float64(total.sums["gram"], ring) / scales[0]
        system = _square(gram, c.factors)[0] + c.reg * np.eye(c.factors)
        items = np.zeros((len(counts), c.factors))
        mentioned = np.flatnonzero(counts)
        for start in range(0, len(mentioned), step := max(1, SOLVED_AT_ONCE // c.factors**2)):
            some = mentioned[start : start + step]
            sums = to_float64(total.sums["normal"][some], ring)
            own = _square(sums[:, :triangle] / scales[0], c.factors)
            right = (1.0 + c.alpha) * sums[:, triangle:] / scales[1]
            items[some] = np.linalg.solve(system + c.alpha * own, right[..., None])[..., 0]
        return {**shared, **shared_floats({"items": items})}

    def learnt_rows(self, shared: Mapping[str, Array]) -> Floats:
        """Return Q. Rows of cold items are no part of it: they would move every client's vector."""
        return np.asarray(shared["items"], np.float32)

    def score(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients) -> Floats:
        """Return P Q'."""
        items, scored, recency = shared["items"], self.scored_rows(shared), self.config.recency
        if recency is None:
            return np.asarray(self.solve_users(shared, clients) @ scored.T)
        recent, system = recent_matrix(clients, recency), self._system(items).astype(np.float32)
        rows = recent.indptr, recent.indices, recent.data
        return np.asarray(solve_weighted_rows(*rows, items, system, np.float32(self.config.alpha)) @ scored.T)

    def explain(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], client: Clients, item: int
    ) -> list[Reason]:
        """Return items of the history by their part of the score, which is a sum over the history (section 5)."""
        vectors, (history, weights) = shared["items"], recent_history(client, self.config.recency)
        chosen = vectors[history].astype(np.float64)
        system = self._system(vectors) + self.config.alpha * (weights[:, None] * chosen).T @ chosen
        solved = np.linalg.solve(system, self.scored_rows(shared)[item])
        return reasons.from_history(history, weights * (chosen @ solved), newest_item(client, self.config.recency))

    def _system(self, items: Floats) -> NDArray[np.float64]:
        """Return Q'Q + reg I. Every device makes it: it is a sum over items, so its numbers grow with the catalogue."""
        wide = items.astype(np.float64)
        system: NDArray[np.float64] = wide.T @ wide + self.config.reg * np.eye(items.shape[1])
        return system


def _square(triangles: Array, n: int) -> NDArray[np.float64]:
    """Return symmetric matrices [R, n, n] of their upper triangles [R, n (n + 1) / 2]."""
    full = np.empty((len(triangles), n, n))
    above = np.triu_indices(n)
    full[:, above[0], above[1]] = triangles
    full[:, above[1], above[0]] = triangles
    return full
