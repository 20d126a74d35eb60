"""Weighing of clients: they measure criteria, two sums are made, and each multiplies its update by its weight."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.privacy.draft import Draft
from tacit.privacy.update_sink import Stage
from tacit.protocols.criteria import CRITERIA, ClientFacts, ClientWeights, CriteriaConfig, weigh_clients
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Vocabulary
from tacit.updates import Ring, Update

MOST_ROWS = 2_000_000  # of explanations that are kept
LearntPart = Callable[[], Iterator[tuple[Array, Update]]]  # positions of some clients, and what they learnt


@dataclass(frozen=True)
class Weighing(Stage):
    """The stage: a device multiplies all that it learnt by its factor, before anything else happens to it."""

    factor: NDArray[np.float32]  # by client id
    shapes_values = True

    def shape(self, draft: Draft, key: Key) -> None:
        """Multiply."""
        draft.multiply(self.factor[draft.clients])


@dataclass
class WeightLog:
    """Who counted how much in which round, and why: one row per client and round, as long as they are not too many."""

    people: Vocabulary | None = None
    frames: list[pl.DataFrame] = field(default_factory=list)
    rows: int = 0

    def note(self, number: int, ids: Array, weighed: ClientWeights) -> None:
        """Store the weights of a round."""
        self.rows += len(ids)
        if self.rows > MOST_ROWS:
            return
        users = ids.tolist() if self.people is None else [self.people[int(i)] for i in ids]
        columns: dict[str, Array | list[object]] = {"round": np.full(len(ids), number), "user": users}
        for at, name in enumerate(weighed.names):
            columns[f"{name} measured"] = weighed.measured[at]
            columns[name] = weighed.criteria[at]
        columns |= {"score": weighed.scores, "weight": weighed.weights, "factor": weighed.factors}
        self.frames.append(pl.DataFrame(columns))

    def frame(self) -> pl.DataFrame:
        """Return all that was kept."""
        return pl.concat(self.frames) if self.frames else pl.DataFrame()


@dataclass
class ClientWeighting:
    """Weighs the clients of each round by the criteria of a configuration."""

    config: CriteriaConfig
    clients: Clients
    catalog: Catalog
    weight_log: WeightLog | None = None

    def weigh(
        self, positions: NDArray[np.int64], answered: Array, lost: Array, learnt: LearntPart, number: int
    ) -> ClientWeights:
        """Return the weights of the clients at some positions; they learn first if a criterion asks for it.

        `answered` and `lost` count rounds of all clients so far.
        """
        chosen = [CRITERIA[name] for name in self.config.order]
        measured = np.zeros((len(chosen), len(positions)))
        now = 0 if self.clients.times is None else int(self.clients.times.max(initial=0))
        asks = any(one.after_learning for one in chosen)
        place = np.full(len(self.clients), -1, np.int64)
        place[positions] = np.arange(len(positions))
        for part, update in learnt() if asks else [(positions, None)]:
            clients = self.clients.take(part)
            seen = ClientFacts(clients, self.catalog, now, answered[part], answered[part] + lost[part], update)
            for row, one in enumerate(chosen):
                measured[row, place[part]] = one.measure(seen)
        ids = self.clients.ids[positions]
        found = weigh_clients(self.config.order, measured, self.config.score, self.config.scale, ids)
        if self.weight_log is not None:
            self.weight_log.note(number, ids, found)
        return found

    def stage(self, positions: NDArray[np.int64], weighed: ClientWeights) -> Weighing:
        """Return the stage that multiplies each one's update."""
        factor = np.ones(int(self.clients.ids.max(initial=0)) + 1, np.float32)
        factor[self.clients.ids[positions]] = weighed.factors
        return Weighing(factor)

    def bytes_each(self, ring: Ring) -> int:
        """Return the bytes that a client sends and receives for it: criteria and score, as numbers of the ring."""
        return (len(self.config.order) + 1) * ring.bits // 8
