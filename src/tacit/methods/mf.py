"""MF as Rendle et al. (2020) revisit it: dot products and biases, a yes or no for every example, plain SGD."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np
from pydantic import Field

from tacit.errors import DivergedError
from tacit.kernels.membership import owned_items, pairs_to_learn
from tacit.kernels.mf import mf_epoch
from tacit.methods.base import Centralised, register
from tacit.methods.parts import reasons
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Config, Floats, Model, Reason

_EXPLODED = 1e3  # vectors that rank well stay below 10


class MFConfig(Config):
    """Options of mf; the names are those of bpr-mf."""

    factors: int = Field(20, gt=0, le=1024, description="F: length of a latent vector")
    epochs: int = Field(50, gt=0, description="passes; a pass makes (1 + negatives) steps per interaction")
    learning_rate: float = Field(0.01, gt=0, description="learning rate")
    reg: float = Field(0.005, ge=0, description="L2 regularisation of vectors and biases")
    negatives: int = Field(8, gt=0, description="m: negatives per item of the history")
    init_scale: float = Field(0.1, gt=0, description="standard deviation of the initial vectors; biases start at 0")


@register("mf", MFConfig)
class MF(Centralised):
    """Matrix factorisation for the probability of an interaction: biases, dot product, logistic loss (SGD)."""

    scores_pairs: ClassVar[bool] = True

    def __init__(self, config: MFConfig) -> None:
        self.config = config

    def fit(self, clients: Clients, catalog: Catalog, key: Key) -> Iterator[Model]:
        """Yield the model after each epoch; its arrays go on changing."""
        c, n_items = self.config, catalog.n_items
        users = key.child("people").normal(clients.ids, c.factors, c.init_scale)
        items = key.child("items").normal(np.arange(n_items), c.factors, c.init_scale)
        own, bias, offset = (np.zeros(n, np.float32) for n in (len(clients), n_items, 1))
        model = Model({"items": items, "bias": bias, "offset": offset}, {"people": users, "own": own})
        kept_out = owned_items(clients)
        pairs = pairs_to_learn(clients, kept_out)
        for epoch in range(c.epochs):
            word = key.child("epoch", epoch).word
            mf_epoch(word, pairs, kept_out, c.negatives, users, items, own, bias, offset, c.learning_rate, c.reg)
            _refuse_if_diverged(model, epoch, c.learning_rate)
            yield model

    def score(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients) -> Floats:
        """Return P Q' + b + b_u + b_i."""
        scores = np.asarray(private["people"] @ shared["items"].T)
        scores += shared["bias"] + shared["offset"]
        scores += private["own"][:, None]
        return scores

    def score_pairs(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], rows: Array, items: Array, clients: Clients
    ) -> Floats:
        """Return p_u . q_i + b + b_u + b_i for some pairs."""
        dots = np.einsum("mf,mf->m", private["people"][rows], shared["items"][items])
        return np.asarray(dots + shared["bias"][items] + shared["offset"] + private["own"][rows])

    def explain(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], client: Clients, item: int
    ) -> list[Reason]:
        """Return items of the history whose vectors are aligned with the item's."""
        history = np.setdiff1d(client.items, [item])
        return reasons.from_history(history, reasons.alignment(shared["items"], history, item))


def _refuse_if_diverged(model: Model, epoch: int, learning_rate: float) -> None:
    """Check outside the kernel, where NaN is still NaN."""
    for table in (*model.private.values(), *model.shared.values()):
        largest = float(np.abs(table).max(initial=0.0))
        if not largest < _EXPLODED:
            raise DivergedError(
                f"mf diverged in epoch {epoch + 1}: a learnt number reached {largest:.3g}.",
                f"Lower method.learning_rate (now {learning_rate:g}) or raise the regularisation.",
            )
