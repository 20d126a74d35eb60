"""A small world in which something is known about every item."""

from __future__ import annotations

import numpy as np

from tacit.testing import make_clients
from tacit.types import Catalog, Clients, Triples, Vocabulary


def small_world(people: int = 12, items: int = 30, seed: int = 3) -> tuple[Clients, Catalog]:
    """People with random histories; items with random features of one hop, or of two."""
    rng = np.random.default_rng(seed)
    clients = make_clients([rng.choice(items, rng.integers(2, 9), replace=False) for _ in range(people)], items)
    statements = [(i, r, items + t) for i in range(items) for r in (0, 1) for t in rng.choice(7, 3, replace=False)]
    heads, relations, tails = np.array(statements, np.int32).T
    names = Vocabulary(np.array([f"e{i}" for i in range(items + 7)], dtype=object))
    graph = Triples(heads, relations, tails, names, ["by", "by~from"], np.arange(items, dtype=np.int32))
    return clients, Catalog(Vocabulary(np.arange(items)), graph=graph)
