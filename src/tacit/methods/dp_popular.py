"""dp-popular: the same list for all clients, from one sum to which each of them adds a vector of length 1.

A client adds x / |x| over its different items, so that those with long histories add no more than others. So the noise
of a guarantee need not grow with the longest history. It is what is left of dp-svd where noise hides everything else.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tacit.methods.base import Federated, FederatedSpec, Schedule, register
from tacit.methods.parts.sums import disclose_histories, plan_items, shared_floats, to_float64
from tacit.privacy.update_sink import UpdateSink
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Config, Floats, Model
from tacit.updates import Ring, Total, UpdatePlan


class DPPopularConfig(Config):
    """dp-popular has no options."""


@register("dp-popular", DPPopularConfig)
class DPPopular(Federated):
    """Most popular first, from one sum of vectors of length 1: the baseline under differential privacy."""

    spec = FederatedSpec(
        item_tables=("counts",), downloads=("counts",), bound=1.0, item_rows="own", schedule_options=()
    )

    def __init__(self, config: DPPopularConfig) -> None:
        self.config = config

    def schedule(self, clients: Clients) -> Schedule:
        """One sum over all clients."""
        return Schedule(1, 1, len(clients))

    def init(self, clients: Clients, catalog: Catalog, key: Key) -> Model:
        """Know nothing."""
        return Model({"counts": np.zeros((catalog.n_items, 1), np.float32)}, {})

    def plan(self, model: Model, clients: Clients, key: Key) -> UpdatePlan:
        """A number for every item of the client."""
        return UpdatePlan(clients.ids, (plan_items("counts", clients),))

    def learn(
        self, model: Model, clients: Clients, plan: UpdatePlan, sink: UpdateSink, key: Key
    ) -> Mapping[str, Array]:
        """Put 1 / sqrt(n) for each of n disclosed items."""
        sizes = np.maximum(disclose_histories(clients, plan.parts[0]).sizes, 1)
        sink.put_outer(0, (1.0 / np.sqrt(sizes)).astype(np.float32)[:, None])
        return {}

    def apply(self, shared: Mapping[str, Array], total: Total, ring: Ring) -> Mapping[str, Array]:
        """Take the new sum in the place of the old one, as a mean over clients."""
        return shared_floats({"counts": to_float64(total.sums["counts"], ring) / max(total.n_clients, 1)})

    def score(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients) -> Floats:
        """Return the noisy counts, the same for all clients."""
        return np.tile(shared["counts"][:, 0], (len(clients), 1))

    def popularity(self, shared: Mapping[str, Array]) -> Floats:
        """Return the noisy counts, where they are above nothing."""
        return np.maximum(shared["counts"][:, 0], np.float32(1e-6))
