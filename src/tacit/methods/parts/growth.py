"""How shared arrays grow when a catalogue does: what was learnt stays, new rows begin as the spec says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from tacit.types import Array

Growth = Literal["first", "zeros", "orthonormal", "public"]


def grow_arrays(
    shared: Mapping[str, Array],
    before: Mapping[str, Array],
    after: Mapping[str, Array],
    growth: Mapping[str, Growth],
) -> dict[str, Array]:
    """Return shared arrays of one catalogue as they are under a later one, whose items are those before and more.

    `before` and `after` are first models of the two catalogues: an array grows along the axes in which these differ.
    """
    return {
        name: grow_array(array, before[name], after[name], growth.get(name, "first")) for name, array in shared.items()
    }


def grow_array(array: Array, before: Array, after: Array, growth: Growth) -> Array:
    """Return one array with what it held in its corner; the rest begins as `growth` says.

    >>> grow_array(np.array([5.0]), np.array([0.0]), np.array([0.0, 1.0]), "first")
    array([5., 1.])
    >>> grow_array(np.array([[1.0]]), np.array([[1.0]]), np.eye(2), "orthonormal")
    array([[1., 0.],
           [0., 1.]])
    """
    if growth == "public":
        return after
    shape = tuple(n + new - old for n, old, new in zip(array.shape, before.shape, after.shape, strict=True))
    if shape == array.shape:
        return array
    grown = np.zeros(shape, array.dtype)
    if growth == "first":
        common = tuple(slice(min(n, new)) for n, new in zip(shape, after.shape, strict=True))
        grown[common] = after[common]
    elif growth == "orthonormal":  # rows of zeros keep columns orthonormal; a new column is a new item's own
        rows, columns = (np.arange(old, new) for old, new in zip(array.shape, shape, strict=True))
        grown[rows[: len(columns)], columns[: len(rows)]] = 1
    grown[tuple(slice(n) for n in array.shape)] = array
    return grown


def match_rows(before: Array, after: Array) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return where each of the names `before` stands `after`; -1 for one that is gone. Equal names match in order."""
    places: dict[tuple[str, int], int] = {}
    for names, keep in ((after, True), (before, False)):
        seen: dict[str, int] = {}
        found = np.full(len(names), -1, np.int64)
        for at, name in enumerate(map(str, names.tolist())):
            nth = (name, seen.get(name, 0))
            seen[name] = nth[1] + 1
            if keep:
                places[nth] = at
            else:
                found[at] = places.get(nth, -1)
    return found
