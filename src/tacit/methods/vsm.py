"""Vector space model: items as weighted vectors of their features, a user as the mean of the items of the history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
from pydantic import Field
from scipy import sparse

from tacit.methods.base import Centralised, register
from tacit.methods.parts import reasons
from tacit.methods.parts.features import features_of, tf_idf, unit_rows
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Config, Floats, Model, Reason


class VSMConfig(Config):
    """Options of vsm."""

    features: Literal["categories", "graph"] = Field(
        "categories", description="features of an item: its categories, or its statements in the knowledge graph"
    )
    weighting: Literal["tf-idf", "binary"] = Field("tf-idf", description="tf-idf: rare features count more")


@register("vsm", VSMConfig)
class VSM(Centralised):
    """Content-based: cosine between the features of an item and the mean features of the history."""

    uses_features = True

    def __init__(self, config: VSMConfig) -> None:
        self.config = config

    def fit(self, clients: Clients, catalog: Catalog, key: Key) -> Iterator[Model]:
        """Weigh the features of every item; histories are not used."""
        known = features_of(catalog, self.config.features, "vsm")
        vectors = tf_idf(known) if self.config.weighting == "tf-idf" else unit_rows(known.matrix())
        shared = {
            "ptr": vectors.indptr,
            "features": vectors.indices,
            "weights": vectors.data,
            "names": np.array(known.names),
        }
        yield Model(shared, {})

    def score(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients) -> Floats:
        """Return the cosine between each user's profile and each item."""
        vectors = _vectors(shared)
        profiles = unit_rows(clients.matrix() @ vectors)
        return np.ascontiguousarray((vectors @ profiles.T.toarray()).T, np.float32)

    def explain(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], client: Clients, item: int
    ) -> list[Reason]:
        """Return the features that the history and the item share, by their part of the cosine."""
        vectors = _vectors(shared)
        profile = (client.matrix() @ vectors).toarray()[0]
        target = vectors[[item]]
        found = reasons.strongest(target.data * profile[target.indices])
        return [Reason("feature", str(shared["names"][target.indices[at]]), weight) for at, weight in found]


def _vectors(shared: Mapping[str, Array]) -> Any:
    shape = (len(shared["ptr"]) - 1, len(shared["names"]))
    return sparse.csr_matrix((shared["weights"], shared["features"], shared["ptr"]), shape=shape)
