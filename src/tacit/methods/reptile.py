"""Reptile: FedAvg whose model is tuned on each device before it serves (Nichol et al., 2018)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pydantic import Field

from tacit.methods.base import register
from tacit.methods.fedavg import FedAvg, FedAvgConfig
from tacit.types import Array, Clients, Floats

Shared = Mapping[str, Array]


class ReptileConfig(FedAvgConfig):
    """Options of reptile."""

    server_rate: float = Field(
        0.5, gt=0, description="share of the averaged local update that the server's model makes"
    )
    tuning: int = Field(2, ge=0, description="local epochs of fine-tuning before the model recommends")


@register("reptile", ReptileConfig)
class Reptile(FedAvg):
    """Reptile: an initial model from the server, fine-tuned on the client's own data (Nichol et al., 2018)."""

    config: ReptileConfig

    def score(self, shared: Shared, private: Shared, clients: Clients) -> Floats:
        """Return the scores of all items by the server's model after fine-tuning."""
        models = self._local_models(shared, private, clients, private["chance"])
        if self.config.tuning:
            own = self.model.own(shared, clients, models["chance"], 0.0)
            self.model.learn(np.arange(len(clients)), models, own, self.config.tuning)
        return self.model.score(shared, models)
