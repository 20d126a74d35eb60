"""PEPPER and its decentralised baselines (Belal et al., 2022): the same gossip under different rules.

PEPPER weighs a received model against its own by what both earn on a weighting set, which it draws from its client's
training part. It sends its own model to some of those whose models earned most. The others weigh by the owner's samples
(decentralised FedAvg) or by age (Hegedus et al.), and choose peers at random.

Text and algorithm 3 of the paper contradict each other on alpha: 40 % of the view from the best, or 60 %. The text is
our default, `alpha_means` has both. A model is worth HR@20 times NDCG@20, as in the authors' code; their text says
HR@20. A peer with fewer than three interactions holds none out: it cannot weigh models, and averages.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from pydantic import Field

from tacit.methods.base import register
from tacit.methods.parts.gossip import GossipConfig, GossipMethod
from tacit.methods.parts.local import LocalArrays
from tacit.methods.parts.mixing import RULES, Weights
from tacit.methods.parts.peers import SAMPLERS
from tacit.types import Array, Clients, Floats


class PepperConfig(GossipConfig):
    """Options of pepper."""

    weighting: float = Field(
        0.1765, gt=0, lt=1, description="share of the history held out to weigh models: 15 of the 85 % for training"
    )
    alpha: float = Field(0.4, ge=0, le=1, description="share of the view of one kind; alpha_means says which")
    alpha_means: Literal["best", "random"] = Field(
        "best", description="alpha is the share of the best peers (the text), or of the random ones (algorithm 3)"
    )
    judges_by: Literal["hr-ndcg", "hr"] = Field("hr-ndcg", description="HR@20 times NDCG@20, or HR@20 alone")
    worthless: Literal["own", "average"] = Field(
        "own", description="what a peer does when neither model scores a hit: keep its own, or average both"
    )
    judges_among: Literal["sampled", "all"] = Field(
        "sampled", description="rank each held-out item among 100 sampled negatives, or among all items, scaled to 100"
    )


@register("pepper", PepperConfig)
class Pepper(GossipMethod):
    """PEPPER: models merged by their performance on the peer's own data, best peers kept (Belal et al., 2022)."""

    sampler = SAMPLERS["personalised"]
    config: PepperConfig

    def __init__(self, config: PepperConfig) -> None:
        self.rule = RULES["performance" if config.worthless == "own" else "performance-or-even"]
        super().__init__(config)
        self.samples = config.judges_among == "sampled"

    @property
    def n_best(self) -> float:
        """The share of the view that comes from the best."""
        share = self.config.alpha if self.config.alpha_means == "best" else 1.0 - self.config.alpha
        return share * self.config.view

    def worth(self, judged: Weights) -> Weights:
        """Return HR times NDCG, or HR alone; -1 if the peer could not measure it."""
        return judged[:, :, 0] if self.config.judges_by == "hr" else super().worth(judged)


@register("dec-fedavg", GossipConfig)
class DecFedAvg(GossipMethod):
    """Decentralised FedAvg: models mixed by how much their owners learn from, random peers."""

    rule = RULES["samples"]
    sampler = SAMPLERS["random"]


@register("model-age", GossipConfig)
class ModelAge(GossipMethod):
    """Model-age gossip: models mixed by how often they were updated, random peers (Hegedus et al., 2021)."""

    rule = RULES["age"]
    sampler = SAMPLERS["random"]


class DecReptileConfig(GossipConfig):
    """Options of dec-reptile."""

    meta_rate: float = Field(0.5, gt=0, le=1, description="share of the local update that a peer's model makes")
    tuning: int = Field(2, ge=0, description="local epochs of fine-tuning before the model recommends")


@register("dec-reptile", DecReptileConfig)
class DecReptile(GossipMethod):
    """Decentralised Reptile: a gossiped initial model, fine-tuned on the client's own data before it recommends."""

    rule = RULES["samples"]
    sampler = SAMPLERS["random"]
    config: DecReptileConfig

    def _learn(self, rows: Array, models: LocalArrays, own: Any) -> None:
        before = {name: models[name][rows] for name in self.model.tables}
        super()._learn(rows, models, own)
        rate = np.float32(self.config.meta_rate)
        for name, start in before.items():
            models[name][rows] = start + rate * (models[name][rows] - start)

    def score(self, shared: LocalArrays, private: LocalArrays, clients: Clients) -> Floats:
        """Return the scores of all items, each client by its peer's model after fine-tuning."""
        if not self.config.tuning:
            return super().score(shared, private, clients)
        tuned = {name: array.copy() for name, array in private.items()}
        every = np.arange(len(clients))
        self.model.learn(every, tuned, self.own(shared, tuned, clients), self.config.tuning)
        return super().score(shared, tuned, clients)
