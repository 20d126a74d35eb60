"""FedFast: FedAvg in which clusters of similar clients move together (Muhammad et al., 2020).

Devices send their users' vectors too: the server clusters clients by them in every round and moves those who were not
asked as their cluster moved. FedFast draws those it asks evenly from its clusters; here every client is asked once in
each pass, in random groups, so that all methods have the same rounds. The server must read every vector, so FedFast
cannot run under secure aggregation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from threadpoolctl import threadpool_limits

from tacit.methods.base import register
from tacit.methods.fedavg import FedAvg, FedAvgConfig, TrainedModels, on_grid
from tacit.privacy.update_sink import UpdateSink
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Floats, Model, offsets
from tacit.updates import PlannedRows, Ring, Total, UpdatePlan

Shared = Mapping[str, Array]
ITERATIONS = 5  # of k-means, in every round: vectors hardly move between two


class FedFastConfig(FedAvgConfig):
    """Options of fedfast."""

    clusters: int = Field(10, gt=0, description="number of clusters of clients")
    spread: float = Field(
        0.2, ge=0, le=1, description="share of its cluster's step that a client outside the round makes"
    )


@register("fedfast", FedFastConfig)
class FedFast(FedAvg):
    """FedFast: FedAvg in which clients' vectors are sent too and follow their cluster (Muhammad et al., 2020)."""

    config: FedFastConfig

    def __init__(self, config: FedFastConfig) -> None:
        super().__init__(config)
        private = {name: dtype for name, dtype in self.spec.private.items() if name != "users"}
        downloads = (*self.spec.downloads, "people")
        self.spec = replace(self.spec, client_tables=("people",), downloads=downloads, private=private)

    def init(self, clients: Clients, catalog: Catalog, key: Key) -> Model:
        """As FedAvg; the server holds every client's vector, in the row of its id."""
        model = super().init(clients, catalog, key)
        private = dict(model.private)
        users = private.pop("users")
        vectors_of_clients = np.zeros((int(clients.ids.max(initial=0)) + 1, users.shape[1]), np.float32)
        vectors_of_clients[clients.ids] = users
        return Model({**model.shared, "people": vectors_of_clients}, private)

    def _vectors(self, shared: Shared, private: Shared) -> Floats:
        vectors: Floats = shared["people"].copy()
        return vectors

    def plan(self, model: Model, clients: Clients, key: Key) -> UpdatePlan:
        """As FedAvg, and the client's own row."""
        plan = super().plan(model, clients, key)
        own = PlannedRows("people", np.arange(len(clients) + 1), clients.ids.astype(np.int32), False)
        return replace(plan, parts=(*plan.parts, own))

    def learn(
        self, model: Model, clients: Clients, plan: UpdatePlan, sink: UpdateSink, key: Key
    ) -> Mapping[str, Array]:
        """As FedAvg; by how much the client's vector has moved is sent too."""
        super().learn(model, clients, plan, sink, key)
        done: TrainedModels = plan.work
        sink.put(2, on_grid(done.models["users"] - model.shared["people"], sink.ring))
        return model.private

    def apply(self, shared: Shared, total: Total, ring: Ring) -> dict[str, Array]:
        """Average the tables; move the vectors of those who were asked, and the others a little with their cluster."""
        vectors_of_clients, asked = shared["people"], total.counts["people"] > 0
        moves = ring.decode(total.sums["people"])
        cluster = find_clusters(vectors_of_clients, self.config.clusters)
        for one in np.unique(cluster):
            mine = cluster == one
            if (mine & asked).any():
                moves[mine & ~asked] = np.float32(self.config.spread) * moves[mine & asked].mean(axis=0)
        return {**super().apply(shared, total, ring), "people": vectors_of_clients + moves}


def find_clusters(users: Floats, n_clusters: int) -> NDArray[np.int64]:
    """Return each client's cluster: k-means from clients spread evenly along the main direction.

    Rows are sorted first and BLAS has one thread: neither the order of clients nor the number of threads matters.
    """
    from scipy.cluster.vq import vq  # 150 ms to import, and only FedFast needs it

    rows, place, counts = np.unique(users, axis=0, return_inverse=True, return_counts=True)
    ordered = np.repeat(rows, counts, axis=0)
    n_clusters = min(n_clusters, len(ordered))
    with threadpool_limits(1, "blas"):
        around = ordered - ordered.mean(axis=0)
        along = around @ np.linalg.svd(around.T @ around)[0][:, 0]
        spread = ((np.arange(n_clusters) + 0.5) * len(ordered) / n_clusters).astype(int)
        centres = ordered[np.argsort(along, kind="stable")[spread]]
        for _ in range(ITERATIONS):
            found, _ = vq(ordered, centres)
            sums = np.zeros_like(centres)
            np.add.at(sums, found, ordered)
            sizes = np.bincount(found, minlength=n_clusters).astype(centres.dtype)[:, None]
            centres = np.where(sizes > 0, sums / np.maximum(sizes, 1), centres)  # of an empty cluster: it stays
    labels: NDArray[np.int64] = found[offsets(counts)[:-1]][place.ravel()].astype(np.int64)
    return labels  # equal rows share the label of the first
