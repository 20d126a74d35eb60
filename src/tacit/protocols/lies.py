"""What dishonest nodes send in place of their models. A new lie is one function of the honest letter.

    noise     numbers of the right size that mean nothing
    flip      the model with every sign turned
    promote   the model, with one item made to look like its favourites

Liars say the truth about how much they have learnt from and how often; what they claim there is believed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tacit.random import Key
from tacit.types import Array
from tacit.updates import Letters

Lie = Callable[[Letters, int, Key], Letters]
FAVOURITES = 20


def noise(letter: Letters, item: int, key: Key) -> Letters:
    """Return normal numbers with the spread of the model's own."""
    tables: dict[str, Array] = {}
    for name, table in letter.tables.items():
        drawn = key.child(name).normal(np.arange(1), table.size, float(table.std()))
        tables[name] = drawn.reshape(table.shape)
    return replace(letter, tables=tables)


def flip(letter: Letters, item: int, key: Key) -> Letters:
    """Return the model with every sign turned."""
    return replace(letter, tables={name: -table for name, table in letter.tables.items()})


def promote(letter: Letters, item: int, key: Key) -> Letters:
    """Return the model with one item in the place of its longest vectors' mean, twice as far out."""
    items = letter.tables["items"].copy()  # [1, D, n_items]
    longest = np.argsort(-(items[0] ** 2).sum(axis=0), kind="stable")[:FAVOURITES]
    items[0, :, item] = 2.0 * items[0][:, longest].mean(axis=1)
    return replace(letter, tables={**letter.tables, "items": items})


LIES: dict[str, Lie] = {"noise": noise, "flip": flip, "promote": promote}
