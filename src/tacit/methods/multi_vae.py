"""MultiVAE (Liang et al., 2018): a variational autoencoder that predicts a history from a copy of it after dropout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from pydantic import Field
from scipy import sparse

from tacit.errors import DivergedError, MethodError
from tacit.kernels.adam import adam_step, corrections, initial_adam_state
from tacit.kernels.llvm.denormals import flushed_denormals
from tacit.kernels.thinning import thin
from tacit.methods.base import Centralised, register
from tacit.methods.parts import reasons
from tacit.models.multi_vae import decode, gradients, init_parameters, unit_entries
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Config, Floats, Model, Reason


class MultiVAEConfig(Config):
    """Options of MultiVAE."""

    hidden: int = Field(200, gt=0, description="width of the layer on either side of the code")
    latent: int = Field(64, gt=0, description="length of the code z")
    learning_rate: float = Field(1e-3, gt=0, description="learning rate of Adam")
    epochs: int = Field(100, gt=0, description="passes over all users")
    batch_size: int = Field(50, gt=0, description="users per batch")
    dropout: float = Field(0.5, ge=0, lt=1, description="dropout: share of a history that is hidden from the encoder")
    beta: float = Field(0.2, ge=0, description="final weight of the KL term")
    anneal_epochs: int = Field(100, ge=0, description="epochs in which that weight grows from 0 to beta")


@register("multi-vae", MultiVAEConfig)
class MultiVAE(Centralised):
    """MultiVAE: a variational autoencoder with multinomial likelihood; it scores from a history alone."""

    def __init__(self, config: MultiVAEConfig) -> None:
        self.config = config

    def fit(self, clients: Clients, catalog: Catalog, key: Key) -> Iterator[Model]:
        """Yield the model after each epoch; its arrays go on changing."""
        c = self.config
        active = np.flatnonzero(clients.sizes)
        if not len(active):
            raise MethodError("There is nothing to learn from: no client has any history.")
        cohort, history = clients.take(active), clients.matrix()[active]
        whole = unit_entries(history.indptr)
        moving = {
            name: initial_adam_state(w)
            for name, w in init_parameters(catalog.n_items, c.hidden, c.latent, key.child("init")).items()
        }
        model = Model({name: p.w for name, p in moving.items()}, {})
        batches = -(-len(active) // c.batch_size)
        for epoch in range(c.epochs):
            chance = key.child("epoch", epoch)
            thinned = thin(cohort.ids, history.indptr, whole, 1.0 - c.dropout, chance.child("dropout").word)
            x = sparse.csr_matrix((thinned, history.indices, history.indptr), shape=history.shape)
            noise = chance.child("noise").normal(cohort.ids, c.latent)
            order = chance.child("order").generator().permutation(len(active))
            rate, root = corrections(epoch * batches, batches, c.learning_rate)
            for t in range(batches):
                chosen = order[t * c.batch_size : (t + 1) * c.batch_size]
                grown = (epoch + t / batches) / c.anneal_epochs if c.anneal_epochs else 1.0
                beta = c.beta * min(1.0, grown)
                with flushed_denormals(), np.errstate(over="ignore", invalid="ignore"):  # divergence is checked below
                    _, g = gradients(model.shared, x[chosen], history[chosen], noise[chosen], beta)
                    for name, p in moving.items():
                        adam_step(p.w.ravel(), p.m.ravel(), p.v.ravel(), g[name].ravel(), rate[t], root[t])
            if not all(np.isfinite(p.w).all() for p in moving.values()):
                raise DivergedError(
                    f"Learning left the finite numbers in epoch {epoch + 1} (learning_rate={c.learning_rate:g}).",
                    "Use a smaller learning_rate.",
                )
            yield model

    def score(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients) -> Floats:
        """Return the logits of all items, from histories alone."""
        scores: Floats = decode(shared, _unit(clients)) @ shared["items_out"].T + shared["bias_out"]
        return scores

    def explain(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], client: Clients, item: int
    ) -> list[Reason]:
        """Return items of the history by how much the score falls without them."""
        history = np.setdiff1d(client.items, [item])
        n = len(history)
        if n < 2:
            return reasons.from_history(history, np.ones(n))
        without = ~np.eye(n + 1, n, dtype=bool)  # row k lacks item k, the last row lacks nothing
        columns = np.nonzero(without)[1]
        ptr = np.concatenate([[0], np.cumsum(without.sum(axis=1))])
        x = sparse.csr_matrix((unit_entries(ptr), history[columns], ptr), shape=(n + 1, client.n_items))
        logits = decode(shared, x) @ shared["items_out"][item]
        return reasons.from_history(history, logits[-1] - logits[:-1])


def _unit(clients: Clients) -> sparse.csr_matrix:
    x = clients.matrix()
    x.data = unit_entries(x.indptr)
    return x
