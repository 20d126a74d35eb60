"""Training of any method: pass after pass, with checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, field_validator, model_validator

from tacit.errors import ConfigError, MethodError
from tacit.lab.adversaries import Adversaries, AdversaryConfig
from tacit.lab.engine import EngineConfig
from tacit.lab.event_driven import GossipRuntime, NetworkConfig, simulate_gossip
from tacit.lab.events import Events, refuse_too_many
from tacit.lab.guarantee import PrivacyLog, build_privacy
from tacit.lab.secure_rounds import SecureRoundsConfig
from tacit.lab.simulation import SimulationOptions, simulate
from tacit.lab.synchronous import Overlays
from tacit.lab.traffic import Traffic
from tacit.lab.workers import Workers
from tacit.methods.base import Centralised, Federated, Gossip, Method
from tacit.numerics import one_blas_thread
from tacit.privacy.dp import DifferentialPrivacy, DPConfig
from tacit.privacy.update_sink import Stage
from tacit.protocols.federated import UpdatePath
from tacit.protocols.rounds import RoundsConfig
from tacit.protocols.weighing import WeightLog
from tacit.random import Key
from tacit.types import Catalog, Clients, Config, Model, Progress, Vocabulary, notice_former_name, refuse_unknown_items
from tacit.updates import Ring

Evaluator = Callable[[Model], Mapping[str, float]]


class RuntimeConfig(Config):
    """Where and how learning runs."""

    former_names: ClassVar[Mapping[str, str]] = {
        "runtime.look_every": "runtime.evaluate_every",
        "runtime.liars": "runtime.adversaries",
    }
    name: Literal["simulation"] = "simulation"
    threads: int = Field(
        1,
        ge=1,
        le=256,
        description="threads for learning in shards, ranking, metrics and gossip; results do not depend on it",
    )
    engine: Literal["local", "processes", "dask"] = Field(
        "local",
        description="where clients of federated methods learn: threads here, other processes, or a Dask cluster",
    )
    shards: int = Field(
        0, ge=0, le=10_000, description="parts that clients are cut into; 0: as many as threads or workers"
    )
    address: str = Field("", description="address of a running Dask scheduler; empty: workers on this machine")
    folder: str = Field(
        "", description="folder that all workers see, for arrays on their way; empty: a temporary one of this machine"
    )
    evaluate_every: int = Field(
        0, ge=0, description="passes between checkpoints, which measure the validation metrics; 0: no checkpoints"
    )
    patience: int = Field(
        0, ge=0, description="early stopping: checkpoints without a better one before training ends; 0: never"
    )
    keep: Literal["best", "last"] = Field(
        "best", description="keep the model of the best checkpoint, or of the last pass"
    )
    ring: Ring = Field(Ring(), description="fixed-point numbers of federated sums")
    rounds: RoundsConfig = Field(RoundsConfig(), description="dropouts, over-selection and robust aggregation rules")
    secure: SecureRoundsConfig | None = Field(
        None, description="secure aggregation of updates; none: the server reads each update"
    )
    adversaries: AdversaryConfig | None = Field(
        None, description="clients that are adversaries, to test an aggregation rule"
    )
    ledger: Literal["users", "events"] = Field(
        "users", description="what the ledger keeps: totals per client, or every single release too (slower)"
    )
    network: NetworkConfig = Field(
        NetworkConfig(), description="network of gossip peers: latency, loss, leaving and joining"
    )

    @field_validator("ledger", mode="before")
    @classmethod
    def _take_former_value(cls, given: Any) -> Any:
        if given != "people":
            return given
        notice_former_name("runtime.ledger=people", "runtime.ledger=users")
        return "users"

    @model_validator(mode="after")
    def _has_effect(self) -> Self:
        if self.address and self.engine != "dask":
            raise ValueError(f"'address' is that of a Dask scheduler, and 'engine' is '{self.engine}'")
        if self.folder and self.engine == "local":
            raise ValueError("'folder' is where arrays travel between processes, and 'engine' is 'local'")
        return self

    @property
    def engine_config(self) -> EngineConfig:
        """Where clients learn."""
        return EngineConfig(self.engine, self.shards, self.threads, self.address, self.folder)


@dataclass(frozen=True)
class TrainingResult:
    """A model and how it came about."""

    model: Model
    passes: int  # after which the kept model was taken
    seconds: float  # of learning, without checkpoints
    curve: list[dict[str, float]] = field(default_factory=list)  # one row per checkpoint
    traffic: Traffic | None = None  # what was sent, if the method is federated; all of it, later passes included
    all_passes: int = 0  # later ones included
    events: Events | None = None  # every release, if they were asked for
    overlay: Overlays = field(default_factory=list)  # measures of the overlay during training, for gossip
    weight_log: WeightLog | None = None  # who counted how much in each round, if clients count by criteria
    privacy: dict[str, Any] | None = None  # the guarantee and its rounds, under differential privacy


def passes_of(method: Method, clients: Clients) -> int:
    """Return how many passes a method makes at most."""
    if isinstance(method, Federated):
        return method.schedule(clients).passes
    return int(getattr(getattr(method, "config", None), "epochs", 1))


def rounds_of(method: Method, clients: Clients, n_passes: int) -> int | None:
    """Return how many communication rounds so many passes take: in gossip one each; none in a centralised method."""
    if isinstance(method, Federated):
        schedule = method.schedule(clients)
        return sum(len(schedule.rounds_of(number)) for number in range(n_passes))
    return n_passes if isinstance(method, Gossip) else None


@dataclass(frozen=True)
class PassOptions:
    """How passes over a cohort are made, and the callback for progress."""

    stages: Sequence[Stage] = ()
    ring: Ring = field(default_factory=Ring)
    traffic: Traffic | None = None
    simulation: SimulationOptions = field(default_factory=SimulationOptions)
    gossip: GossipRuntime = field(default_factory=GossipRuntime)


def passes(
    method: Method, clients: Clients, catalog: Catalog, key: Key, how: PassOptions | None = None
) -> Iterator[Model]:
    """Yield a method's model after each pass over a cohort."""
    how = how or PassOptions()
    stages, simulation = how.stages, how.simulation
    refuse_unknown_items(clients, catalog)
    if isinstance(method, Federated):
        return simulate(UpdatePath(method, stages, how.ring), clients, catalog, key, how.traffic, simulation)
    if simulation.secure is not None:
        raise ConfigError("runtime.secure has no effect: only federated methods sum updates.", "Remove it.")
    if simulation.rounds != RoundsConfig():
        raise ConfigError(
            "runtime.rounds has no effect: only federated methods have rounds of a server with clients.", "Remove it."
        )
    if simulation.adversaries is not None:
        raise ConfigError(
            "runtime.adversaries has no effect: only federated methods send updates.",
            "Remove it; runtime.network sets adversaries among gossip peers.",
        )
    if isinstance(method, Gossip):
        if stages:
            raise ConfigError(
                "Privacy stages have no effect here: gossip peers send whole models.",
                "Remove the privacy section, or choose a federated method such as fpl.",
            )
        return simulate_gossip(method, clients, catalog, key, how.gossip, how.traffic)
    if stages:
        raise ConfigError(
            "Privacy stages have no effect here: a centralised method reads whole histories.",
            "Remove the privacy section, or choose a federated method such as fpl.",
        )
    if isinstance(method, Centralised):
        return method.fit(clients, catalog, key)
    raise ConfigError(f"'{type(method).__name__}' is neither centralised, federated nor gossip-based.")


