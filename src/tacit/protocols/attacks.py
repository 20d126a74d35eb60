"""What adversaries among peers send in place of their models. A new attack is one function of the honest peer model.

    noise     numbers of the right size that mean nothing
    flip      the model with every sign flipped
    promote   the model, with one item made similar to its favourites

Adversaries report their true numbers of samples and of updates; peers do not check these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tacit.random import Key
from tacit.types import Array
from tacit.updates import PeerModels

Attack = Callable[[PeerModels, int, Key], PeerModels]
FAVOURITES = 20


def noise(peer_model: PeerModels, item: int, key: Key) -> PeerModels:
    """Return normal numbers with the spread of the model's own."""
    tables: dict[str, Array] = {}
    for name, table in peer_model.tables.items():
        drawn = key.child(name).normal(np.arange(1), table.size, float(table.std()))
        tables[name] = drawn.reshape(table.shape)
    return replace(peer_model, tables=tables)


def flip(peer_model: PeerModels, item: int, key: Key) -> PeerModels:
    """Return the model with every sign flipped."""
    return replace(peer_model, tables={name: -table for name, table in peer_model.tables.items()})


def promote(peer_model: PeerModels, item: int, key: Key) -> PeerModels:
    """Return the model with one item in the place of its longest vectors' mean, twice as far out."""
    items = peer_model.tables["items"].copy()  # [1, D, n_items]
    longest = np.argsort(-(items[0] ** 2).sum(axis=0), kind="stable")[:FAVOURITES]
    items[0, :, item] = 2.0 * items[0][:, longest].mean(axis=1)
    return replace(peer_model, tables={**peer_model.tables, "items": items})


ATTACKS: dict[str, Attack] = {"noise": noise, "flip": flip, "promote": promote}
