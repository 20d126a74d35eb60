"""Models that a client's device trains whole, whether peers or a server bring them together: GMF and PRME-G."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from tacit.errors import ConfigError
from tacit.methods.parts.mixing import Weights
from tacit.models.local_gmf import LocalGMF
from tacit.models.local_prme import LocalPRME
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Config, Floats

LocalArrays = Mapping[str, Array]


class LocalModelConfig(Config):
    """Options of what a device learns by itself."""

    model: Literal["gmf", "prme-g"] = Field("gmf", description="the local model; prme-g needs coordinates and times")
    factors: int = Field(8, gt=0, description="D: length of a latent vector")
    learning_rate: float = Field(
        0.01, gt=0, description="learning rate on the device: of Adam (gmf) or of gradient ascent (prme-g)"
    )
    local_epochs: int = Field(1, gt=0, description="local epochs over the client's positives at each training")
    batch_size: int = Field(64, gt=0, description="gmf: samples per step, positives and negatives together")
    negatives: int = Field(4, gt=0, description="fresh negatives per positive and local epoch")
    init_scale: float = Field(0.05, gt=0, description="standard deviation of the initial latent vectors")
    preference: float = Field(
        0.2, ge=0, le=1, description="prme-g: weight of preference; the rest is the weight of the current place"
    )
    reg: float = Field(0.03, ge=0, description="prme-g: lambda, L2 regularisation")
    lapse: float = Field(6.0, gt=0, description="prme-g: hours after which a visit does not depend on the visit before")

    @model_validator(mode="after")
    def _every_option_has_an_effect(self) -> LocalModelConfig:
        idle = ("preference", "reg", "lapse") if self.model == "gmf" else ("batch_size",)
        for name in idle:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"'{name}' has no effect with model={self.model}")
        return self


class LocalModel(Protocol):
    """A model that lives on clients: how it starts, learns, judges and scores."""

    tables: ClassVar[tuple[str, ...]]  # what a peer model carries
    vector: ClassVar[str]  # the client's own, which may be sent too
    history_arrays: ClassVar[tuple[str, ...]]  # the client's own, which follow from its history alone

    def check(self, clients: Clients, catalog: Catalog) -> None:
        """Refuse data that the model cannot learn from."""
        ...

    @property
    def numbers_per_item(self) -> int:
        """How many numbers a client holds for each item, the spare table of a round included."""
        ...

    def init(self, clients: Clients, catalog: Catalog, key: Key) -> dict[str, Array]:
        """Return the first arrays of every client."""
        ...

    def init_private(self, clients: Clients, key: Key) -> dict[str, Array]:
        """Return what is each client's own at first."""
        ...

    def constants(self, catalog: Catalog) -> dict[str, Array]:
        """Return the public inputs of the model, the same for all clients."""
        ...

    def own(self, constants: LocalArrays, clients: Clients, chance: NDArray[np.uint64], weighting: float) -> Any:
        """Part each history into what its client learns from and what it weighs with."""
        ...

    def learn(self, rows: Array, models: LocalArrays, own: Any, epochs: int | None = None) -> None:
        """Let some clients learn from their own samples, in place."""
        ...

    def judge(
        self, rows: Array, at: Array, models: LocalArrays, peer_models: LocalArrays, own: Any, samples: bool
    ) -> Weights:
        """Return [R, 2, 2]: (own, peer model's) mean (HR, NDCG) on the readers' weighting sets; -1 where there is
        none."""
        ...

    def score(self, constants: LocalArrays, models: LocalArrays) -> Floats:
        """Return the scores [C, n_items], each client by its own peer's model."""
        ...

    def vectors(self, models: LocalArrays) -> Floats:
        """Return the item vectors [n_items, D] of the first client."""
        ...


def local_model(
    config: LocalModelConfig, starts: Literal["common", "own"] = "common", moments: Literal["fresh", "kept"] = "fresh"
) -> LocalModel:
    """Return the model that a device trains."""
    if config.model == "prme-g":
        if moments == "kept":
            raise ConfigError("method.moments=kept has no effect: PRME-G does not use Adam.", "Remove it.")
        return LocalPRME(
            config.factors,
            config.init_scale,
            config.learning_rate,
            config.negatives,
            config.local_epochs,
            starts,
            config.preference,
            config.reg,
            config.lapse,
        )
    return LocalGMF(
        config.factors,
        config.init_scale,
        config.learning_rate,
        config.negatives,
        config.local_epochs,
        config.batch_size,
        starts,
        moments == "kept",
    )
