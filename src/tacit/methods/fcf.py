"""FCF: federated collaborative filtering for implicit feedback (Ammad-ud-din et al., 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import Field

from tacit.errors import MethodError
from tacit.kernels.als import solve_rows
from tacit.kernels.fcf import sum_for_all, weigh_all, weigh_positives
from tacit.methods.base import Federated, FederatedSpec, Schedule, register
from tacit.methods.parts import reasons
from tacit.privacy.update_sink import UpdateSink
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Config, Floats, Model, Reason
from tacit.updates import PlannedRows, Ring, Total, UpdatePlan


class FCFConfig(Config):
    """Options of FCF."""

    factors: int = Field(20, gt=0, le=1024, description="F: length of a latent vector")
    alpha: float = Field(1.0, ge=0, description="weight of an item of the history is 1 + alpha, of any other item 1")
    reg: float = Field(1.0, gt=0, description="lambda: L2 regularisation of all vectors")
    learning_rate: float = Field(0.05, gt=0, description="gamma: learning rate of the server")
    optimiser: Literal["adam", "sgd"] = Field("adam", description="optimiser of the server on the summed gradient")
    epochs: int = Field(20, gt=0, description="passes; in each, every client's vector is solved for once on average")
    steps_per_epoch: int = Field(5, gt=0, description="gradient steps of the server in an epoch; each is a round")
    clients_per_round: int = Field(0, ge=0, description="clients asked in a round; 0: all of them")
    init_scale: float = Field(0.1, gt=0, description="standard deviation of the initial item vectors")


BETA_1, BETA_2, TINY = np.float32(0.9), np.float32(0.999), np.float32(1e-8)


@register("fcf", FCFConfig)
class FCF(Federated):
    """Federated collaborative filtering: devices solve for their own vector, the server follows summed gradients.

    A device mentions every item. Its message has the rows of an empty history, for all items, and a correction for each
    item of the history. Corrections are the sensitive rows: disclosure drops some of them and keeps the rest. An item
    whose correction is dropped looks like one outside the history, not like a gap. A row also reveals the client's
    vector, up to its length: in readable rounds the server sees that, whatever pi is.

    The vector is solved for whenever it is needed and never kept, so there is no private part.
    """

    def __init__(self, config: FCFConfig) -> None:
        self.config = config
        self.spec = FederatedSpec(
            item_tables=("items",),
            downloads=("items",),
            server_state=("steps", "mean", "square") if self._is_adam else ("steps",),
            rows_repeat=True,  # an item that was taken has two rows
            schedule_options=("clients_per_round", "epochs", "steps_per_epoch"),
            growth={"items": "zeros"},  # a client's vector is solved from all items: drawn rows would move it
        )

    def schedule(self, clients: Clients) -> Schedule:
        """A round is one gradient step."""
        asked = self.config.clients_per_round or len(clients)
        if asked > len(clients) > 1:
            raise MethodError(
                f"fcf asks {asked} clients per round, but there are {len(clients)}.",
                "Lower method.clients_per_round, or set it to 0 for all.",
            )
        return Schedule(self.config.epochs, self.config.steps_per_epoch, min(asked, len(clients)))

    def init(self, clients: Clients, catalog: Catalog, key: Key) -> Model:
        """Draw the item vectors; the rest is the server's memory of its own steps."""
        items = key.child("items").normal(np.arange(catalog.n_items), self.config.factors, self.config.init_scale)
        memory = {"mean": np.zeros_like(items), "square": np.zeros_like(items)} if self._is_adam else {}
        return Model({"items": items, "steps": np.array(0), **memory}, {})

    def most_rows(self, shared: Mapping[str, Array]) -> dict[str, int]:
        """Two for every item, of which one is a correction."""
        return {"items": 2 * len(shared["items"])}

    @property
    def _is_adam(self) -> bool:
        return self.config.optimiser == "adam"

    def plan(self, model: Model, clients: Clients, key: Key) -> UpdatePlan:
        """A correction for each item that was taken, and a row for every item."""
        matrix, n_items = clients.derive_once("matrix", Clients.matrix), len(model.shared["items"])
        corrections = PlannedRows("items", matrix.indptr.astype(np.int64), matrix.indices, True)
        every = PlannedRows("items", np.arange(len(clients) + 1) * n_items, None, False)
        return UpdatePlan(clients.ids, (corrections, every))

    def learn(
        self, model: Model, clients: Clients, plan: UpdatePlan, sink: UpdateSink, key: Key
    ) -> Mapping[str, Array]:
        """Solve for each client's vector x, and put a number times x for every item."""
        items, taken = model.shared["items"], plan.parts[0]
        users, transposed = self._solve(items, clients), np.ascontiguousarray(items.T)
        weights = np.empty(taken.n_rows, np.float32)
        weigh_positives(users, taken.ptr, taken.ids, items, np.float32(self.config.alpha), weights)
        sink.put_outer(0, users, weights)
        total = sink.direct()
        if total is None:
            every = np.empty((len(clients), len(items)), np.float32)
            weigh_all(users, transposed, every)
            sink.put_outer(1, users, every.reshape(-1))
            return {}
        sums = np.zeros(transposed.shape, np.int64)
        largest = sum_for_all(users, transposed, sink.ring.scale, sums) if np.isfinite(users).all() else np.nan
        sink.check(float(largest) / float(sink.ring.scale))
        total.sums["items"] += sums.T
        total.counts["items"] += len(clients)
        return {}

    def apply(self, shared: Mapping[str, Array], total: Total, ring: Ring) -> Mapping[str, Array]:
        """Step along the summed gradient, less the regularisation."""
        c, items = self.config, shared["items"]
        gradient = ring.decode(total.sums["items"]) - np.float32(c.reg) * items
        rate, steps = np.float32(c.learning_rate), int(shared["steps"]) + 1
        if not self._is_adam:
            return {"items": items + rate * gradient, "steps": np.array(steps)}
        mean = BETA_1 * shared["mean"] + (1 - BETA_1) * gradient
        square = BETA_2 * shared["square"] + (1 - BETA_2) * gradient * gradient
        size = np.sqrt(square / np.float32(1 - float(BETA_2) ** steps)) + TINY
        moved = items + rate * (mean / np.float32(1 - float(BETA_1) ** steps)) / size
        return {"items": moved, "mean": mean, "square": square, "steps": np.array(steps)}

    def score(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients) -> Floats:
        """Return X Y'; each client's vector is solved for from its own history."""
        scores: Floats = self._solve(shared["items"], clients) @ shared["items"].T
        return scores

    def explain(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], client: Clients, item: int
    ) -> list[Reason]:
        """Return items of the history whose vectors are most aligned with the item's."""
        history = np.setdiff1d(client.items, [item])
        return reasons.from_history(history, reasons.alignment(shared["items"], history, item))

    def _solve(self, items: Floats, clients: Clients) -> Floats:
        """Return x = (Y' C Y + reg I)^-1 Y' C r of each client, [C, F]."""
        matrix = clients.derive_once("matrix", Clients.matrix)
        gram = items.T @ items + np.float32(self.config.reg) * np.eye(items.shape[1], dtype=np.float32)
        users: Floats = solve_rows(matrix.indptr, matrix.indices, items, gram, np.float32(self.config.alpha))
        return users
