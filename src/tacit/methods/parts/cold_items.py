"""Rows for cold items, which are in no history: a ridge regression from public vectors to the rows that were learnt.

Methods by sums score a client's vector times the row r_i of an item. After each sum the server fits M to

    sum over known items of c_i |r_i - M' v_i|^2 + reg |M|^2        c_i = n_i^weight, 1 on average

where v_i is the item's public vector at length 1, and n_i how many clients have it, as the sum has counted them. The
constant term is not regularised. A method may give other rows to learn from than those it scores with. An item that is
not known has the row M' v_i.

With `features` that is only the first step. A second regression takes, beside v_i, random features of M' v_i: cosines
of random directions, whose products approach a Gaussian kernel (Rahimi and Recht, 2007). So items are near each other
that the first step expects to be liked by the same clients. For a known item, the first step's row is that of a map
which is learnt without this item, as for a cold one; ridge regression gives it in closed form.

All of it follows from the released sum and the public catalogue: devices send nothing more, and under differential
privacy it is post-processing, which costs nothing. The catalogue may grow between two sums: M is part of the model, so
a new item has a row at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tacit.errors import MethodError
from tacit.methods.base import FederatedSpec
from tacit.random import Key
from tacit.types import Array, Catalog, Config, Floats

COLD_ITEMS = (
    "rows of items that are in no history, from public vectors (data.vectors); none: such items are not recommended"
)
SPREAD, SHARE = 0.3, 3.0  # random features: the kernel is SHARE exp(-SPREAD |difference|^2), beside v'w
DRAWS = Key(0).child("random features")  # the same on every device, whatever the catalogue
VECTORS, FIRST_MAP, MAP, KNOWN = "vectors", "first_cold_map", "cold_map", "known"  # shared arrays


class ColdItemsConfig(Config):
    """Options of the map from public vectors to rows of items."""

    reg: float = Field(10.0, gt=0, description="lambda: L2 regularisation of the map, in known items")
    features: int = Field(
        0, ge=0, le=8192, description="random features of the row that a first, linear map predicts, for a second map"
    )
    weight: float = Field(0.5, ge=0, le=1, description="an item in n histories counts n^w in the map")
    below: float = Field(
        1.0, gt=0, description="items in fewer histories, as the sum counts them, have their row from the map too"
    )
    boost: float = Field(
        1.0, gt=0, description="scores of such items are multiplied with it: above 1, new items are shown more"
    )


class ColdItemMap:
    """The map of one method; without options it does nothing."""

    def __init__(self, config: ColdItemsConfig | None) -> None:
        self.config = config
        self._last: tuple[tuple[Array, ...], Floats] | None = None

    def extend_spec(self, spec: FederatedSpec) -> FederatedSpec:
        """Return the spec with the arrays of the map."""
        if self.config is None:
            return spec
        maps = (FIRST_MAP, MAP) if self.config.features else (MAP,)
        return replace(
            spec,
            downloads=(*spec.downloads, *maps, KNOWN),
            constants=(*spec.constants, VECTORS),
            needs=(*spec.needs, "vectors"),
            growth={**spec.growth, **dict.fromkeys((*maps, KNOWN), "zeros")},
        )

    def start(self, catalog: Catalog, width: int) -> dict[str, Array]:
        """Return the arrays before the first sum: no item has its row from the map."""
        if self.config is None:
            return {}
        if catalog.vectors is None:
            raise MethodError(
                "method.cold_items needs public vectors of items, and this catalogue has none.",
                "Set data.vectors to a file of vectors, or to true to make them from categories and titles.",
            )
        vectors = np.hstack([catalog.vectors, np.ones((catalog.n_items, 1))])
        n_features, n_inputs = self.config.features, vectors.shape[1]
        first: dict[str, Array] = {FIRST_MAP: np.zeros((n_inputs, width))} if n_features else {}
        return {VECTORS: vectors, **first, MAP: np.zeros((n_inputs + n_features, width)), KNOWN: np.ones(len(vectors))}

    def learn(
        self, shared: Mapping[str, Array], rows: Floats, to_learn: Array, counts: NDArray[np.int64]
    ) -> dict[str, Array]:
        """Return the map after a sum, and which items have a row; the map learns from other rows, `to_learn`."""
        if self.config is None:
            return {}
        known = (counts >= self.config.below) & rows.any(axis=1)
        if not known.any():
            return {KNOWN: known.astype(np.float32)}
        vectors, weights = shared[VECTORS][known].astype(np.float64), counts[known].astype(np.float64)
        weights **= self.config.weight
        weights /= weights.mean()
        wanted, found = to_learn[known].astype(np.float64), {KNOWN: known.astype(np.float32)}
        learnt, without = _regress(vectors, wanted, weights, self.config.reg)
        if self.config.features:
            size = np.sqrt(np.mean(((without - without.mean(axis=0)) ** 2).sum(axis=1))) or 1.0
            found[FIRST_MAP] = np.ascontiguousarray(learnt / size, np.float32)  # predicted rows vary by 1
            inputs = np.hstack([_features(without / size, self.config.features), vectors])
            learnt, _ = _regress(inputs, wanted, weights, self.config.reg)
        return {**found, MAP: np.ascontiguousarray(learnt, np.float32)}

    def fill(self, shared: Mapping[str, Array], rows: Floats) -> Floats:
        """Return the rows [n_items, D] that items are scored with."""
        cold = self.unknown(shared)
        if self.config is None or not len(cold):
            return rows
        filled = rows.copy()
        filled[cold] = self._cold_rows(shared, cold)
        return filled

    def _cold_rows(self, shared: Mapping[str, Array], cold: NDArray[np.int64]) -> Floats:
        """Return the rows of cold items; those of the last model are kept, since users are served one by one."""
        assert self.config is not None
        model = tuple(shared[name] for name in (VECTORS, MAP, KNOWN))
        if self._last is None or any(one is not other for one, other in zip(self._last[0], model, strict=True)):
            inputs = shared[VECTORS][cold]
            if self.config.features:
                predicted = (inputs @ shared[FIRST_MAP]).astype(np.float64)
                inputs = np.hstack([_features(predicted, self.config.features).astype(np.float32), inputs])
            self._last = model, np.float32(self.config.boost) * (inputs @ shared[MAP])
        return self._last[1]

    def unknown(self, shared: Mapping[str, Array]) -> NDArray[np.int64]:
        """Return the items that have their row from the map."""
        return np.zeros(0, np.int64) if self.config is None else np.flatnonzero(shared[KNOWN] == 0)


def _regress(inputs: Array, wanted: Array, weights: Array, reg: float) -> tuple[Array, Array]:
    """Return a ridge regression of weighted rows, and what each row's is without this row.

    The last number of `inputs` is the constant term.
    """
    ridge = np.full(inputs.shape[1], reg)
    ridge[-1] = 1e-9 * len(inputs)
    inverse = np.linalg.inv((inputs.T * weights) @ inputs + np.diag(ridge))
    found = inverse @ (inputs.T @ (weights[:, None] * wanted))
    own = weights * np.einsum("nd,nd->n", inputs @ inverse, inputs)
    without = wanted - (wanted - inputs @ found) / np.maximum(1.0 - own, 1e-6)[:, None]
    return found, without


def _features(rows: Array, n_features: int) -> Array:
    """Return random features [N, F] of rows, whose products approach the kernel."""
    directions = DRAWS.child("directions").normal(np.arange(rows.shape[1]), n_features).astype(np.float64)
    phases = DRAWS.child("phases").uniform(np.arange(n_features), 1)[:, 0] * (2.0 * np.pi)
    found: Array = np.sqrt(2.0 * SHARE / n_features) * np.cos(rows @ (np.sqrt(2.0 * SPREAD) * directions) + phases)
    return found
