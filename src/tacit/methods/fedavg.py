"""FedAvg with the models that PEPPER's peers learn, brought together by a server (McMahan et al., 2017).

A device starts from the server's tables, learns on its own samples, and sends by how much the rows it touched have
moved; the server averages the moves by samples. Reptile and FedFast build on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tacit.errors import MethodError
from tacit.methods.base import Federated, FederatedSpec, Schedule, register
from tacit.methods.parts import reasons
from tacit.methods.parts.aggregation import AVERAGES
from tacit.methods.parts.local import LocalModel, LocalModelConfig, local_model
from tacit.methods.parts.server_steps import ServerConfig, apply_server_step
from tacit.privacy.update_sink import UpdateSink
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Floats, Model, Reason, offsets
from tacit.updates import PlannedRows, Ring, Total, UpdatePlan

Shared = Mapping[str, Array]


class FedAvgConfig(LocalModelConfig):
    """Options of fedavg."""

    epochs: int = Field(30, gt=0, description="passes; in each, every client is asked once")
    clients_per_round: int = Field(20, ge=0, description="clients per round, whose updates are averaged; 0: all")
    aggregation: Literal["fedavg", "mf-fedavg", "simple-avg"] = Field(
        "fedavg",
        description="rows averaged over all samples, over the clients that trained them, or over the cohort",
    )
    server_rate: float = Field(1.0, gt=0, description="server learning rate: factor of the averaged update")


@dataclass(frozen=True)
class TrainedModels:
    """What the devices of a cohort have learnt: whole models, and by how much each touched row has moved."""

    models: Mapping[str, Array]
    moved: Floats  # [R, D]
    who: Array  # [R] whose row it is, by position
    samples: Array  # [C]


@register("fedavg", FedAvgConfig)
class FedAvg(Federated):
    """FedAvg: devices train GMF or PRME-G, a server averages by samples (McMahan et al., 2017)."""

    config: FedAvgConfig
    model: LocalModel

    def __init__(self, config: FedAvgConfig) -> None:
        self.config = config
        self.model = local_model(config)
        is_gmf = config.model == "gmf"
        self.spec = FederatedSpec(
            item_tables=("items",),
            other_tables=("layers",),
            downloads=("items", "layers"),
            counted=("items",) if AVERAGES[config.aggregation].by_row else (),
            constants=() if is_gmf else ("places",),
            private={"users": "float32", "chance": "uint64"} | ({} if is_gmf else {"here": "int32"}),
            needs=() if is_gmf else ("coordinates", "times"),
            schedule_options=("clients_per_round", "epochs"),
        )

    def schedule(self, clients: Clients) -> Schedule:
        """All clients once in each pass, in cohorts."""
        asked = min(self.config.clients_per_round or len(clients), len(clients))
        return Schedule(self.config.epochs, -(-len(clients) // asked), asked, partition=True)

    def init(self, clients: Clients, catalog: Catalog, key: Key) -> Model:
        """Draw the first tables as a peer would, and every client's vector and random state."""
        if not len(clients.items):
            raise MethodError("There is nothing to learn from: no client has any history.")
        self.model.check(clients, catalog)
        first = self.model.init(clients.take([0]), catalog, key)
        layers = first.get("layers", np.empty((1, 0), np.float32))
        shared = {
            "items": np.ascontiguousarray(first["items"][0].T),
            "layers": np.append(layers, np.zeros((1, 1), np.float32), axis=1),  # the last one is the weight's place
            **self.model.constants(catalog),
        }
        own_arrays = self.model.init_private(clients, key)
        return Model(shared, {**own_arrays, "chance": key.child("chance").bits(clients.ids, 1)[:, 0]})

    def _local_models(
        self, shared: Shared, private: Shared, clients: Clients, chance: NDArray[np.uint64]
    ) -> dict[str, Array]:
        """Return a whole model for each client: the server's tables, and its own arrays."""
        n = len(clients)
        return {
            "items": np.repeat(shared["items"].T[None], n, axis=0),
            "layers": np.repeat(shared["layers"][:, :-1], n, axis=0),
            **{name: array.copy() for name, array in private.items()},
            "users": self._vectors(shared, private),
            "chance": chance,
            "done": np.zeros(n, np.int64),
        }

    def _vectors(self, shared: Shared, private: Shared) -> Floats:
        vectors: Floats = private["users"].copy()
        return vectors

    def plan(self, model: Model, clients: Clients, key: Key) -> UpdatePlan:
        """Learn on each device: the rows that have moved are those it sends, and one for the layers."""
        shared = model.shared
        models = self._local_models(shared, model.private, clients, key.bits(clients.ids, 1)[:, 0])
        own = self.model.own(shared, clients, models["chance"], 0.0)
        self.model.learn(np.arange(len(clients)), models, own)
        moved = models["items"] - shared["items"].T
        who, which = np.nonzero((moved != 0).any(axis=1))
        is_own = clients.matrix()[who, which].A1 > 0 if len(who) else np.zeros(0, bool)
        touched = PlannedRows(
            "items", offsets(np.bincount(who, minlength=len(clients))), which.astype(np.int32), is_own
        )
        layers = PlannedRows("layers", np.arange(len(clients) + 1), np.zeros(len(clients), np.int32), False)
        return UpdatePlan(clients.ids, (touched, layers), TrainedModels(models, moved[who, :, which], who, own.samples))

    def learn(
        self, model: Model, clients: Clients, plan: UpdatePlan, sink: UpdateSink, key: Key
    ) -> Mapping[str, Array]:
        """Put the moves of touched rows and of the layers, weighted for the average."""
        done: TrainedModels = plan.work
        weights = AVERAGES[self.config.aggregation].weights(done.samples, sink.ring)
        layers = done.models["layers"] - model.shared["layers"][:, :-1]
        layers = np.append(layers, np.ones((len(clients), 1)), axis=1)  # their weight comes last
        sink.put(0, on_grid(done.moved * weights[0, done.who][:, None], sink.ring))
        sink.put(1, on_grid(layers * weights[1][:, None], sink.ring))
        return {**model.private, "users": done.models["users"]}

    def apply(self, shared: Shared, total: Total, ring: Ring) -> dict[str, Array]:
        """Apply the averaged updates; rows that no client mentions stay."""
        moves, received = AVERAGES[self.config.aggregation].moves(total, ring)
        return apply_server_step(ServerConfig(server_rate=self.config.server_rate), shared, moves, received)

    def score(self, shared: Shared, private: Shared, clients: Clients) -> Floats:
        """Return the scores of all items, from the server's tables and the client's own vector."""
        return self.model.score(shared, self._local_models(shared, private, clients, private["chance"]))

    def explain(self, shared: Shared, private: Shared, client: Clients, item: int) -> list[Reason]:
        """Return items of the history whose vectors are aligned with the item's, relative to the average item."""
        vectors = shared["items"] - shared["items"].mean(axis=0)
        history = np.setdiff1d(client.items, [item])
        return reasons.from_history(history, reasons.alignment(vectors, history, item))


def on_grid(values: Array, ring: Ring) -> Floats:
    """Round to the grid of the ring."""
    return (np.rint(values * ring.scale) / ring.scale).astype(np.float32)
