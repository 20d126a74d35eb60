"""The two baselines without personalisation: random order and Most Popular."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from tacit.methods.base import Centralised, register
from tacit.random import GAMMA, Key, mix
from tacit.types import Array, Catalog, Clients, Config, Floats, Model, Reason


class RandomConfig(Config):
    """Chance has no options; its draws follow the seed of the run."""


@register("random", RandomConfig)
class Random(Centralised):
    """Random order: every user gets a shuffle of the catalogue that depends on the seed and the user's id."""

    def __init__(self, config: RandomConfig) -> None:
        self.config = config

    def fit(self, clients: Clients, catalog: Catalog, key: Key) -> Iterator[Model]:
        """Keep the word that starts all draws; nothing is learnt."""
        yield Model({"word": np.asarray(key.child("random").word), "n_items": np.asarray(catalog.n_items)}, {})

    def score(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients) -> Floats:
        """Return uniform numbers, the same for the same user however the cohort is cut."""
        lanes = mix(shared["word"] ^ mix(clients.ids.astype(np.uint64) + GAMMA))
        steps = np.arange(1, int(shared["n_items"]) + 1, dtype=np.uint64) * GAMMA
        return (mix(lanes[:, None] + steps[None, :]) >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)

    def explain(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], client: Clients, item: int
    ) -> list[Reason]:
        """Random order has no reasons."""
        return []


class MostPopularConfig(Config):
    """Most Popular has no options."""


@register("most-popular", MostPopularConfig)
class MostPopular(Centralised):
    """Most popular first: the same list for all users; at equal counts the catalogue's order decides."""

    def __init__(self, config: MostPopularConfig) -> None:
        self.config = config

    def fit(self, clients: Clients, catalog: Catalog, key: Key) -> Iterator[Model]:
        """Count the users of each item; doing it twice counts once."""
        counts = clients.matrix().getnnz(axis=0)
        places = np.empty(len(counts), np.float32)
        places[np.argsort(-counts, kind="stable")] = np.arange(len(counts), 0, -1)
        yield Model({"people": counts, "places": places}, {})

    def score(self, shared: Mapping[str, Array], private: Mapping[str, Array], clients: Clients) -> Floats:
        """Return each item's place in the list counted from its end, the same for all users."""
        return np.tile(shared["places"], (len(clients), 1))

    def explain(
        self, shared: Mapping[str, Array], private: Mapping[str, Array], client: Clients, item: int
    ) -> list[Reason]:
        """Say how many users did it."""
        return [Reason("popularity", int(shared["people"][item]), 1.0)]
