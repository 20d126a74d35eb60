"""kaHFM (Anelli et al., ISWC 2019): every factor is a feature of a knowledge graph; from tf-idf, tuned by BPR."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from pydantic import Field

from tacit.errors import DivergedError, MethodError
from tacit.kernels.kahfm import long_bpr_epoch
from tacit.kernels.membership import owned_items, pairs_to_learn
from tacit.methods.base import Centralised, register
from tacit.methods.parts import reasons
from tacit.methods.parts.features import FeatureKind, features_of, tf_idf
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Config, Floats, Model, Reason

_EXPLODED = 1e3
MOST_BYTES = 4 * 2**30  # of users and items times features


class KaHFMConfig(Config):
    """Options of kahfm."""

    epochs: int = Field(50, gt=0, description="passes; one pass draws as many triples as there are interactions")
    learning_rate: float = Field(0.05, gt=0, description="learning rate")
    reg: float = Field(0.001, ge=0, description="L2 regularisation of the vectors")
    features: FeatureKind = Field(
        "any", description="features of an item: its graph, its categories; any: the graph if there is one"
    )


@register("kahfm", KaHFMConfig)
class KaHFM(Centralised):
    """Knowledge-aware factors: one factor per feature, started at its tf-idf, learnt from pairs; it says why."""

    uses_features = True

    def __init__(self, config: KaHFMConfig) -> None:
        self.config = config

    def fit(self, clients: Clients, catalog: Catalog, key: Key) -> Iterator[Model]:
        """Yield the model after each epoch; its arrays go on changing."""
        c, known = self.config, features_of(catalog, self.config.features, "kahfm")
        size = 4 * (len(clients) + catalog.n_items) * len(known)
        if size > MOST_BYTES:
            raise MethodError(
                f"kahfm keeps a number for every user and feature: {size / 2**30:.1f} GB, {len(known):,} features.",
                "Raise data.min_per_feature, or use kgflex, which is sparse.",
            )
        described = tf_idf(known)
        items = np.ascontiguousarray(described.toarray(), np.float32)
        lengths = np.maximum(clients.sizes, 1).astype(np.float32)
        users = np.ascontiguousarray((clients.matrix() @ described).toarray() / lengths[:, None], np.float32)
        bias = np.zeros(catalog.n_items, np.float32)
        model = Model({"items": items, "bias": bias, "names": np.array(known.names)}, {"people": users})
        kept_out = owned_items(clients)
        pairs = pairs_to_learn(clients, kept_out)
        for epoch in range(c.epochs):
            word = key.child("epoch", epoch).word
            long_bpr_epoch(word, len(pairs), pairs, kept_out, users, items, bias, c.learning_rate, c.reg)
            largest = max(float(np.abs(array).max(initial=0.0)) for array in (users, items, bias))
            if not largest < _EXPLODED:
                raise DivergedError(
                    f"kahfm diverged in epoch {epoch + 1}: a learnt number reached {largest:.3g}.",
                    f"Lower method.learning_rate (now {c.learning_rate:g}) or raise method.reg.",
                )
            yield model

    def score(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients) -> Floats:
        """Return P Q' + b."""
        scores = np.asarray(private["people"] @ shared["items"].T)
        scores += shared["bias"]
        return scores

    def explain(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], client: Clients, item: int
    ) -> list[Reason]:
        """Return the features with the largest part of the score."""
        found = reasons.strongest(private["people"][0] * shared["items"][item])
        return [Reason("feature", str(shared["names"][at]), weight) for at, weight in found]
