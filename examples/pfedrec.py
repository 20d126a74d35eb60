"""PFedRec (Zhang et al., IJCAI 2023) as a federated method of one's own: everything a plug-in needs, in one file.

    python examples/pfedrec.py

Every client has a score function of its own, here one layer, which never leaves the device; item embeddings are shared.
A device takes a few steps on both with its own samples and sends by how much the rows it touched have moved; the
server averages each row over the clients that moved it. A package makes it known to `tacit` by an entry point in the
group `tacit.methods`; the contract is in docs/methods/README.md, and `check_federated` holds the method to it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pydantic import Field

import tacit
from tacit.testing import check_federated
from tacit.types import Array, Floats, offsets


class PFedRecConfig(tacit.Config):
    """Options of pfedrec."""

    factors: int = Field(16, gt=0, description="length of an item's embedding")
    learning_rate: float = Field(10.0, gt=0, description="step of the score function and of the embeddings")
    local_steps: int = Field(5, gt=0, description="gradient steps of a device in a round")
    negatives: int = Field(4, gt=0, description="items drawn for each item of the history")
    epochs: int = Field(40, gt=0, description="rounds; every client is asked in each")


@tacit.register("pfedrec", PFedRecConfig)
class PFedRec(tacit.Federated):
    """Personal score functions over shared item embeddings (PFedRec)."""

    spec = tacit.FederatedSpec(item_tables=("items",), downloads=("items",), private={"head": "float32"})

    def __init__(self, config: PFedRecConfig) -> None:
        self.config = config

    def schedule(self, clients: tacit.Clients) -> tacit.Schedule:
        """Everybody, every round."""
        return tacit.Schedule(self.config.epochs, 1, len(clients))

    def init(self, clients: tacit.Clients, catalog: tacit.Catalog, key: tacit.Key) -> tacit.Model:
        """Draw embeddings by item and score functions by client, so that nobody's depends on who else is there."""
        items = key.child("items").normal(np.arange(catalog.n_items), self.config.factors, 0.1)
        return tacit.Model({"items": items}, {"head": key.child("head").normal(clients.ids, self.config.factors, 0.1)})

    def plan(self, model: tacit.Model, clients: tacit.Clients, key: tacit.Key) -> tacit.UpdatePlan:
        """The rows that a client will send: its items, and items drawn by its own key; its own are sensitive."""
        touched, own = [], []
        for c in range(len(clients)):
            mine = np.unique(clients.of(c))
            drawn = key.uniform(clients.ids[c : c + 1], self.config.negatives * len(mine))[0] * clients.n_items
            rows = np.union1d(mine, drawn.astype(np.int32)).astype(np.int32)
            touched.append(rows)
            own.append(np.isin(rows, mine))
        ptr = offsets(np.array([len(rows) for rows in touched]))
        rows = tacit.PlannedRows("items", ptr, np.concatenate(touched), np.concatenate(own))
        return tacit.UpdatePlan(clients.ids, (rows,))

    def learn(
        self,
        model: tacit.Model,
        clients: tacit.Clients,
        plan: tacit.UpdatePlan,
        sink: tacit.UpdateSink,
        key: tacit.Key,
    ) -> Mapping[str, Array]:
        """Take the local steps (binary cross-entropy), and put by how much each planned row has moved."""
        rows, rate = plan.parts[0], np.float32(self.config.learning_rate)
        items, liked = model.shared["items"][rows.ids], rows.marks().astype(np.float32)
        moved, heads = items.copy(), model.private["head"].copy()
        for c in range(len(clients)):
            part = slice(rows.ptr[c], rows.ptr[c + 1])
            table, head = moved[part], heads[c]
            for _ in range(self.config.local_steps):
                wrong = rate * (liked[part] - 1 / (1 + np.exp(-table @ head))) / max(1, len(table))
                head, table = head + wrong @ table, table + wrong[:, None] * head
            moved[part], heads[c] = table, head
        sink.put(0, moved - items)
        return {"head": heads}

    def apply(self, shared: Mapping[str, Array], total: tacit.Total, ring: tacit.Ring) -> Mapping[str, Array]:
        """Average each row over the clients that moved it."""
        counts = np.maximum(total.counts["items"], 1)[:, None].astype(np.float32)
        return {"items": shared["items"] + ring.decode(total.sums["items"]) / counts}

    def score(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: tacit.Clients) -> Floats:
        """Return each client's score function of all items."""
        return np.asarray(private["head"] @ shared["items"].T, np.float32)


if __name__ == "__main__":
    check_federated(PFedRec(PFedRecConfig()))
    run = tacit.run(tacit.Experiment(method="pfedrec"))
    print({name: round(value, 3) for name, value in run.metrics.items() if name.endswith("@10")})
