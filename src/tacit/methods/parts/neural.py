"""Scores and reasons of GMF, MLP and NeuMF, learnt in one place or on devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from tacit.methods.parts import reasons
from tacit.models.ncf import NCF
from tacit.types import Array, Clients, Floats, Reason


class Neural:
    """A method whose model has the given shape; a subclass says how its layers are stored."""

    scores_pairs: ClassVar[bool] = True
    shape: NCF

    def by_name(self, shared: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return the item table and the layers by name."""
        return shared

    def score(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients) -> Floats:
        """Return the logits of all items."""
        return self.shape.score(self.by_name(shared), private["users"])

    def score_pairs(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], rows: Array, items: Array, clients: Clients
    ) -> Floats:
        """Return the logits of some pairs."""
        return self.shape.score_pairs(self.by_name(shared), private["users"], rows, items)

    def explain(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], client: Clients, item: int
    ) -> list[Reason]:
        """Return items of the history whose vectors are aligned with the item's, relative to the average item."""
        vectors = shared["items"] - shared["items"].mean(axis=0)
        history = np.setdiff1d(client.items, [item])
        return reasons.from_history(history, reasons.alignment(vectors, history, item))
