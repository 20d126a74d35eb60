"""BPR-MF (Rendle et al., 2009): vectors of users and items such that positives outrank negatives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np
from pydantic import Field

from tacit.errors import DivergedError
from tacit.kernels.bpr import bpr_epoch
from tacit.kernels.llvm.rowvec import rows_of
from tacit.kernels.membership import owned_items, pairs_to_learn
from tacit.methods.base import Centralised, register
from tacit.methods.parts import reasons
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Config, Floats, Model, Reason

_EXPLODED = 1e3  # vectors that rank well stay below 10


class BPRMFConfig(Config):
    """Options of bpr-mf; a regularisation of none follows the learning rate as in the FPL papers."""

    factors: int = Field(20, gt=0, le=1024, description="F: length of a latent vector")
    epochs: int = Field(50, gt=0, description="passes; one pass draws as many triples as there are interactions")
    learning_rate: float = Field(0.05, gt=0, description="alpha: learning rate")
    reg_user: float | None = Field(0.03, ge=0, description="L2 regularisation of the user's vector; none: alpha/20")
    reg_positive: float | None = Field(0.01, ge=0, description="L2 regularisation of the positive item; none: alpha/20")
    reg_negative: float | None = Field(
        0.003, ge=0, description="L2 regularisation of the negative item; none: alpha/200"
    )
    reg_bias: float = Field(0.0, ge=0, description="L2 regularisation of item biases")
    init_scale: float = Field(0.1, gt=0, description="standard deviation of the initial vectors and biases")

    def regs(self) -> Floats:
        """Return the four regularisation weights: of user, positive, negative, bias."""
        alpha = self.learning_rate
        user = alpha / 20 if self.reg_user is None else self.reg_user
        positive = alpha / 20 if self.reg_positive is None else self.reg_positive
        negative = alpha / 200 if self.reg_negative is None else self.reg_negative
        return np.array([user, positive, negative, self.reg_bias], np.float32)


@register("bpr-mf", BPRMFConfig)
class BPRMF(Centralised):
    """Matrix factorisation learnt from pairs of a positive and a negative item (BPR, SGD)."""

    scores_pairs: ClassVar[bool] = True

    def __init__(self, config: BPRMFConfig) -> None:
        self.config = config

    def fit(self, clients: Clients, catalog: Catalog, key: Key) -> Iterator[Model]:
        """Yield the model after each epoch; its arrays go on changing."""
        c, n_items = self.config, catalog.n_items
        users = key.child("people").normal(clients.ids, c.factors, c.init_scale)
        items = key.child("items").normal(np.arange(n_items), c.factors, c.init_scale)
        bias = key.child("bias").normal(np.arange(n_items), 1, c.init_scale)[:, 0].copy()
        model = Model({"items": items, "bias": bias}, {"people": users})
        kept_out = owned_items(clients)
        pairs = pairs_to_learn(clients, kept_out)
        for epoch in range(c.epochs):
            word = key.child("epoch", epoch).word
            tables = rows_of(users), rows_of(items), bias
            bpr_epoch(word, len(pairs), pairs, kept_out, *tables, c.learning_rate, c.regs())
            _refuse_if_diverged(model, epoch, c.learning_rate)
            yield model

    def score(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients) -> Floats:
        """Return P Q' + b."""
        scores = np.asarray(private["people"] @ shared["items"].T)
        scores += shared["bias"]
        return scores

    def score_pairs(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], rows: Array, items: Array, clients: Clients
    ) -> Floats:
        """Return p_u . q_i + b_i for some pairs."""
        dots = np.einsum("mf,mf->m", private["people"][rows], shared["items"][items])
        return np.asarray(dots + shared["bias"][items])

    def explain(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], client: Clients, item: int
    ) -> list[Reason]:
        """Return items of the history whose vectors are aligned with the item's."""
        history = np.setdiff1d(client.items, [item])
        return reasons.from_history(history, reasons.alignment(shared["items"], history, item))


def _refuse_if_diverged(model: Model, epoch: int, learning_rate: float) -> None:
    """Check outside the kernel, where NaN is still NaN."""
    for table in (model.private["people"], model.shared["items"], model.shared["bias"]):
        largest = float(np.abs(table).max(initial=0.0))
        if not largest < _EXPLODED:
            raise DivergedError(
                f"bpr-mf diverged in epoch {epoch + 1}: a learnt number reached {largest:.3g}.",
                f"Lower method.learning_rate (now {learning_rate:g}) or raise the regularisation.",
            )
