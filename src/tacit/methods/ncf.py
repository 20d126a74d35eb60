"""Centralised neural collaborative filtering: GMF, MLP and NeuMF learnt from all histories.

Cross-entropy (or another loss) on positives and fresh negatives of every epoch, shuffled batches, Adam. These are the
centralised references of FedNCF; the definitions of the models are shared with its federated versions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from tacit.errors import DivergedError, MethodError
from tacit.kernels.adam import corrections, initial_adam_state
from tacit.kernels.losses import LOSSES
from tacit.kernels.ncf import draw_samples, ncf_epoch, shuffle
from tacit.methods.base import Centralised, register
from tacit.methods.parts.neural import Neural
from tacit.models.ncf import gmf, mlp, neumf
from tacit.random import Key
from tacit.types import Catalog, Clients, Config, Model


class GMFConfig(Config):
    """Options of GMF."""

    factors: int = Field(12, gt=0, description="D: length of a latent vector")
    learning_rate: float = Field(1e-3, gt=0, description="learning rate of Adam")
    epochs: int = Field(30, gt=0, description="passes over all positives")
    batch_size: int = Field(256, gt=0, description="samples per step, positives and negatives together")
    negatives: int = Field(4, gt=0, description="fresh negatives per positive and epoch")
    init_scale: float = Field(0.01, gt=0, description="standard deviation of the initial latent vectors")
    loss: Literal["bce", "bpr", "softmax"] = Field(
        "bce",
        description="loss per sample, per pair of a positive and a negative, or per positive against all its negatives",
    )


class MLPConfig(GMFConfig):
    """Options of MLP."""

    epochs: int = Field(26, gt=0, description="passes over all positives")
    layers: tuple[PositiveInt, ...] = Field((48, 24, 12, 6), min_length=1, description="widths of the ReLU layers")


class NeuMFConfig(MLPConfig):
    """Options of NeuMF."""

    epochs: int = Field(10, gt=0, description="passes over all positives; it overfits with many more")


class _CentralNCF(Neural, Centralised):
    """What the three have in common: everything but the shape of the model."""

    config: GMFConfig

    def fit(self, clients: Clients, catalog: Catalog, key: Key) -> Iterator[Model]:
        """Yield the model after each epoch; its arrays go on changing."""
        c = self.config
        if not len(clients.items):
            raise MethodError("There is nothing to learn from: no client has any history.")
        shared = self.shape.init_shared(catalog.n_items, key.child("init"), c.init_scale)
        users = initial_adam_state(self.shape.init_private(clients.ids, key.child("init"), c.init_scale)["users"])
        items, layers = initial_adam_state(shared["items"]), initial_adam_state(self.shape.flatten(shared))
        model = Model({"items": items.w, **self.shape.unflatten(layers.w)}, {"users": users.w})
        active = np.zeros(len(clients), np.bool_), np.zeros(catalog.n_items, np.bool_)
        barred = clients.avoid
        avoid = (np.zeros_like(clients.ptr), clients.items[:0]) if barred is None else (barred.ptr, barred.items)
        group, steps = 1 if c.loss == "bce" else 1 + c.negatives, 0
        batch = max(1, c.batch_size // group) * group
        for epoch in range(c.epochs):
            chance = key.child("epoch", epoch)
            samples = draw_samples(
                clients.ids,
                clients.ptr,
                clients.items,
                *avoid,
                catalog.n_items,
                c.negatives,
                chance.child("negatives").word,
            )
            if group > 1:
                samples = samples[~_lacks_negatives(samples)]
            if not len(samples):
                raise MethodError(
                    f"There is nothing to learn from: every history has every item, so loss={c.loss} has no negatives."
                )
            shuffle(samples, chance.child("order").word, group)
            batches = -(-len(samples) // batch)
            ncf_epoch(
                samples,
                batch,
                LOSSES[c.loss],
                group,
                users,
                items,
                layers,
                self.shape.sizes,
                self.shape.product,
                *active,
                *corrections(steps, batches, c.learning_rate),
            )
            steps += batches
            if not all(np.isfinite(w).all() for w in (users.w, items.w, layers.w)):
                raise DivergedError(
                    f"Learning left the finite numbers in epoch {epoch + 1} (learning_rate={c.learning_rate:g}).",
                    "Use a smaller learning_rate or init_scale.",
                )
            yield model


def _lacks_negatives(samples: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Say which samples are positives without a negative behind them: there is nothing to compare them with."""
    is_positive = (samples & np.uint64(1)).astype(bool)
    found: NDArray[np.bool_] = is_positive & np.append(is_positive[1:], True)
    return found


@register("gmf", GMFConfig)
class GMF(_CentralNCF):
    """GMF: a weighted product of a user's and an item's vector (He et al., 2017), learnt in one place."""

    def __init__(self, config: GMFConfig) -> None:
        self.config = config
        self.shape = gmf(config.factors)


@register("mlp", MLPConfig)
class MLP(_CentralNCF):
    """MLP: a user's and an item's vector through ReLU layers (He et al., 2017), learnt in one place."""

    def __init__(self, config: MLPConfig) -> None:
        self.config = config
        self.shape = mlp(config.factors, config.layers)


@register("neumf", NeuMFConfig)
class NeuMF(_CentralNCF):
    """NeuMF: GMF and MLP joined in the last layer (He et al., 2017), learnt in one place."""

    def __init__(self, config: NeuMFConfig) -> None:
        self.config = config
        self.shape = neumf(config.factors, config.layers)
