"""Small worlds whose right answer is known by construction."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.types import Catalog, Clients, Labels, Triples, Vocabulary, offsets


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
    every = np.arange(items)
    also = every % 5 == 0  # a rarer mark that some items carry besides
    marks = [[item % 2, 2] if also[item] else [item % 2] for item in every]
    categories = Labels(offsets(1 + also), np.concatenate(marks).astype(np.int32), ["even", "odd", "fifth"])
    return clients, Catalog(Vocabulary(every + 100), categories=categories, graph=_graph(items))


def _graph(items: int) -> Triples:
    """Statements about the items: their parity, and a maker for every three in a row."""
    every = np.arange(items)
    makers = items + 2 + every // 3
    names = [f"item {i}" for i in every] + ["even", "odd"] + [f"maker {m}" for m in range(items // 3 + 1)]
    return Triples(
        np.tile(every, 2).astype(np.int32),
        np.repeat([0, 1], items).astype(np.int32),
        np.concatenate([items + every % 2, makers]).astype(np.int32),
        Vocabulary(np.array(names, dtype=object)),
        ["parity", "made by"],
        every.astype(np.int32),
    )


@pytest.fixture
def tastes() -> tuple[Clients, Catalog]:
    clients, catalog = two_tastes()
    for array in (clients.ids, clients.ptr, clients.items):
        array.flags.writeable = False
    return clients, catalog
