"""Small worlds whose right answer is known by construction."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.types import Catalog, Clients, Labels, Vocabulary, offsets


def two_tastes(people: int = 40, items: int = 24, seed: int = 0) -> tuple[Clients, Catalog]:
    """Even people like even items, odd people odd ones; each did about half of what she likes."""
    rng = np.random.default_rng(seed)
    histories = []
    for person in range(people):
        liked = np.arange(person % 2, items, 2)
        histories.append(np.sort(rng.choice(liked, size=len(liked) // 2, replace=False)))
    clients = Clients(
        np.arange(people),
        offsets(np.array([len(h) for h in histories])),
        np.concatenate(histories).astype(np.int32),
        items,
    )
    categories = Labels(np.arange(items + 1), (np.arange(items) % 2).astype(np.int32), ["even", "odd"])
    return clients, Catalog(Vocabulary(np.arange(items) + 100), categories=categories)


@pytest.fixture
def tastes() -> tuple[Clients, Catalog]:
    clients, catalog = two_tastes()
    for array in (clients.ids, clients.ptr, clients.items):
        array.flags.writeable = False
    return clients, catalog
