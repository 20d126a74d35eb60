"""Data for tests of methods, in this repository and in plug-ins: small cohorts whose right answer is known.

from tacit.testing import two_tastes

clients, catalog = two_tastes()  # client 0 likes items 0, 2, 4, ...; client 1 likes items 1, 3, 5, ...
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit.types import Catalog, Clients, Labels, Triples, Vocabulary, offsets

__all__ = ["make_clients", "two_tastes"]


def make_clients(
    histories: Sequence[Any], n_items: int, *, ids: Sequence[int] | None = None, avoid: Clients | None = None
) -> Clients:
    """Return the clients with these histories of items: `make_clients([[0, 2], [1]], n_items=3)`."""
    rows = [np.sort(np.asarray(history, np.int32)) for history in histories]
    who = np.arange(len(rows)) if ids is None else np.asarray(ids, np.int64)
    sizes = np.array([len(row) for row in rows], np.int64)
    return Clients(who, offsets(sizes), np.concatenate([np.empty(0, np.int32), *rows]), n_items, avoid=avoid)


def two_tastes(n_clients: int = 40, n_items: int = 24, seed: int = 0) -> tuple[Clients, Catalog]:
    """Return clients of two tastes, and a catalogue that says as much of the items.

    Even clients like even items, odd clients like odd ones. A client's history is a random half of what it likes, so
    the right recommendation is the other half: the items of its parity that it does not have yet. Item i has the label
    i + 100. Its categories and its statements in the graph name its parity, beside others that do not matter.
    """
    rng = np.random.default_rng(seed)
    liked = [np.arange(client % 2, n_items, 2) for client in range(n_clients)]
    clients = make_clients([rng.choice(own, len(own) // 2, replace=False) for own in liked], n_items)
    items = np.arange(n_items)
    marks = [mark for item in range(n_items) for mark in ([item % 2, 2] if item % 5 == 0 else [item % 2])]
    categories = Labels(offsets(1 + (items % 5 == 0)), np.array(marks, np.int32), ["even", "odd", "fifth"])
    return clients, Catalog(Vocabulary(items + 100), categories=categories, graph=_parity_graph(n_items))


def _parity_graph(n_items: int) -> Triples:
    """Return statements about the items: their parity, and one maker for every three in a row."""
    items = np.arange(n_items)
    makers = n_items + 2 + items // 3
    names = [f"item {i}" for i in items] + ["even", "odd"] + [f"maker {m}" for m in range(n_items // 3 + 1)]
    return Triples(
        np.tile(items, 2).astype(np.int32),
        np.repeat([0, 1], n_items).astype(np.int32),
        np.concatenate([n_items + items % 2, makers]).astype(np.int32),
        Vocabulary(np.array(names, dtype=object)),
        ["parity", "made by"],
        items.astype(np.int32),
    )
