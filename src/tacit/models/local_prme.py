"""One PRME-G model per client: the next place, from what a user likes and where they are (Feng et al., 2015).

The user is a point in the space of preferences; every place is a point there and one in the space of sequence. The
table is [clients, 2 D, n_items], both spaces one below the other. Steps are read from the order of the user's visits: a
visit more than `lapse` hours after the one before has none before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.errors import MethodError
from tacit.kernels.gossip import draw_weighting_set
from tacit.kernels.gossip_prme import judge_prme, learn_prme, score_prme
from tacit.models.local_gmf import Ragged, weighing_sizes
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Floats, offsets

Steps = tuple[NDArray[np.int64], NDArray[np.int32]]  # ptr [C + 1], (from, to) [S, 2]


@dataclass(frozen=True)
class OwnSteps:
    """What clients have of their users' visits: steps to learn from and to weigh with, and where they have been."""

    learn: Steps
    weigh: Steps
    seen: Ragged
    avoid: Ragged
    places: Floats  # [n_items, 3] on the unit sphere: public

    @cached_property
    def samples(self) -> NDArray[np.int64]:
        """How many steps each client learns from."""
        return np.diff(self.learn[0])


@dataclass(frozen=True)
class LocalPRME:
    """How PRME-G starts, learns, judges and scores on clients. Arrays have the client axis first."""

    factors: int
    init_scale: float
    learning_rate: float
    negatives: int
    local_epochs: int
    starts: Literal["common", "own"]
    share: float  # of the preference, against the sequence
    reg: float
    lapse: float  # hours

    tables: ClassVar[tuple[str, ...]] = ("items",)
    vector: ClassVar[str] = "users"
    history_arrays: ClassVar[tuple[str, ...]] = ("here",)

    def check(self, clients: Clients, catalog: Catalog) -> None:
        """Refuse data without coordinates or order."""
        if catalog.coordinates is None or np.isnan(catalog.coordinates).all():
            raise MethodError(
                "PRME-G needs the coordinates of items, but the data has none.",
                "Use data with latitude and longitude (foursquare-nyc, gowalla-1k, town), or method.model=gmf.",
            )
        if clients.times is None:
            raise MethodError(
                "PRME-G needs the times of visits, but the data has none.",
                "Name the column of times with data.columns, or use method.model=gmf.",
            )

    @property
    def numbers_per_item(self) -> int:
        """How many numbers a client holds for each item, the spare table of a round included."""
        return 4 * self.factors

    def constants(self, catalog: Catalog) -> dict[str, Array]:
        """Return where places are, as points on the unit sphere; NaN where unknown."""
        if catalog.coordinates is None:
            return {}
        latitude, longitude = np.radians(catalog.coordinates).T
        east, north = np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude)
        return {"places": np.stack([east, north, np.sin(latitude)], axis=1).astype(np.float32)}

    def init(self, clients: Clients, catalog: Catalog, key: Key) -> dict[str, Array]:
        """Return the first arrays of every client; where the user is now is part of them."""
        n_clients, width, every = len(clients), 2 * self.factors, np.arange(catalog.n_items)
        items = np.empty((n_clients, width, catalog.n_items), np.float32)
        if self.starts == "common":
            items[:] = key.child("items").normal(every, width, self.init_scale).T
        else:
            for n, init_private in enumerate(clients.ids):
                items[n] = key.child("node", int(init_private)).normal(every, width, self.init_scale).T
        return {"items": items, **self.init_private(clients, key)}

    def init_private(self, clients: Clients, key: Key) -> dict[str, Array]:
        """Return what is each user's own: the first vector, keyed by the user's id, and where the user was last."""
        users = key.child("users").normal(clients.ids, self.factors, self.init_scale)
        return {"users": users, "here": _last(clients)}

    def own(
        self, constants: Mapping[str, Array], clients: Clients, chance: NDArray[np.uint64], weighting: float
    ) -> OwnSteps:
        """Part each user's steps into those the client learns from and those it weighs with."""
        steps = _steps(clients, self.lapse)
        kept = draw_weighting_set(chance, clients.ptr, weighing_sizes(clients.sizes, weighting))
        avoid = clients.avoid
        return OwnSteps(
            _some(clients, steps, ~kept),
            _some(clients, steps, kept),
            (clients.ptr, clients.items),
            (np.zeros_like(clients.ptr), clients.items[:0]) if avoid is None else (avoid.ptr, avoid.items),
            constants["places"],
        )

    def learn(self, rows: Array, models: Mapping[str, Array], own: OwnSteps, epochs: int | None = None) -> None:
        """Let some clients learn from their own steps, in place."""
        how = self.negatives, epochs or self.local_epochs
        rates = np.float32(self.learning_rate), np.float32(self.reg), np.float32(self.share)
        known = *own.learn, *own.seen, *own.avoid, own.places
        learn_prme(rows, models["chance"], models["done"], *known, how, rates, models["items"], models["users"])

    def judge(
        self,
        rows: Array,
        at: Array,
        models: Mapping[str, Array],
        peer_models: Mapping[str, Array],
        own: OwnSteps,
        samples: bool,
    ) -> NDArray[np.float64]:
        """Return [R, 2, 2]: (own, peer model's) mean (HR, NDCG) on the readers' weighting sets; -1 where there is
        none."""
        worths = np.empty((len(rows), 2, 2))
        sends = self.vector in peer_models
        mine = models["items"], models["users"]
        theirs = peer_models["items"], peer_models["users"] if sends else models["users"]
        known = *own.weigh, *own.seen, own.places, np.float32(self.share)
        judge_prme(rows, at, models["chance"], models["done"], *known, mine, theirs, (sends, samples), worths)
        return worths

    def score(self, constants: Mapping[str, Array], models: Mapping[str, Array]) -> Floats:
        """Return minus the distances [C, n_items] from where each user was last, by their own model."""
        items = models["items"]
        scores = np.empty((len(items), items.shape[2]), np.float32)
        score_prme(items, models["users"], models["here"], constants["places"], np.float32(self.share), scores)
        return scores

    def vectors(self, models: Mapping[str, Array]) -> Floats:
        """Return the places' points of preference [n_items, D] of the first client."""
        table: Floats = models["items"][0, : self.factors].T
        return table


