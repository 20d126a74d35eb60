"""What gossip methods have in common: peers that hold whole models, learn alone, mix what peers send, choose peers.

A method is a merge rule (`mixing`), a peer sampler (`peers`) and a model that lives on peers. All functions take
cohorts of peers, arrays with the peer axis first; a peer alone is a cohort of one. Each peer has its own random stream:
a root that follows from its client's id, and the number of its draws so far.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tacit.errors import ConfigError, MethodError
from tacit.kernels.gossip import copy_at, distances_at, mix_at
from tacit.methods.base import Gossip
from tacit.methods.parts import reasons
from tacit.methods.parts.local import LocalArrays, LocalModel, LocalModelConfig, local_model
from tacit.methods.parts.mixing import MergeRule, ModelPair, Weights
from tacit.methods.parts.peers import Ids, KnownPeers, Sampler
from tacit.privacy.peer_release import PeerRelease
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Floats, Model, Reason
from tacit.updates import PeerModels

BLOCK = 256  # peers that work one after the other
REMEMBERED = 16  # distances of past peer models, by which a far one is recognised
ENOUGH = 4  # of them, before anything is clipped
Each = Callable[[Callable[[Array], None], Sequence[Array]], Any]  # runs a function on every block, perhaps in threads


class GossipConfig(LocalModelConfig):
    """Options of every gossip method."""

    epochs: int = Field(300, gt=0, description="rounds; in each, every peer sends its model to its view")
    starts: Literal["common", "own"] = Field(
        "common", description="peers start from one common model, or each from its own"
    )
    learns: Literal["round", "receipt"] = Field(
        "round", description="a peer trains once per round, or after every model that it merges"
    )
    moments: Literal["fresh", "kept"] = Field(
        "fresh", description="Adam's moments: reset at each training, or kept by the peer (twice the memory)"
    )
    user_vector: Literal["private", "sent"] = Field(
        "private", description="the user's vector stays on the device, or is sent and merged as in the papers"
    )
    view: int = Field(3, gt=0, description="number of peers that a peer sends its model to")
    renew_every: int = Field(1, gt=0, description="rounds between two peer samplings")
    weighting: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of the history that a peer holds out to weigh models; it does not train on it",
    )
    clip: float = Field(
        0.0, ge=0, description="clip the distance of an arriving model to this multiple of the usual distance; 0: never"
    )
    send_bound: float = Field(
        0.0, ge=0, description="clip the distance of a sent model from the peer's own first model; 0: never"
    )
    send_noise: float = Field(
        0.0,
        ge=0,
        description="noise on every number of a sent model, as a multiple of send_bound: a local guarantee; 0: none",
    )
    send_periods: int = Field(
        0, ge=0, description="periods in which a peer sends; then it only receives and learns; 0: no end"
    )


@dataclass(frozen=True)
class PeerInbox:
    """Who reads which peer models in a round: peer n those at `peer_models[ptr[n]:ptr[n + 1]]`, in that order."""

    ptr: NDArray[np.int64]  # [peers + 1]
    peer_models: NDArray[np.int64]


class GossipMethod(Gossip):
    """A gossip method but for its rule, its sampler and how it is configured."""

    rule: MergeRule
    sampler: ClassVar[Sampler]
    config: GossipConfig
    model: LocalModel
    samples: bool = False  # whether a model is judged against drawn items, not all

    def __init__(self, config: GossipConfig) -> None:
        self.config = config
        self.model = local_model(config, config.starts, config.moments)
        self.release = self._build_release()

    def _build_release(self) -> PeerRelease | None:
        """Return how models are shaped before they leave; refuse noise if other arrays would still reveal a history."""
        c = self.config
        if not (c.send_bound or c.send_noise or c.send_periods):
            return None
        if c.send_noise and self.rule.uses_samples:
            raise ConfigError(
                "This method sends how many samples a model was learnt from, and noise on models does not hide that.",
                "Use pepper with method.alpha=0, or model-age.",
            )
        if c.send_noise and self.n_best:
            raise ConfigError(
                "Whom a peer sends to follows from its history here, and noise on models does not hide that.",
                "Set method.alpha=0 (with alpha_means=best): receivers are then drawn at random.",
            )
        return PeerRelease(c.send_bound, c.send_noise, c.send_periods)

    @property
    def n_best(self) -> float:
        """How many of a peer's peers it keeps on average for what their models were worth."""
        return 0.0

    @property
    def common(self) -> tuple[str, ...]:
        """The arrays that all peers start with alike."""
        return self.model.tables if self.config.starts == "common" else ()

    @property
    def history_arrays(self) -> tuple[str, ...]:
        """The private arrays that follow from a history alone."""
        return self.model.history_arrays

    @property
    def sent(self) -> tuple[str, ...]:
        """The arrays that a peer model carries."""
        also = (self.model.vector,) if self.config.user_vector == "sent" else ()
        return (*self.model.tables, *also)

    def memory(self, n_peers: int, n_items: int) -> int:
        """Return the bytes that so many peers need: every model twice, so that all of a round read the same ones."""
        return 4 * n_peers * n_items * self.model.numbers_per_item

    def init(self, clients: Clients, catalog: Catalog, key: Key) -> Model:
        """Return the first model of every peer; nothing is shared but what is public."""
        if not len(clients.items):
            raise MethodError("There is nothing to learn from: no client has any history.")
        self.model.check(clients, catalog)
        models = self.model.init(clients, catalog, key)
        models["chance"] = key.child("chance").bits(clients.ids, 1)[:, 0]
        models["done"], models["age"] = np.zeros(len(clients), np.int64), np.zeros(len(clients), np.int64)
        if self.config.clip:
            models["distances"] = np.full((len(clients), REMEMBERED), np.nan)
            models["met"] = np.zeros(len(clients), np.int64)
        return Model(self.model.constants(catalog), models)

    def own(self, shared: Mapping[str, Array], models: LocalArrays, clients: Clients) -> Any:
        """Return what peers have of their clients' histories: what to learn from, what to weigh with."""
        return self.model.own(shared, clients, models["chance"], self.config.weighting)

    def peer_models(self, models: LocalArrays, ids: Ids, own: Any) -> PeerModels:
        """Return what each peer would send now. Large tables are not copied."""
        tables = {name: models[name] if name == "items" else models[name].copy() for name in self.sent}
        return PeerModels(ids, tables, own.samples, models["age"].copy())

    def learn(self, models: LocalArrays, own: Any) -> dict[str, Array]:
        """Return the peers after each has learnt from its own samples."""
        moved = {name: array.copy() for name, array in models.items()}
        self._learn(np.arange(len(models["age"])), moved, own)
        return moved

    def mix(
        self, models: LocalArrays, peer_models: PeerModels, own: Any
    ) -> tuple[dict[str, Array], NDArray[np.float32]]:
        """Return the peers after each has mixed one peer model in, and what it was worth to each; -1: not judged."""
        moved = {name: array.copy() for name, array in models.items()}
        every = np.arange(len(models["age"]))
        return moved, self._meet(every, every, models["items"], moved, peer_models, own)

    def choose(self, known: KnownPeers, chance: np.uint64) -> Ids:
        """Return whom a peer sends to next; `chance` is drawn for this choice."""
        return type(self).sampler(known, self.config.view, self.n_best, chance)

    def step(
        self, models: dict[str, Array], spare: Array, peer_models: PeerModels, inbox: PeerInbox, own: Any, each: Each
    ) -> NDArray[np.float32]:
        """Let every peer read its peer models and learn, all of one round at once: what single peers do, only faster.

        `peers` move in place; their new item tables are written to `spare`, which changes places with the old ones.
        Returns what each peer model was worth to its reader.
        """
        before, counts = models["items"], np.diff(inbox.ptr)
        moved = {**models, "items": spare}
        worths = np.full(len(inbox.peer_models), -1, np.float32)

        def work(block: Array) -> None:
            for q in range(int(counts[block].max(initial=0))):
                rows = block[counts[block] > q]
                place = inbox.ptr[rows] + q
                at = inbox.peer_models[place]
                worths[place] = self._meet(rows, at, spare if q else before, moved, peer_models, own)
                if self.config.learns == "receipt":
                    self._learn(rows, moved, own)
            quiet = block[counts[block] == 0]
            copy_at(quiet, before, spare)
            self._learn(block if self.config.learns == "round" else quiet, moved, own)

        every = np.arange(len(counts))
        each(work, [every[start : start + BLOCK] for start in range(0, len(every), BLOCK)])
        models["items"] = spare
        return worths

    def _meet(
        self, rows: Array, at: Array, items: Array, moved: LocalArrays, peer_models: PeerModels, own: Any
    ) -> NDArray[np.float32]:
        """Mix peer models `at` into the peers `rows`, whose item tables are in `items`; return the peer models'
        worths."""
        models = {**moved, "items": items}
        worths = np.full((len(rows), 2), -1.0)
        if self.rule.judges:
            worths = self.worth(self.model.judge(rows, at, models, peer_models.tables, own, self.samples))
        samples, ages = np.empty((len(rows), 2)), np.empty((len(rows), 2))
        samples[:, 0], samples[:, 1] = own.samples[rows], peer_models.samples[at]
        ages[:, 0], ages[:, 1] = models["age"][rows], peer_models.ages[at]
        weights = self.rule.weigh(ModelPair(samples, ages, worths))
        weights = weights / weights.sum(axis=1, keepdims=True)
        if self.config.clip:
            weights = self._clip_distant(rows, at, models, peer_models, weights)
        for name in self.sent:
            mix_at(rows, at, models[name], peer_models.tables[name], weights.astype(np.float32), moved[name])
        moved["age"][rows] = np.maximum(moved["age"][rows], peer_models.ages[at])
        return worths[:, 1].astype(np.float32)

    def worth(self, judged: Weights) -> Weights:
        """Return the performance of models, [R, 2], from their HR and NDCG; -1 if the peer could not measure it."""
        return np.where(judged[:, :, 0] < 0, -1.0, judged[:, :, 0] * judged[:, :, 1])

    def _clip_distant(
        self, rows: Array, at: Array, models: LocalArrays, peer_models: PeerModels, weights: Weights
    ) -> Weights:
        """Clip a peer model that is farther away than usual to the usual distance."""
        far = distances_at(rows, at, models["items"], peer_models.tables["items"])
        past, met = models["distances"], models["met"]
        limit = np.full(len(rows), np.inf)
        enough = met[rows] >= ENOUGH
        limit[enough] = self.config.clip * np.nanmedian(past[rows[enough]], axis=1)
        reach = np.minimum(1.0, limit / np.maximum(far, 1e-30))
        past[rows, met[rows] % REMEMBERED] = far  # as far as it was: clipped ones would draw the limit in for good
        met[rows] += 1
        theirs = np.where(np.isfinite(far), weights[:, 1] * reach, 0.0)
        return np.stack([1.0 - theirs, theirs], axis=1)

    def _learn(self, rows: Array, models: LocalArrays, own: Any) -> None:
        self.model.learn(rows, models, own)
        models["age"][rows] += 1

    def score(self, shared: Mapping[str, Array], private: LocalArrays, clients: Clients) -> Floats:
        """Return the scores of all items, each client by its own peer's model."""
        return self.model.score(shared, private)

    def explain(self, shared: Mapping[str, Array], private: LocalArrays, client: Clients, item: int) -> list[Reason]:
        """Return items of the history whose vectors are aligned with the item's, relative to the average item."""
        vectors = self.model.vectors(private)
        vectors = vectors - vectors.mean(axis=0)
        history = np.setdiff1d(client.items, [item])
        return reasons.from_history(history, reasons.alignment(vectors, history, item))
