"""fed-ease: EASE's item-to-item weights from a sketch of the Gram matrix, in one or two rounds of sums.

With a narrow table S [n_items, m], the sum over clients of x_u (x_u' S) is Y = G S, where G = X'X. From S and Y follows
the Nystrom approximation U L U' = Y (S'Y)^-1 Y' of G, and from how many clients mentioned each item its exact diagonal:
G ~ U L U' + diag(r). EASE needs P = (G + reg I)^-1, which is a diagonal plus a matrix of rank m, so nothing of the size
items x items is made. With m = n_items the sketch is G itself, and the weights are those of `ease`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy import linalg

from tacit.errors import MethodError
from tacit.methods.base import FederatedSpec, register
from tacit.methods.parts import reasons
from tacit.methods.parts.cold_items import COLD_ITEMS, ColdItemsConfig
from tacit.methods.parts.order import RECENCY, newest_item, newest_rows, recency_weights, recent_history, recent_matrix
from tacit.methods.parts.sums import (
    WARM,
    BySums,
    OuterSum,
    distinct,
    orthonormal,
    plan_items,
    rounding,
    shared_floats,
    start_table,
    to_float64,
)
from tacit.privacy.update_sink import UpdateSink
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Config, Floats, Model, Reason
from tacit.updates import Ring, Total, UpdatePlan

MOST_CELLS = 10**8  # of the sketch: about 5 GB while it is solved
OUTER = OuterSum()


class FedEASEConfig(Config):
    """Options of fed-ease."""

    sketch: int = Field(
        128,
        gt=0,
        description="m: width of the sketch, at most the number of items; each row of a message has m numbers",
    )
    epochs: int = Field(2, gt=0, description="rounds; each sketches with the directions that the round before found")
    reg: float = Field(300.0, gt=0, description="lambda: L2 regularisation of the item-to-item weights")
    exact_diagonal: bool = Field(
        True, description="correct the diagonal of the sketch by the counts of items, which the sums also give"
    )
    recency: float | None = Field(None, gt=0, description=RECENCY)
    cold_items: ColdItemsConfig | None = Field(None, description=COLD_ITEMS)
    warm_start: str | None = Field(None, description=WARM)


@register("fed-ease", FedEASEConfig)
class FedEASE(BySums):
    """EASE by sums: item-to-item weights from a sketched Gram matrix, in one or two rounds."""

    spec = FederatedSpec(
        item_tables=("sketch",),
        downloads=("sketch", "maps", "own", "precisions"),
        counted=("sketch",),
        item_rows="own",
        growth={"sketch": "orthonormal"},
    )

    def __init__(self, config: FedEASEConfig) -> None:
        super().__init__(config)
        self.config = config
        self._drawn: tuple[tuple[Key, int, int], Floats] | None = None

    def init(self, clients: Clients, catalog: Catalog, key: Key) -> Model:
        """Draw an orthonormal sketch, or take the directions that an earlier run has found."""
        n_items = catalog.n_items
        width = min(self.config.sketch, n_items)
        if n_items * width > MOST_CELLS:
            raise MethodError(
                f"fed-ease would sketch {n_items:,} items with {width:,} numbers each ({MOST_CELLS:,} in all at most).",
                f"Set method.sketch to {MOST_CELLS // n_items} or less, or use fed-svd.",
            )
        start = self._draw(key.child("sketch"), n_items, width)
        if self.config.warm_start is not None:
            start = np.linalg.qr(start_table(start, self.config.warm_start, "sketch", catalog))[0]
        nothing: dict[str, Array] = {
            "maps": np.zeros_like(start),
            "own": np.zeros(n_items),
            "precisions": np.ones(n_items),
        }
        return Model(shared_floats({"sketch": start, **nothing, **self.cold.start(catalog, width)}), {})

    def _draw(self, key: Key, n_items: int, width: int) -> Floats:
        """Return an orthonormal table; the last one is kept, since local-only models all begin with the same."""
        asked = (key, n_items, width)
        if self._drawn is None or self._drawn[0] != asked:
            table = np.linalg.qr(key.normal(np.arange(n_items), width).astype(np.float64))[0]
            self._drawn = (asked, table.astype(np.float32))
        return self._drawn[1]

    def plan(self, model: Model, clients: Clients, key: Key) -> UpdatePlan:
        """A row for every item."""
        return UpdatePlan(clients.ids, (plan_items("sketch", clients),))

    def learn(
        self, model: Model, clients: Clients, plan: UpdatePlan, sink: UpdateSink, key: Key
    ) -> Mapping[str, Array]:
        """Put x_u (x_u' S)."""
        OUTER.put(model.shared["sketch"], _ones(clients), clients, plan, sink)
        return {}

    def solve(self, shared: Mapping[str, Array], total: Total, ring: Ring) -> Mapping[str, Array]:
        """Approximate G from the sum, invert it, sketch with its directions next time. An empty sum changes nothing."""
        sums, counts = total.sums["sketch"], total.counts["sketch"]
        if not sums.any():
            return shared
        sketch, y = shared["sketch"].astype(np.float64), to_float64(sums, ring) / OUTER.unit
        noise = rounding(counts, ring) / OUTER.unit
        directions, values = nystrom(sketch, y, noise)
        rest = np.zeros(len(counts))
        if self.config.exact_diagonal:
            rest = np.maximum(counts - (directions**2) @ values, 0.0)
        maps, diagonal = invert_low_rank(directions, values, self.config.reg + rest)
        own = np.einsum("im,im->i", maps, maps)
        wide = np.zeros_like(sketch)  # fewer directions may be found than the sketch has; devices know one shape
        wide[:, : maps.shape[1]] = maps
        found = {"maps": wide, "own": own, "precisions": diagonal}
        return {**shared, **shared_floats({"sketch": orthonormal(y, noise), **found})}

    def score(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients) -> Floats:
        """Return X B."""
        maps, own, recency = _drop_zero_columns(shared["maps"]), shared["own"], self.config.recency
        alone = distinct(clients) if recency is None else newest_rows(clients)
        if recency is None:
            users = OUTER.project_users(maps, _ones(alone), alone)
        else:
            users = recent_matrix(alone, recency) @ maps
        found = users @ maps.T
        found[alone.rows, alone.items] -= recency_weights(alone, recency) * own[alone.items]  # none predicts itself
        scores = np.asarray(found / shared["precisions"], np.float32)
        cold = self.cold.unknown(shared)
        if len(cold):
            scores[:, cold] = users @ self.scored_rows(shared)[cold, : maps.shape[1]].T
        return scores

    def learnt_rows(self, shared: Mapping[str, Array]) -> Floats:
        """Return the columns of B through the sketch, without what keeps items from predicting themselves."""
        return np.asarray(shared["maps"] / shared["precisions"][:, None], np.float32)

    def explain(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], client: Clients, item: int
    ) -> list[Reason]:
        """Return items of the history by their weight towards the item: the score is their sum."""
        history, weights = recent_history(client, self.config.recency)
        maps = _drop_zero_columns(shared["maps"])
        parts = maps[history] @ self.scored_rows(shared)[item, : maps.shape[1]]
        return reasons.from_history(
            history, np.where(history == item, 0.0, weights * parts), newest_item(client, self.config.recency)
        )


