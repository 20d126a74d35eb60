"""GMF on a node of its own: a whole item table, a head, and one person's vector.

The table is kept transposed, [nodes, D, n_items], since a node scores all items for one person.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.kernels.gossip import carve
from tacit.kernels.gossip_gmf import judge_gmf, learn_gmf
from tacit.kernels.llvm.lazy_adam import adam_schedule
from tacit.kernels.llvm.rowvec import rows_of
from tacit.models.ncf import gmf
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Floats, offsets

Ragged = tuple[NDArray[np.int64], NDArray[np.int32]]
FEWEST = 3  # interactions, for a person to spare one for weighing


@dataclass(frozen=True)
class OwnItems:
    """What nodes have of their people's histories: what to learn from, what to weigh with, what is not to be drawn."""

    learn: Ragged
    weigh: Ragged
    seen: Ragged
    avoid: Ragged

    @cached_property
    def samples(self) -> NDArray[np.int64]:
        """How many positives each node learns from."""
        return np.diff(self.learn[0])


@dataclass(frozen=True)
class LocalGMF:
    """How GMF starts, learns, judges and scores on nodes. Arrays have the node axis first."""

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

    def check(self, clients: Clients, catalog: Catalog) -> None:
        """Any history will do."""

    @property
    def numbers_per_item(self) -> int:
        """How many numbers a node holds for each item, the spare table of a round included."""
        return self.factors * (4 if self.keeps_moments else 2)

    def init(self, clients: Clients, catalog: Catalog, key: Key) -> dict[str, Array]:
        """Return the first arrays of every node: its person's vector is its own, the rest common to all or its own."""
        shape, n_nodes, n_items = gmf(self.factors), len(clients), catalog.n_items
        items = np.empty((n_nodes, self.factors, n_items), np.float32)
        layers = np.empty((n_nodes, self.factors + 1), np.float32)
        for n in range(n_nodes if self.starts == "own" else min(1, n_nodes)):
            drawn = key if self.starts == "common" else key.child("node", int(clients.ids[n]))
            first = shape.init_shared(n_items, drawn, self.init_scale)
            at = slice(n, n + 1) if self.starts == "own" else slice(None)
            items[at], layers[at] = first["items"].T, shape.flatten(first)
        nodes: dict[str, Array] = {"items": items, "layers": layers}
        nodes |= self.person(clients, key)
        if self.keeps_moments:
            for name in ("items", "layers", "users"):
                nodes[f"{name}_moments"] = np.zeros((n_nodes, 2, *nodes[name].shape[1:]), np.float32)
            nodes["steps"] = np.zeros(n_nodes, np.int64)
        return nodes

    def person(self, clients: Clients, key: Key) -> dict[str, Array]:
        """Return what is each person's own: her first vector, keyed by her id."""
        return gmf(self.factors).init_private(clients.ids, key, self.init_scale)

    def constants(self, catalog: Catalog) -> dict[str, Array]:
        """Return what everybody knows beforehand: nothing."""
        return {}

    def own(
        self, constants: Mapping[str, Array], clients: Clients, chance: NDArray[np.uint64], weighting: float
    ) -> OwnItems:
        """Part each history into what its node learns from and what it weighs with."""
        kept = carve(chance, clients.ptr, weighing_sizes(clients.sizes, weighting))
        avoid = clients.avoid
        return OwnItems(
            _some(clients, ~kept),
            _some(clients, kept),
            (clients.ptr, clients.items),
            (np.zeros_like(clients.ptr), clients.items[:0]) if avoid is None else (avoid.ptr, avoid.items),
        )

    def learn(self, rows: Array, nodes: Mapping[str, Array], own: OwnItems, epochs: int | None = None) -> None:
        """Let some nodes learn from their own samples, in place."""
        how = self.negatives, epochs or self.local_epochs, self.batch_size
        none = np.empty((0, 2, 0), np.float32)
        kept = (np.empty((0, 2, 0, 0), np.float32), none, none, np.empty(0, np.int64))
        if self.keeps_moments:
            kept = (nodes["items_moments"], nodes["layers_moments"], nodes["users_moments"], nodes["steps"])
        longest, done = int(own.samples[rows].max(initial=0)) * (1 + self.negatives), int(kept[3].max(initial=0))
        pace = adam_schedule(done + how[1] * -(-longest // self.batch_size), self.learning_rate)
        start, like = (nodes["items"], nodes["layers"], nodes["users"]), rows_of(nodes["users"])
        learn_gmf(rows, nodes["chance"], nodes["done"], *own.learn, *own.avoid, how, pace, *start, kept, like)

    def judge(
        self,
        rows: Array,
        at: Array,
        nodes: Mapping[str, Array],
        peer_models: Mapping[str, Array],
        own: OwnItems,
        samples: bool,
    ) -> NDArray[np.float64]:
        """Return [R, 2, 2]: (own, peer model's) mean (HR, NDCG) on the readers' weighting sets; -1 where there is
        none."""
        worths = np.empty((len(rows), 2, 2))
        sent = self.vector in peer_models
        mine = nodes["items"], nodes["layers"], nodes["users"]
        theirs = peer_models["items"], peer_models["layers"], peer_models["users"] if sent else nodes["users"]
        judge_gmf(rows, at, nodes["chance"], nodes["done"], *own.weigh, *own.seen, mine, theirs, sent, samples, worths)
        return worths

    def score(self, constants: Mapping[str, Array], nodes: Mapping[str, Array]) -> Floats:
        """Return the logits [C, n_items], each person by her own node."""
        head = nodes["layers"][:, :-1] * nodes["users"]
        scores: Floats = np.matmul(head[:, None, :], nodes["items"])[:, 0, :] + nodes["layers"][:, -1:]
        return scores

    def vectors(self, nodes: Mapping[str, Array]) -> Floats:
        """Return the item vectors [n_items, D] of the first node."""
        table: Floats = nodes["items"][0].T
        return table


def weighing_sizes(sizes: NDArray[np.int64], share: float) -> NDArray[np.int64]:
    """Return how many interactions are kept for weighing: a share, at least one, none of fewer than three."""
    kept = np.clip(np.rint(sizes * share), 1, np.maximum(sizes - 1, 1)).astype(np.int64)
    return np.where((sizes >= FEWEST) & (share > 0), kept, 0)


def _some(clients: Clients, mask: NDArray[np.bool_]) -> Ragged:
    counts = np.bincount(clients.rows[mask], minlength=len(clients))
    return offsets(counts), clients.items[mask]