@dataclass(frozen=True)
class TrainingContext:
    """What surrounds a training: evaluator of checkpoints, callback for progress, workers of an engine."""

    evaluate: Evaluator | None = None
    primary: str = ""  # the metric by which the best checkpoint is kept
    users: Vocabulary | None = None  # labels that a ledger of events calls clients by; none: numbers
    progress: Progress = lambda what, done, total: None
    workers: Workers | None = None  # that continue afterwards; none: an engine starts its own


def learn(
    method: Method,
    clients: Clients,
    catalog: Catalog,
    key: Key,
    config: RuntimeConfig,
    stages: Sequence[Stage | DPConfig] = (),
    context: TrainingContext = TrainingContext(),  # noqa: B008 - frozen
) -> TrainingResult:
    """Learn from a cohort. With an evaluator of the validation part, keep the best pass and stop early.

    Noise follows from the rounds of the method, so differential privacy is given by its options.
    """
    evaluate, primary, users = context.evaluate, context.primary, context.users
    total = passes_of(method, clients)
    adversaries = None
    if config.adversaries is not None:
        tables = method.spec.item_tables if isinstance(method, Federated) else ("items",)  # others are refused below
        adversaries = Adversaries.build(config.adversaries, catalog, config.ring, key.child("liars"), tables)
    traffic = Traffic.none(len(clients)) if isinstance(method, Federated | Gossip) else None
    events = _events_of(method, clients, catalog, users) if config.ledger == "events" else None
    weight_log = WeightLog(users) if config.rounds.criteria is not None else None
    curve: list[dict[str, float]] = []
    overlay: Overlays = []
    privacy_log = PrivacyLog()
    built = [_build_stage(stage, method, clients, catalog, key, config) for stage in stages]
    privacy = next((stage for stage in built if isinstance(stage, DifferentialPrivacy)), None)
    _refuse_idle_network(method, config.network)
    _refuse_idle_engine(method, config)
    kept: Model | None = None
    model: Model | None = None
    kept_at, best, worse, done, spent = 0, -np.inf, 0, 0, 0.0
    with one_blas_thread():
        started = time.perf_counter()
        simulation = SimulationOptions(
            config.rounds,
            config.secure,
            adversaries,
            events=events,
            weight_log=weight_log,
            privacy_log=privacy_log,
            engine=replace(config.engine_config, workers=context.workers),
        )
        runtime = GossipRuntime(config.network, config.threads, overlay)
        how = PassOptions(built, config.ring, traffic, simulation, runtime)
        for model in passes(method, clients, catalog, key, how):
            done += 1
            spent += time.perf_counter() - started
            context.progress("learning", done, total)
            if evaluate is not None and config.evaluate_every and (done % config.evaluate_every == 0 or done == total):
                seen = evaluate(model)
                curve.append({"pass": done, "seconds": spent, **seen})
                if seen[primary] > best:
                    best, worse = seen[primary], 0
                    if config.keep == "best":
                        kept, kept_at = model.copy(), done
                elif config.patience:
                    worse += 1
                    if worse >= config.patience:
                        break
            started = time.perf_counter()
    if model is None:
        raise MethodError("The method learnt nothing: it made no pass over the data.", "Set its epochs to at least 1.")
    described = None if privacy is None else privacy_log.describe(privacy, len(clients))
    return TrainingResult(
        kept or model, kept_at or done, spent, curve, traffic, done, events, overlay, weight_log, described
    )


