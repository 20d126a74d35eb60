"""session-knn: items of the sessions most like what a client did last (Jannach and Ludewig, 2017)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy import sparse

from tacit.kernels import neighbours as kernel
from tacit.methods.base import Centralised, register
from tacit.methods.parts import reasons
from tacit.methods.parts.order import ages, newest_item, newest_rows
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Config, Floats, Model, Reason


class SessionKNNConfig(Config):
    """Options of session-knn."""

    neighbours: int = Field(100, gt=0, description="k: number of nearest sessions")
    window: int = Field(10, gt=0, description="so many of the newest items of a history are compared with sessions")
    gap: float = Field(
        60.0, gt=0, description="minutes without a row that end a session; histories without times are one session each"
    )
    shrink: float = Field(0.0, ge=0, description="a similarity on c shared items is multiplied by c / (c + shrink)")


@register("session-knn", SessionKNNConfig)
class SessionKNN(Centralised):
    """Similar sessions: items of the k sessions most similar to the newest items of a history."""

    def __init__(self, config: SessionKNNConfig) -> None:
        self.config = config

    def fit(self, clients: Clients, catalog: Catalog, key: Key) -> Iterator[Model]:
        """Cut histories into sessions and keep them by sessions and by items."""
        once = newest_rows(clients)
        sessions = _cut_sessions(once, self.config.gap)
        items = once.items[once.in_order]
        n_sessions = int(sessions.max(initial=-1)) + 1
        ones = np.ones(len(items), np.float32)
        by_session = sparse.csr_matrix((ones, (sessions, items)), shape=(n_sessions, catalog.n_items))
        by_item = by_session.tocsc()
        yield Model(
            {
                "ptr": by_session.indptr,
                "items": by_session.indices,
                "item_ptr": by_item.indptr,
                "item_sessions": by_item.indices,
            },
            {},
        )

    def score(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients) -> Floats:
        """Return the summed similarity of the nearest sessions that have each item."""
        found, values = self._nearest(shared, clients)
        n_items = len(shared["item_ptr"]) - 1
        return np.asarray(kernel.sum_of_neighbours(found, values, shared["ptr"], shared["items"], n_items))

    def explain(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], client: Clients, item: int
    ) -> list[Reason]:
        """Return the newest items by the similarity of the sessions that have them and the item."""
        found, values = self._nearest(shared, client)
        had = shared["item_sessions"][shared["item_ptr"][item] : shared["item_ptr"][item + 1]]
        counted = np.where(np.isin(found[0], had), values[0], 0.0)
        recent = self._recent(client).items
        sessions = [shared["item_sessions"][shared["item_ptr"][i] : shared["item_ptr"][i + 1]] for i in recent]
        parts = np.array([counted[np.isin(found[0], own)].sum() for own in sessions])
        return reasons.from_history(recent, parts, newest_item(client, self.config.window))

    def _recent(self, clients: Clients) -> Clients:
        """Return the clients with their newest items only."""
        once = newest_rows(clients)
        return once.keep(ages(once) < self.config.window)

    def _nearest(self, shared: Mapping[str, Array], clients: Clients) -> tuple[Array, Floats]:
        """Return the nearest sessions of each client's newest items; a client's own sessions may be among them."""
        c, recent = self.config, self._recent(clients)
        found: tuple[Array, Floats] = kernel.nearest_rows(
            recent.ptr,
            recent.items,
            shared["item_ptr"],
            shared["item_sessions"],
            np.diff(shared["ptr"]),
            np.full(len(recent), -1),
            c.neighbours,
            kernel.COSINE,
            c.shrink,
        )
        return found


def _cut_sessions(clients: Clients, gap: float) -> NDArray[np.int64]:
    """Return the number of the session of each row, [N], rows in order; without times each history is one."""
    starts = np.zeros(len(clients.items), np.bool_)
    starts[clients.ptr[:-1][clients.sizes > 0]] = True
    if clients.times is not None:
        times = clients.times[clients.in_order]
        starts[1:] |= np.diff(times) > gap * 60
    return np.cumsum(starts) - 1
