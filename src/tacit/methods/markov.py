"""markov: what came right after the newest item of a history, in the histories of all clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from pydantic import Field
from scipy import sparse

from tacit.methods.base import Centralised, register
from tacit.methods.parts import reasons
from tacit.methods.parts.order import newest_rows
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Config, Floats, Model, Reason


class MarkovConfig(Config):
    """Options of markov."""

    smoothing: float = Field(
        10.0, gt=0, description="k: how many made-up steps to items by their popularity are added to those of each item"
    )


@register("markov", MarkovConfig)
class Markov(Centralised):
    """First-order Markov chain: which item most often followed the newest one, smoothed by popularity."""

    def __init__(self, config: MarkovConfig) -> None:
        self.config = config

    def fit(self, clients: Clients, catalog: Catalog, key: Key) -> Iterator[Model]:
        """Count the steps from each item to the next one."""
        once, n = newest_rows(clients), catalog.n_items
        items, rows = once.items[once.in_order], once.rows
        is_step = rows[1:] == rows[:-1]
        start, end = items[:-1][is_step], items[1:][is_step]
        counts = sparse.csr_matrix((np.ones(len(start), np.float32), (start, end)), shape=(n, n))
        counts.sum_duplicates()
        popularity = np.bincount(once.items, minlength=n).astype(np.float32)
        popularity /= max(float(popularity.sum()), 1.0)
        yield Model(
            {"ptr": counts.indptr, "items": counts.indices, "counts": counts.data, "popularity": popularity}, {}
        )

    def score(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients) -> Floats:
        """Return (c_ij + k p_j) / (c_i + k) for the newest item i; without a history p_j."""
        k, popularity = np.float32(self.config.smoothing), shared["popularity"]
        scores = np.tile(k * popularity, (len(clients), 1))
        totals = np.full(len(clients), k, np.float32)
        newest = _newest_items(clients)
        for c in np.flatnonzero(newest >= 0):
            at = slice(int(shared["ptr"][newest[c]]), int(shared["ptr"][newest[c] + 1]))
            scores[c, shared["items"][at]] += shared["counts"][at]
            totals[c] += shared["counts"][at].sum()
        return np.asarray(scores / totals[:, None], np.float32)

    def explain(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], client: Clients, item: int
    ) -> list[Reason]:
        """Return the newest item, if the item has followed it."""
        newest = _newest_items(client)
        if newest[0] < 0:
            return []
        at = slice(int(shared["ptr"][newest[0]]), int(shared["ptr"][newest[0] + 1]))
        counted = shared["counts"][at][shared["items"][at] == item].sum()
        return reasons.from_history(newest, np.array([counted]), int(newest[0]))


def _newest_items(clients: Clients) -> Array:
    """Return the newest item of each client, -1 without a history."""
    found = np.full(len(clients), -1, np.int64)
    has = clients.sizes > 0
    if has.any():
        found[has] = clients.items[clients.in_order[clients.ptr[1:][has] - 1]]
    return found
