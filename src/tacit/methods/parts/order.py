"""What sequential methods have in common: each item at its newest place, weights by age, decays of steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tacit.types import Array, Clients, Floats

SMALLEST = 2.0**-24  # of a weight that still counts: float32 does not see more
RECENCY = (
    "weight of an item of the history is exp(-age / recency) when scores are made; its age is how many items came "
    "after it; none: all count alike"
)


def newest_rows(clients: Clients) -> Clients:
    """Return the cohort with each item once per client, at its newest place."""
    return clients.derive_once("newest rows", _newest_rows)


def _newest_rows(clients: Clients) -> Clients:
    same = (clients.items[1:] == clients.items[:-1]) & (clients.rows[1:] == clients.rows[:-1])
    if not same.any():
        return clients
    rank = np.empty(len(clients.items), np.int64)
    rank[clients.in_order] = np.arange(len(rank))
    by_item = np.lexsort((rank, clients.items, clients.rows))
    is_last = np.ones(len(by_item), np.bool_)
    is_last[:-1] = ~same  # rows of an item lie together, before and after
    kept = np.zeros(len(by_item), np.bool_)
    kept[by_item[is_last]] = True
    return clients.keep(kept)


def ages(clients: Clients) -> NDArray[np.int64]:
    """Return how many items of its client came after each row, [N]."""
    found = np.empty(len(clients.items), np.int64)
    found[clients.in_order] = np.repeat(clients.ptr[1:], clients.sizes) - 1 - np.arange(len(found))
    return found


def recency_weights(clients: Clients, decay: float | None) -> Floats:
    """Return exp(-age / decay) of each row, [N]; ones without a decay. Each item must be there once."""
    if decay is None:
        return np.ones(len(clients.items), np.float32)
    return np.exp(-ages(clients) / decay).astype(np.float32)


def recent_matrix(clients: Clients, decay: float | None) -> Any:
    """Return the histories [C, n_items] in CSR form, weighted by age where there is a decay."""
    if decay is None:
        return clients.matrix()
    once = newest_rows(clients)
    return sparse.csr_matrix((recency_weights(once, decay), once.items, once.ptr), shape=(len(once), once.n_items))


def recent_history(client: Clients, decay: float | None) -> tuple[Array, Floats]:
    """Return the items of a cohort of one, each once and sorted, and their weights."""
    if decay is None:
        items = np.unique(client.items)
        return items, np.ones(len(items), np.float32)
    once = newest_rows(client)
    return once.items, recency_weights(once, decay)


def newest_item(client: Clients, decay: float | None) -> int | None:
    """Return the newest item of a cohort of one; none without a decay, where order does not count."""
    if decay is None or not len(client.items):
        return None
    return int(client.items[client.in_order[-1]])


@dataclass(frozen=True)
class Decays:
    """How much a step counts: a past item exp(-age / source), an item to come exp(-distance / target).

    The nearest on either side counts 1. A target decay of 0 is the next item alone.
    """

    source: float
    target: float

    @property
    def a(self) -> float:
        """The weight of a past item falls by this at each step."""
        return float(np.exp(-1.0 / self.source))

    @property
    def b(self) -> float:
        """The weight of an item to come falls by this at each step."""
        return float(np.exp(-1.0 / self.target)) if self.target > 0 else 0.0

    @property
    def units(self) -> tuple[float, float]:
        """What sums with S'S and with S'T are multiplied with, so that no number of a row is above 1."""
        return (1.0 - self.a) ** 2, (1.0 - self.a) * (1.0 - self.b)

    def tables(self, longest: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return near, ends and far of `kernels.sequences.add_step_pairs`, as long as a history needs them."""
        a, b = self.a, self.b
        ratio = max(a, b)
        reach = 1 if ratio == 0.0 else int(np.ceil(np.log(SMALLEST) / np.log(ratio)))
        distance = np.arange(min(max(longest, 1), reach + 2))
        near: NDArray[np.float64] = np.power(a, distance.astype(np.float64))
        far = np.zeros(len(distance))
        for d in distance[1:]:  # sum over t of a^(t-j) b^(k-t-1)
            far[d] = b * far[d - 1] + near[d - 1]
        left = 2.0 * np.arange(max(longest, 1), dtype=np.float64)
        ends: NDArray[np.float64] = (1.0 - np.power(a, left)) / (1.0 - a * a)
        return near, ends, far