def _build_stage(
    stage: Stage | DPConfig, method: Method, clients: Clients, catalog: Catalog, key: Key, config: RuntimeConfig
) -> Stage:
    """Return a stage as it is, or the one that options of differential privacy ask for."""
    if isinstance(stage, Stage):
        return stage
    if not isinstance(method, Federated):
        raise ConfigError(
            "Differential privacy has no effect here: only federated methods sum what clients send.",
            "Remove the privacy section, or choose a federated method such as dp-svd.",
        )
    if config.patience or (config.evaluate_every and config.keep == "best"):
        raise ConfigError(
            "Early stopping and the best checkpoint choose a model by what clients did: a release without noise.",
            "Set runtime.keep=last and runtime.patience=0; checkpoints are then measured only.",
        )
    return build_privacy(stage, method, clients, catalog, key, config.ring, config.rounds)


def _refuse_idle_network(method: Method, network: NetworkConfig) -> None:
    if network != NetworkConfig() and not isinstance(method, Gossip):
        raise ConfigError(
            "runtime.network has no effect: only gossip methods have a network of peers.",
            "Remove it, or choose a gossip method such as pepper.",
        )


def _refuse_idle_engine(method: Method, config: RuntimeConfig) -> None:
    """Refuse an engine that would have nothing to do."""
    if isinstance(method, Federated) or (config.engine == "local" and not config.shards):
        return
    why = "a centralised method learns from all histories in one place"
    if isinstance(method, Gossip):
        why = "gossip peers exchange whole models in every round, so nearly all state would travel; threads share it"
    raise ConfigError(
        f"runtime.engine and runtime.shards have no effect here: {why}.",
        "Remove them, or choose a federated method such as fpl.",
    )


def _events_of(method: Method, clients: Clients, catalog: Catalog, users: Vocabulary | None) -> Events:
    if not isinstance(method, Federated):
        raise ConfigError(
            "runtime.ledger=events has no effect: only federated methods release rows one by one.",
            "Remove it, or choose a federated method such as fpl.",
        )
    refuse_too_many(method.schedule(clients))
    return Events(users or Vocabulary(np.arange(int(clients.ids.max()) + 1)), catalog.item_ids)
