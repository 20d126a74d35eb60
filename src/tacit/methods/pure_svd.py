"""PureSVD (Cremonesi, Koren, Turrin, 2010): a history projected on the strongest directions of all histories."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from pydantic import Field
from scipy.sparse.linalg import svds

from tacit.methods.base import Centralised, register
from tacit.methods.parts import reasons
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Config, Floats, Model, Reason

_ZERO = 1e-6  # singular values below this part of the largest are rounding


class PureSVDConfig(Config):
    """Options of pure-svd."""

    factors: int = Field(
        28, gt=0, description="F: number of singular directions that are kept; fewer if the data has fewer"
    )


@register("pure-svd", PureSVDConfig)
class PureSVD(Centralised):
    """Truncated SVD of the users-items matrix, missing cells as zeros."""

    def __init__(self, config: PureSVDConfig) -> None:
        self.config = config

    def fit(self, clients: Clients, catalog: Catalog, key: Key) -> Iterator[Model]:
        """Find the right singular vectors; to score a user, these and the history suffice."""
        x = clients.matrix()
        seen = np.flatnonzero(x.getnnz(axis=0))
        directions = _directions(x[:, seen].astype(np.float64), self.config.factors, key.child("start"))
        items = np.zeros((catalog.n_items, directions.shape[1]), np.float32)
        items[seen] = directions
        yield Model({"items": items}, {})

    def score(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients) -> Floats:
        """Return X V V'."""
        return np.asarray((clients.matrix() @ shared["items"]) @ shared["items"].T)

    def explain(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], client: Clients, item: int
    ) -> list[Reason]:
        """Return items of the history by their part of the score: v_i . v_item, summed over the history."""
        history = np.setdiff1d(client.items, [item])
        return reasons.from_history(history, shared["items"][history] @ shared["items"][item])


def _directions(x: Any, factors: int, key: Key) -> Array:
    """Return the right singular vectors [n, at most factors], strongest first; the largest entry of each is above 0."""
    smaller = min(x.shape)
    if smaller == 0:
        return np.zeros((x.shape[1], 0))
    if smaller <= 2 * factors:  # Lanczos needs room; small matrices are done at once
        _, values, rows = np.linalg.svd(x.toarray(), full_matrices=False)
    else:
        _, values, rows = svds(x, k=factors, v0=key.normal(np.arange(smaller), 1)[:, 0].astype(np.float64))
        values, rows = values[::-1], rows[::-1]
    rows = rows[:factors][values[:factors] > _ZERO * values[0]]
    largest = rows[np.arange(len(rows)), np.abs(rows).argmax(axis=1)]
    return np.asarray((rows * np.sign(largest)[:, None]).T)
