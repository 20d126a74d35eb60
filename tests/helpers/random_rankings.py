"""Small random rankings with many ties: who is held out, what was seen, and the scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.heldout import Heldout
from tacit.testing import make_clients
from tacit.types import Catalog, Vocabulary


def catalog_of(n_items: int) -> Catalog:
    return Catalog(Vocabulary(np.arange(n_items)))


@dataclass
class World:
    truth: list[list[int]]
    seen: list[list[int]]
    scores: NDArray[np.float32]
    ids: list[int]

    @property
    def n_items(self) -> int:
        return self.scores.shape[1]

    @property
    def heldout(self) -> Heldout:
        return Heldout(
            make_clients(self.truth, self.n_items, ids=self.ids), make_clients(self.seen, self.n_items, ids=self.ids)
        )

    @property
    def catalog(self) -> Catalog:
        return catalog_of(self.n_items)

    def score(self, positions: NDArray[np.int64]) -> NDArray[np.float32]:
        return self.scores[positions]

    def score_pairs(self, rows: NDArray[np.int64], items: NDArray[np.int32]) -> NDArray[np.float32]:
        return self.scores[rows, items]

    def take(self, order: list[int]) -> World:
        return World(
            [self.truth[i] for i in order],
            [self.seen[i] for i in order],
            self.scores[order],
            [self.ids[i] for i in order],
        )


def make_world(seed: int, people: int = 300, n_items: int = 37, levels: int = 6, cold: bool = True) -> World:
    rng = np.random.default_rng(seed)
    truth, seen = [], []
    for _ in range(people):
        shuffled = rng.permutation(n_items)
        n_seen, n_truth = rng.integers(0, n_items - 6), rng.integers(0, 6)
        seen.append(shuffled[:n_seen].tolist())
        truth.append(shuffled[n_seen : n_seen + n_truth].tolist() + [-1] * int(cold and rng.random() < 0.1))
    scores = rng.integers(-levels, levels, (people, n_items)).astype(np.float32) / 2
    scores[scores == 0] *= np.where(rng.random(np.count_nonzero(scores == 0)) < 0.5, 1, -1)  # some zeros are -0.0
    return World(truth, seen, scores, rng.permutation(10 * people)[:people].tolist())
