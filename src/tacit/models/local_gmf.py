"""One GMF model per client: a whole item table, a head, and one user's vector.

The table is kept transposed, [clients, D, n_items], since a client scores all items for one user.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.kernels.gossip import draw_weighting_set
from tacit.kernels.gossip_gmf import judge_gmf, learn_gmf
from tacit.kernels.llvm.lazy_adam import adam_schedule
from tacit.kernels.llvm.rowvec import rows_of
from tacit.models.ncf import gmf
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Floats, offsets

Ragged = tuple[NDArray[np.int64], NDArray[np.int32]]
FEWEST = 3  # interactions, for a user to spare one for weighing


@dataclass(frozen=True)
class OwnItems:
    """What clients have of their users' histories: what to learn from, what to weigh with, what is not to be drawn."""

    learn: Ragged
    weigh: Ragged
    seen: Ragged
    avoid: Ragged

    @cached_property
    def samples(self) -> NDArray[np.int64]:
        """How many positives each client learns from."""
        return np.diff(self.learn[0])


@dataclass(frozen=True)
class LocalGMF:
    """How GMF starts, learns, judges and scores on clients. Arrays have the client axis first."""

    factors: int
    init_scale: float
    learning_rate: float
    negatives: int
    local_epochs: int
    batch_size: int
    starts: Literal["common", "own"]
    keeps_moments: bool

    tables: ClassVar[tuple[str, ...]] = ("items", "layers")
    vector: ClassVar[str] = "users"
    history_arrays: ClassVar[tuple[str, ...]] = ()

    def check(self, clients: Clients, catalog: Catalog) -> None:
        """Accept any history."""

    @property
    def numbers_per_item(self) -> int:
        """How many numbers a client holds for each item, the spare table of a round included."""
        return self.factors * (4 if self.keeps_moments else 2)

    def init(self, clients: Clients, catalog: Catalog, key: Key) -> dict[str, Array]:
        """Return the first arrays of every client: its user's vector is its own, the rest common to all or its own."""
        shape, n_clients, n_items = gmf(self.factors), len(clients), catalog.n_items
        items = np.empty((n_clients, self.factors, n_items), np.float32)
        layers = np.empty((n_clients, self.factors + 1), np.float32)
        for n in range(n_clients if self.starts == "own" else min(1, n_clients)):
            drawn = key if self.starts == "common" else key.child("node", int(clients.ids[n]))
            first = shape.init_shared(n_items, drawn, self.init_scale)
            at = slice(n, n + 1) if self.starts == "own" else slice(None)
            items[at], layers[at] = first["items"].T, shape.flatten(first)
        models: dict[str, Array] = {"items": items, "layers": layers}
        models |= self.init_private(clients, key)
        if self.keeps_moments:
            for name in ("items", "layers", "users"):
                models[f"{name}_moments"] = np.zeros((n_clients, 2, *models[name].shape[1:]), np.float32)
            models["steps"] = np.zeros(n_clients, np.int64)
        return models

    def init_private(self, clients: Clients, key: Key) -> dict[str, Array]:
        """Return what is each user's own: the first vector, keyed by the user's id."""
        return gmf(self.factors).init_private(clients.ids, key, self.init_scale)

    def constants(self, catalog: Catalog) -> dict[str, Array]:
        """Return the public constants: none."""
        return {}

    def own(
        self, constants: Mapping[str, Array], clients: Clients, chance: NDArray[np.uint64], weighting: float
    ) -> OwnItems:
        """Part each history into what its client learns from and what it weighs with."""
        kept = draw_weighting_set(chance, clients.ptr, weighing_sizes(clients.sizes, weighting))
        avoid = clients.avoid
        return OwnItems(
            _some(clients, ~kept),
            _some(clients, kept),
            (clients.ptr, clients.items),
            (np.zeros_like(clients.ptr), clients.items[:0]) if avoid is None else (avoid.ptr, avoid.items),
        )

    def learn(self, rows: Array, models: Mapping[str, Array], own: OwnItems, epochs: int | None = None) -> None:
        """Let some clients learn from their own samples, in place."""
        how = self.negatives, epochs or self.local_epochs, self.batch_size
        none = np.empty((0, 2, 0), np.float32)
        kept = (np.empty((0, 2, 0, 0), np.float32), none, none, np.empty(0, np.int64))
        if self.keeps_moments:
            kept = (models["items_moments"], models["layers_moments"], models["users_moments"], models["steps"])
        longest, done = int(own.samples[rows].max(initial=0)) * (1 + self.negatives), int(kept[3].max(initial=0))
        pace = adam_schedule(done + how[1] * -(-longest // self.batch_size), self.learning_rate)
        start, like = (models["items"], models["layers"], models["users"]), rows_of(models["users"])
        learn_gmf(rows, models["chance"], models["done"], *own.learn, *own.avoid, how, pace, *start, kept, like)

    def judge(
        self,
        rows: Array,
        at: Array,
        models: Mapping[str, Array],
        peer_models: Mapping[str, Array],
        own: OwnItems,
        samples: bool,
    ) -> NDArray[np.float64]:
        """Return [R, 2, 2]: (own, peer model's) mean (HR, NDCG) on the readers' weighting sets; -1 where there is
        none."""
        worths = np.empty((len(rows), 2, 2))
        sent = self.vector in peer_models
        mine = models["items"], models["layers"], models["users"]
        theirs = peer_models["items"], peer_models["layers"], peer_models["users"] if sent else models["users"]
        judge_gmf(
            rows, at, models["chance"], models["done"], *own.weigh, *own.seen, mine, theirs, sent, samples, worths
        )
        return worths

    def score(self, constants: Mapping[str, Array], models: Mapping[str, Array]) -> Floats:
        """Return the logits [C, n_items], each user by their own model."""
        head = models["layers"][:, :-1] * models["users"]
        scores: Floats = np.matmul(head[:, None, :], models["items"])[:, 0, :] + models["layers"][:, -1:]
        return scores

    def vectors(self, models: Mapping[str, Array]) -> Floats:
        """Return the item vectors [n_items, D] of the first client."""
        table: Floats = models["items"][0].T
        return table


def weighing_sizes(sizes: NDArray[np.int64], share: float) -> NDArray[np.int64]:
    """Return how many interactions are kept for weighing: a share, at least one, none of fewer than three."""
    kept = np.clip(np.rint(sizes * share), 1, np.maximum(sizes - 1, 1)).astype(np.int64)
    return np.where((sizes >= FEWEST) & (share > 0), kept, 0)


def _some(clients: Clients, mask: NDArray[np.bool_]) -> Ragged:
    counts = np.bincount(clients.rows[mask], minlength=len(clients))
    return offsets(counts), clients.items[mask]
