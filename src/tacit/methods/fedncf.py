"""FedNCF: GMF, MLP and NeuMF learnt on devices (Perifanis and Efraimidis, 2022).

Each device starts from the shared item table and layers, and learns on its own samples for some local epochs. It sends
by how much the rows it touched and the layers have moved. Its client's vector stays. The server averages the moves; in
a *global round* (a pass) every client is asked once, in random cohorts.

What the paper leaves open: negatives are drawn anew in every local epoch; Adam is made anew in every round, for the
client's vector too; first latent vectors are normal(0, 0.01). A long history weighs by its positives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt, model_validator

from tacit.errors import MethodError
from tacit.kernels.fedncf import Learning, learn_products
from tacit.kernels.fedtower import learn_towers
from tacit.kernels.llvm.lazy_adam import adam_schedule
from tacit.kernels.llvm.rowvec import rows_of
from tacit.kernels.local_samples import draw_local_rounds
from tacit.kernels.losses import LOSSES
from tacit.kernels.move_sink import MoveSink, row_sink, total_sink
from tacit.methods.base import Federated, FederatedSpec, Schedule, register
from tacit.methods.parts.aggregation import AVERAGES
from tacit.methods.parts.neural import Neural
from tacit.methods.parts.server_steps import ServerConfig, apply_server_step, is_plain, server_state
from tacit.models.ncf import NCF, gmf, mlp, neumf
from tacit.privacy.update_sink import UpdateSink
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Floats, Model, offsets
from tacit.updates import PlannedRows, Ring, Total, UpdatePlan


class FedGMFConfig(ServerConfig):
    """Options of fed-gmf."""

    factors: int = Field(12, gt=0, description="D: length of a latent vector")
    learning_rate: float = Field(1e-3, gt=0, description="learning rate of Adam on the device")
    epochs: int = Field(400, gt=0, description="passes; in each, every client is asked once")
    own_rate: float = Field(
        1.0, gt=0, description="learning rate of the user's own vector, in multiples of learning_rate"
    )
    local_epochs: int = Field(2, gt=0, description="E: local epochs over the client's positives")
    clients_per_round: int = Field(20, ge=0, description="|c|: clients per round, whose updates are averaged; 0: all")
    batch_size: int = Field(256, gt=0, description="samples per step, positives and negatives together")
    negatives: int = Field(4, gt=0, description="fresh negatives per positive and local epoch")
    init_scale: float = Field(0.01, gt=0, description="standard deviation of the initial latent vectors")
    aggregation: Literal["mf-fedavg", "fedavg", "simple-avg"] = Field(
        "mf-fedavg",
        description="rows averaged over the clients that trained them, over samples, or over all clients of the round",
    )
    shrink: float = Field(0.0, ge=0, description="virtual clients with a zero update, added to the average of each row")
    loss: Literal["bce", "bpr", "softmax"] = Field(
        "bce",
        description="loss per sample, or over the positives and negatives of a batch: in pairs, or each against all",
    )

    @model_validator(mode="after")
    def _batches_can_be_compared(self) -> Self:
        if self.loss != "bce" and self.batch_size < 2:
            raise ValueError(f"loss={self.loss} compares samples of a batch: set batch_size to 2 or more")
        return self


class FedMLPConfig(FedGMFConfig):
    """Options of fed-mlp."""

    epochs: int = Field(60, gt=0, description="passes; in each, every client is asked once")
    layers: tuple[PositiveInt, ...] = Field((48, 24, 12, 6), min_length=1, description="widths of the ReLU layers")


class FedNeuMFConfig(FedMLPConfig):
    """Options of fed-neumf."""

    epochs: int = Field(
        100, gt=0, description="passes; in each, every client is asked once; it overfits with many more"
    )


class _FederatedNCF(Neural, Federated):
    """What the three have in common: everything but the shape of the model."""

    config: FedGMFConfig

    def __init__(self, config: FedGMFConfig, shape: NCF) -> None:
        self.config, self.shape = config, shape
        self.spec = FederatedSpec(
            item_tables=("items",),
            other_tables=("layers",),
            downloads=("items", "layers"),
            counted=("items",) if AVERAGES[config.aggregation].by_row else (),
            server_state=tuple(server_state(config, dict.fromkeys(("items", "layers"), np.zeros(0)))),
            private={"users": "float32"},
            schedule_options=("clients_per_round", "epochs"),
        )

    def schedule(self, clients: Clients) -> Schedule:
        """All clients once in each pass, in cohorts."""
        asked = min(self.config.clients_per_round or len(clients), len(clients))
        return Schedule(self.config.epochs, -(-len(clients) // asked), asked, partition=True)

    def rows_per_client(self, shared: Mapping[str, Array]) -> int:
        """A guess: a client of some hundred positives touches about ten rows for each."""
        return min(1000, len(shared["items"])) + 1

    def init(self, clients: Clients, catalog: Catalog, key: Key) -> Model:
        """Draw the first item table, layers and vectors, as the centralised versions do."""
        if not len(clients.items):
            raise MethodError("There is nothing to learn from: no client has any history.")
        scale = self.config.init_scale
        shared = self.shape.init_shared(catalog.n_items, key, scale)
        layers = np.append(self.shape.flatten(shared), np.float32(0))[None, :]  # the last one is the weight's place
        tables = {"items": shared["items"], "layers": layers}
        return Model({**tables, **server_state(self.config, tables)}, self.shape.init_private(clients.ids, key, scale))

    def plan(self, model: Model, clients: Clients, key: Key) -> UpdatePlan:
        """Draw samples: the rows that they touch, and one for the layers."""
        draws = self.draw(clients, key)
        touched = PlannedRows("items", draws[2], draws[3], draws[5])
        layers = PlannedRows("layers", np.arange(len(clients) + 1), np.zeros(len(clients), np.int32), False)
        return UpdatePlan(clients.ids, (touched, layers), draws)

    def learn(
        self, model: Model, clients: Clients, plan: UpdatePlan, sink: UpdateSink, key: Key
    ) -> Mapping[str, Array]:
        """Learn on each device for some local epochs; the moves of touched rows and of the layers leave."""
        total, touched = sink.direct(), plan.parts[0]
        if total is None:
            out = row_sink(touched.n_rows, len(clients), self.shape.width, self.shape.n_layers)
            users = self._learn_locally(model, clients, sink.ring, plan.work, out)
            sink.put(0, out.rows)
            sink.put(1, out.layers)
            return {"users": users}
        kept = np.ones(max(1, touched.n_rows), np.uint8) if touched.kept is None else touched.kept
        sums, counts = total.sums, total.counts
        out = total_sink(kept, (sums["items"], counts["items"]), (sums["layers"], counts["layers"]))
        users = self._learn_locally(model, clients, sink.ring, plan.work, out)
        sink.check(float(out.largest[0]) / float(sink.ring.scale))
        return {"users": users}

    def draw(self, clients: Clients, key: Key) -> tuple[NDArray[Any], ...]:
        """Return samples and touched rows of a round; see `draw_local_rounds`.

        A client with every item has no negatives: it has no pairs to compare, so its update has no rows.
        """
        draws = self._drawn(clients, clients.ptr, clients.items, key)
        if self.config.loss == "bce":
            return draws
        sizes = clients.sizes
        can_compare = np.diff(draws[0]) > sizes * self.config.local_epochs
        if can_compare[sizes > 0].all():
            return draws
        return self._drawn(clients, offsets(sizes * can_compare), clients.items[np.repeat(can_compare, sizes)], key)

    def _drawn(self, clients: Clients, ptr: Array, items: Array, key: Key) -> tuple[NDArray[Any], ...]:
        c, barred = self.config, clients.avoid
        avoid_ptr, avoid_items = (np.zeros_like(ptr), items[:0]) if barred is None else (barred.ptr, barred.items)
        how = clients.n_items, c.negatives, c.local_epochs, key.word
        found: tuple[NDArray[Any], ...] = draw_local_rounds(clients.ids, ptr, items, avoid_ptr, avoid_items, *how)
        return found

    def _learn_locally(
        self, model: Model, clients: Clients, ring: Ring, draws: tuple[NDArray[Any], ...], out: MoveSink
    ) -> Floats:
        """Fill `out` with moves on the grid, and return the new vectors."""
        shared, c, users = model.shared, self.config, model.private["users"].copy()
        longest = int(np.diff(draws[0]).max(initial=0)) // c.local_epochs
        pace = adam_schedule(c.local_epochs * -(-longest // c.batch_size), c.learning_rate)
        learnt_from = np.where(np.diff(draws[0]) > 0, clients.sizes, 0)
        weights = AVERAGES[c.aggregation].weights(learnt_from, ring)
        how = Learning(c.local_epochs, c.batch_size, LOSSES[c.loss], np.float32(c.own_rate))
        items = rows_of(np.ascontiguousarray(shared["items"]))
        start = draws, how, items, shared["layers"][0, :-1], users
        if self.shape.layers:
            learn_towers(*start, self.shape.sizes, self.shape.product, pace, weights, ring.scale, out)
        else:
            learn_products(*start, pace, weights, ring.scale, out)
        return users

    def apply(self, shared: Mapping[str, Array], total: Total, ring: Ring) -> Mapping[str, Array]:
        """Apply the averaged updates; rows that no client mentions stay, and cost little where they are most."""
        c, average, counts = self.config, AVERAGES[self.config.aggregation], total.counts["items"]
        rows = np.flatnonzero(counts)
        if not is_plain(c) or 4 * len(rows) > len(counts):
            return apply_server_step(c, shared, *average.moves(total, ring, c.shrink))
        sums = {**total.sums, "items": total.sums["items"][rows]}
        part = replace(total, sums=sums, counts={**total.counts, "items": counts[rows]})
        moves, received = average.moves(part, ring, c.shrink)
        moved = apply_server_step(c, {**shared, "items": shared["items"][rows]}, moves, received)
        items = shared["items"].copy()
        items[rows] = moved["items"]
        return {**moved, "items": items}

    def by_name(self, shared: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return the item table and the layers by name: devices send them as one row."""
        return {"items": shared["items"], **self.shape.unflatten(shared["layers"][0, :-1])}


@register("fed-gmf", FedGMFConfig)
class FedGMF(_FederatedNCF):
    """GMF on devices: a weighted product of a private and an item's vector, item rows averaged (FedNCF)."""

    def __init__(self, config: FedGMFConfig) -> None:
        super().__init__(config, gmf(config.factors))


@register("fed-mlp", FedMLPConfig)
class FedMLP(_FederatedNCF):
    """MLP on devices: a private and an item's vector through shared ReLU layers (FedNCF)."""

    def __init__(self, config: FedMLPConfig) -> None:
        super().__init__(config, mlp(config.factors, config.layers))


@register("fed-neumf", FedNeuMFConfig)
class FedNeuMF(_FederatedNCF):
    """NeuMF on devices: GMF and MLP joined in the last layer (FedNCF)."""

    def __init__(self, config: FedNeuMFConfig) -> None:
        super().__init__(config, neumf(config.factors, config.layers))