def _order(clients: Clients) -> NDArray[np.int64]:
    """Return every user's visits by time, at equal times by place."""
    times = np.zeros(len(clients.items), np.int64) if clients.times is None else clients.times
    order: NDArray[np.int64] = np.lexsort((clients.items, times, clients.rows))
    return order


def _steps(clients: Clients, lapse: float) -> NDArray[np.int32]:
    """Return (from, to) [N, 2] in the order of time within each user; from is -1 after a lapse."""
    order = _order(clients)
    items, rows = clients.items[order], clients.rows[order]
    times = np.zeros(len(items), np.int64) if clients.times is None else clients.times[order]
    steps = np.full((len(items), 2), -1, np.int32)
    steps[:, 1] = items
    follows = (rows[1:] == rows[:-1]) & (times[1:] - times[:-1] <= lapse * 3600)
    steps[1:, 0] = np.where(follows, items[:-1], -1)
    return steps


def _last(clients: Clients) -> NDArray[np.int32]:
    """Return where each user was last; -1 for a user without visits."""
    items = clients.items[_order(clients)]
    return np.array(
        [items[b - 1] if b > a else -1 for a, b in zip(clients.ptr, clients.ptr[1:], strict=False)], np.int32
    )


def _some(clients: Clients, steps: NDArray[np.int32], mask: NDArray[np.bool_]) -> Steps:
    counts = np.bincount(clients.rows[mask], minlength=len(clients))
    return offsets(counts), np.ascontiguousarray(steps[mask])
