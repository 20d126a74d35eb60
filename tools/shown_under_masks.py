"""How much of what people of the town say in one round a two-stage sum would show, by method and number of devices."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from tacit.data import DataConfig, load
from tacit.field.coordinator.round_policy import LOST_BETWEEN
from tacit.field.device import Sharing
from tacit.protocols.federated import device_round
from tacit.protocols.secure_aggregation import DevicePolicy
from tacit.random import Key
from tacit.types import Catalog, Clients, offsets
from tacit.wire.federation import Federation

METHODS: list[tuple[str, dict[str, Any]]] = [
    ("fpl", {"factors": 10, "local_steps": 20}),
    ("fpl", {"factors": 10, "local_steps": 100}),
    ("fed-gmf", {"factors": 8}),
]
DEVICES, PI = (13, 20, 30, 50, 100, 400), 0.5


def main() -> None:
    """Print one line per method and number of devices."""
    dataset = load(DataConfig(source="town"))
    log, known, key = dataset.interactions, dataset.catalog, Key(1)
    catalog = Catalog(known.item_ids, known.titles, known.categories)
    for method, options in METHODS:
        federation = Federation.create("ab" * 16, "shown", method, options, catalog)
        for n_participants in DEVICES:
            histories = [np.unique(log.items[log.users == person]) for person in range(n_participants)]
            ptr = offsets(np.array([len(history) for history in histories]))
            clients = Clients(
                np.arange(n_participants), ptr, np.concatenate(histories).astype(np.int32), catalog.n_items
            )
            model = federation.built.init(clients, catalog, key.child("init"))
            path = federation.path(Sharing(pi=PI, coin="row").stage(n_participants - 1, catalog))
            message = device_round(path, model, clients, key, 0).message
            assert message is not None
            least, said, shown = DevicePolicy().k_min + math.ceil(n_participants / LOST_BETWEEN), 0, 0
            for name, (ends, ids, _) in message.tables.items():
                people = np.zeros(len(model.shared[name]), np.int64)
                for person in range(n_participants):
                    people[np.unique(ids[ends[person] : ends[person + 1]])] += 1
                said, shown = said + int(people.sum()), shown + int(people[people >= least].sum())
            line = {"method": method, **options, "devices": n_participants, "people_per_row": least}
            print(json.dumps(line | {"shown": round(shown / said, 2)}))


if __name__ == "__main__":
    main()
