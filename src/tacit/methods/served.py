"""FedAvg, Reptile and FedFast: the models that PEPPER's nodes learn, brought together by a server instead.

A device starts from the server's tables, learns on its own samples, and sends by how much the rows it touched have
moved; the server averages the moves by samples (McMahan et al., 2017). Reptile tunes the result to each person before
it serves (Nichol et al., 2018). FedFast (Muhammad et al., 2020) also sends the person's vector: the server clusters
people by them in every round and moves those who were not asked as their cluster moved. FedFast draws those it asks
evenly from its clusters; here everybody is asked once in each pass, in random groups, so that all methods have the
same rounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tacit.errors import MethodError
from tacit.methods import reasons
from tacit.methods.aggregation import AVERAGES
from tacit.methods.base import Schedule, register
from tacit.methods.local import NodeConfig, NodeModel, node_model
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Floats, Model, Reason, offsets
from tacit.updates import Ring, Rows, Total, Update

Shared = Mapping[str, Array]
ITERATIONS = 5  # of k-means, in every round: people hardly move between two


class FedAvgConfig(NodeConfig):
    """Options of fedavg."""

    epochs: int = Field(30, gt=0, description="passes: in each, everybody is asked once")
    clients_per_round: int = Field(20, ge=0, description="clients whose moves are averaged at a time; 0: all")
    aggregation: Literal["fedavg", "mf-fedavg", "simple-avg"] = Field(
        "fedavg", description="rows averaged over all samples, over those who learnt them, or over all who were asked"
    )
    server_rate: float = Field(1.0, gt=0, description="the average move is multiplied by it before it is made")


@register("fedavg", FedAvgConfig)
class FedAvg:
    """FedAvg: devices train GMF or PRME-G, a server averages by samples (McMahan et al., 2017)."""

    uses_features: ClassVar[bool] = False
    tables: ClassVar[tuple[str, ...]] = ("items", "layers")
    config: FedAvgConfig
    model: NodeModel

    def __init__(self, config: FedAvgConfig) -> None:
        self.config = config
        self.model = node_model(config)

    def schedule(self, clients: Clients) -> Schedule:
        """Everybody once in each pass, in groups."""
        asked = min(self.config.clients_per_round or len(clients), len(clients))
        return Schedule(self.config.epochs, -(-len(clients) // asked), asked, partition=True)

    def init(self, clients: Clients, catalog: Catalog, key: Key) -> Model:
        """Draw the first tables as a node would, and everybody's vector and chance."""
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
        people = self.model.person(clients, key)
        return Model(shared, {**people, "chance": key.child("chance").bits(clients.ids, 1)[:, 0]})

    def _nodes(self, shared: Shared, private: Shared, clients: Clients, chance: NDArray[np.uint64]) -> dict[str, Array]:
        """Return a whole model for each client: the server's tables, and what is hers."""
        n = len(clients)
        return {
            "items": np.repeat(shared["items"].T[None], n, axis=0),
            "layers": np.repeat(shared["layers"][:, :-1], n, axis=0),
            **{name: array.copy() for name, array in private.items()},
            "users": self._vectors(shared, private, clients),
            "chance": chance,
            "done": np.zeros(n, np.int64),
        }

    def _vectors(self, shared: Shared, private: Shared, clients: Clients) -> Floats:
        vectors: Floats = private["users"].copy()
        return vectors

    def learn(
        self, shared: Shared, private: Shared, clients: Clients, ring: Ring, key: Key
    ) -> tuple[Update, dict[str, Array]]:
        """Learn on each device; write the moves of the rows it touched and of the layers, weighted for the average."""
        nodes = self._nodes(shared, private, clients, key.bits(clients.ids, 1)[:, 0])
        own = self.model.own(shared, clients, nodes["chance"], 0.0)
        self.model.learn(np.arange(len(clients)), nodes, own)
        weights = AVERAGES[self.config.aggregation].weights(own.samples, ring)
        moved = nodes["items"] - shared["items"].T
        who, which = np.nonzero((moved != 0).any(axis=1))
        counts = np.bincount(who, minlength=len(clients))
        values = moved[who, :, which] * weights[0, who][:, None]
        layers = np.append(nodes["layers"] - shared["layers"][:, :-1], np.ones((len(clients), 1)), axis=1)
        tables = {
            "items": Rows(offsets(counts), which.astype(np.int32), _on_grid(values, ring)),
            "layers": _one_row_each(_on_grid(layers * weights[1][:, None], ring), np.zeros(len(clients))),
        }
        sensitive = {
            "items": clients.matrix()[who, which].A1 > 0 if len(who) else np.zeros(0, bool),
            "layers": np.zeros(len(clients), bool),
        }
        of = {"layers": lambda is_meant: np.zeros(len(clients), bool)}  # made of everything, as all layers are
        update = Update(clients.ids, tables, sensitive, speaks_of=of)
        return self._with_people(update, shared, private, nodes, clients, ring)

    def _with_people(
        self, update: Update, shared: Shared, private: Shared, nodes: Shared, clients: Clients, ring: Ring
    ) -> tuple[Update, dict[str, Array]]:
        """Her vector stays with her."""
        return update, {**private, "users": nodes["users"]}

    def apply(self, shared: Shared, total: Total, ring: Ring) -> dict[str, Array]:
        """Average the moves and make them; rows of which nobody spoke stay."""
        rate = np.float32(self.config.server_rate)
        moves, _ = AVERAGES[self.config.aggregation].moves(total, ring)
        return {**shared, **{name: shared[name] + rate * by for name, by in moves.items()}}

    def score(self, shared: Shared, private: Shared, clients: Clients) -> Floats:
        """Return the scores of all items: the server's tables, her own vector."""
        return self.model.score(shared, self._nodes(shared, private, clients, private["chance"]))

    def explain(self, shared: Shared, private: Shared, client: Clients, item: int) -> list[Reason]:
        """Return her own items whose vectors point the same way as the item's, seen from the average item."""
        vectors = shared["items"] - shared["items"].mean(axis=0)
        history = np.setdiff1d(client.items, [item])
        return reasons.from_history(history, reasons.alignment(vectors, history, item))