def nystrom(sketch: Array, y: Array, noise: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return U [n, r] and L [r] with U L U' = Y (S'Y)^-1 Y', for Y = G S known up to noise and orthonormal S.

    Directions in which S'Y is no more than noise are left out, since nothing is known of them. Rows of zeros stay zero:
    with few items, as in a local-only model, only these cost time.
    """
    columns, rows = np.flatnonzero(sketch.any(axis=0)), np.flatnonzero(y.any(axis=1))
    mentioned = y[np.ix_(rows, columns)]
    core = sketch[np.ix_(rows, columns)].T @ mentioned
    lengths, vectors = linalg.eigh((core + core.T) / 2, subset_by_value=(noise, np.inf))
    half = mentioned @ (vectors / np.sqrt(lengths))  # G ~ half half'
    found, lengths, _ = linalg.svd(half, full_matrices=False)
    known = lengths**2 > noise
    directions = np.zeros((len(y), int(known.sum())))
    directions[rows] = found[:, known]
    return directions, lengths[known] ** 2


def invert_low_rank(
    directions: Array, values: Array, diagonal: Array
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return V and the diagonal of P, where P = (U L U' + D)^-1 = D^-1 - V V' (Woodbury)."""
    scaled = directions / diagonal[:, None]
    core = np.diag(1.0 / values) + directions.T @ scaled
    factor = linalg.cholesky(core, lower=True)
    maps = linalg.solve_triangular(factor, scaled.T, lower=True).T
    return maps, 1.0 / diagonal - np.einsum("im,im->i", maps, maps)


def _drop_zero_columns(maps: Floats) -> Floats:
    """Return the columns that hold a direction: those of zeros come last."""
    return maps if maps[:, -1].any() else np.ascontiguousarray(maps[:, maps.any(axis=0)])


def _ones(clients: Clients) -> Floats:
    return np.ones(clients.n_items, np.float32)
