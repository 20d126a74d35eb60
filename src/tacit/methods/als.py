"""Implicit ALS (Hu, Koren, Volinsky, 2008): weighted least squares over all cells, solved side by side in turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from tacit.kernels.als import solve_rows, solve_weighted_rows
from tacit.methods.base import Centralised, register
from tacit.methods.parts import reasons
from tacit.methods.parts.order import RECENCY, newest_item, recent_history, recent_matrix
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Config, Floats, Model, Reason


class ALSConfig(Config):
    """Options of als."""

    factors: int = Field(32, gt=0, le=1024, description="F: length of a latent vector")
    epochs: int = Field(15, gt=0, description="iterations; each solves for all users, then for all items")
    alpha: float = Field(2.0, gt=0, description="weight of an item of the history is 1 + alpha, of any other item 1")
    reg: float = Field(20.0, gt=0, description="lambda: L2 regularisation of all vectors")
    init_scale: float = Field(0.1, gt=0, description="standard deviation of the users' initial vectors")
    recency: float | None = Field(None, gt=0, description=RECENCY)


@register("als", ALSConfig)
class ALS(Centralised):
    """Alternating least squares on implicit feedback: all cells count, those of the history count more."""

    scores_pairs: ClassVar[bool] = True

    def __init__(self, config: ALSConfig) -> None:
        self.config = config

    def fit(self, clients: Clients, catalog: Catalog, key: Key) -> Iterator[Model]:
        """Yield the model after each epoch: items from users, then users from these items."""
        c = self.config
        by_users = clients.matrix()
        by_items = by_users.tocsc()
        users = key.child("people").normal(clients.ids, c.factors, c.init_scale)
        for _ in range(c.epochs):
            items = self._solve(by_items, users)
            users = self._solve(by_users, items)
            yield Model({"items": items}, {"people": users})

    def score(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients) -> Floats:
        """Return P Q'; a user without a vector gets one from their history."""
        users = self._vectors(shared, private, clients)
        return np.asarray(users @ shared["items"].T)

    def score_pairs(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], rows: Array, items: Array, clients: Clients
    ) -> Floats:
        """Return p_u . q_i for some pairs."""
        users = self._vectors(shared, private, clients)
        return np.asarray(np.einsum("mf,mf->m", users[rows], shared["items"][items]))

    def explain(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], client: Clients, item: int
    ) -> list[Reason]:
        """Return items of the history by their part of the score, which is a sum over the history (section 5)."""
        vectors = shared["items"]
        history, weights = recent_history(client, self.config.recency)
        chosen = vectors[history]
        system = self._gram(vectors) + np.float32(self.config.alpha) * ((weights[:, None] * chosen).T @ chosen)
        return reasons.from_history(
            history,
            weights * (chosen @ np.linalg.solve(system, vectors[item])),
            newest_item(client, self.config.recency),
        )

    def _vectors(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients) -> Floats:
        """Return the vector of each user: the learnt one, or one from the history if recent items count more."""
        if self.config.recency is not None:
            recent, items = recent_matrix(clients, self.config.recency), shared["items"]
            rows = recent.indptr, recent.indices, recent.data
            return np.asarray(solve_weighted_rows(*rows, items, self._gram(items), np.float32(self.config.alpha)))
        return private["people"] if "people" in private else self._solve(clients.matrix(), shared["items"])

    def _solve(self, matrix: Any, fixed: Floats) -> Floats:
        extra = np.float32(self.config.alpha)
        return np.asarray(solve_rows(matrix.indptr, matrix.indices, fixed, self._gram(fixed), extra))

    def _gram(self, fixed: Floats) -> Floats:
        """Return Y'Y + reg I."""
        gram = fixed.T @ fixed + self.config.reg * np.eye(fixed.shape[1], dtype=np.float32)
        return np.ascontiguousarray(gram, np.float32)