class ReptileConfig(FedAvgConfig):
    """Options of reptile."""

    server_rate: float = Field(0.5, gt=0, description="how far the server's model follows what was learnt locally")
    tuning: int = Field(2, ge=0, description="local epochs on her own data before the model is used")


@register("reptile", ReptileConfig)
class Reptile(FedAvg):
    """Reptile: a server's model to start from, tuned on her own data before it serves (Nichol et al., 2018)."""

    config: ReptileConfig

    def score(self, shared: Shared, private: Shared, clients: Clients) -> Floats:
        """Return the scores of all items by the server's model tuned to her."""
        nodes = self._nodes(shared, private, clients, private["chance"])
        if self.config.tuning:
            own = self.model.own(shared, clients, nodes["chance"], 0.0)
            self.model.learn(np.arange(len(clients)), nodes, own, self.config.tuning)
        return self.model.score(shared, nodes)


class FedFastConfig(FedAvgConfig):
    """Options of fedfast."""

    clusters: int = Field(10, gt=0, description="groups of people whose vectors move together")
    spread: float = Field(0.2, ge=0, le=1, description="how far those who were not asked follow their cluster")


@register("fedfast", FedFastConfig)
class FedFast(FedAvg):
    """FedFast: FedAvg in which people's vectors are sent too and follow their cluster (Muhammad et al., 2020)."""

    tables: ClassVar[tuple[str, ...]] = ("items", "layers", "people")
    config: FedFastConfig

    def init(self, clients: Clients, catalog: Catalog, key: Key) -> Model:
        """As FedAvg; the server holds everybody's vector."""
        model = super().init(clients, catalog, key)
        private = dict(model.private)
        users = private.pop("users")
        people = np.zeros((int(clients.ids.max(initial=0)) + 1, users.shape[1]), np.float32)
        people[clients.ids] = users
        return Model({**model.shared, "people": people}, private)

    def _vectors(self, shared: Shared, private: Shared, clients: Clients) -> Floats:
        vectors: Floats = shared["people"][clients.ids]
        return vectors

    def _with_people(
        self, update: Update, shared: Shared, private: Shared, nodes: Shared, clients: Clients, ring: Ring
    ) -> tuple[Update, dict[str, Array]]:
        """Her vector is sent: by how much it has moved."""
        moves = _on_grid(nodes["users"] - shared["people"][clients.ids], ring)
        tables = {**update.tables, "people": _one_row_each(moves, clients.ids)}
        sensitive = {**update.sensitive, "people": np.zeros(len(clients), bool)}
        of = {**update.speaks_of, "people": lambda is_meant: np.zeros(len(clients), bool)}
        return Update(update.clients, tables, sensitive, speaks_of=of), dict(private)

    def apply(self, shared: Shared, total: Total, ring: Ring) -> dict[str, Array]:
        """Average the tables; move the vectors of those who were asked, and the others a little with their cluster."""
        people, asked = shared["people"], total.counts["people"] > 0
        moves = ring.decode(total.sums["people"])
        cluster = clustered(people, self.config.clusters)
        for one in np.unique(cluster):
            mine = cluster == one
            if (mine & asked).any():
                moves[mine & ~asked] = np.float32(self.config.spread) * moves[mine & asked].mean(axis=0)
        return {**super().apply(shared, total, ring), "people": people + moves}


def clustered(people: Floats, n_clusters: int) -> NDArray[np.int64]:
    """Return each person's cluster: k-means from people spread evenly along the main direction."""
    n_clusters = min(n_clusters, len(people))
    around = people - people.mean(axis=0)
    along = around @ np.linalg.svd(around.T @ around)[0][:, 0]
    order = np.argsort(along, kind="stable")
    centres = people[order[((np.arange(n_clusters) + 0.5) * len(people) / n_clusters).astype(int)]]
    cluster = np.zeros(len(people), np.int64)
    for _ in range(ITERATIONS):
        far = ((people[:, None, :] - centres[None]) ** 2).sum(axis=2)
        cluster = far.argmin(axis=1).astype(np.int64)
        counts = np.bincount(cluster, minlength=n_clusters)
        sums = np.zeros_like(centres)
        np.add.at(sums, cluster, people)
        centres = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centres).astype(np.float32)
    return cluster


def _on_grid(values: Array, ring: Ring) -> Floats:
    """Round to the grid of the ring."""
    return (np.rint(values * ring.scale) / ring.scale).astype(np.float32)


def _one_row_each(values: Floats, ids: Array) -> Rows:
    return Rows(np.arange(len(values) + 1), np.asarray(ids, np.int32), values)
