"""Sorting rows by several columns at once, fast and always the same.

Columns are packed into as few whole numbers of 64 bits as they need: one sort of such numbers takes a seventh of the
time of a sort by several columns. Less important columns are sorted by only if the more important ones leave ties.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.types import Array

Words = NDArray[np.uint64]
WORD = 64  # bits


def order_by(*keys: Array, descending: Sequence[bool] = ()) -> NDArray[np.int64]:
    """Return the rows in order of the keys, the most important first; rows that are equal in all stay in order."""
    down = list(descending) or [False] * len(keys)
    packed = [_whole_numbers(key, is_down) for key, is_down in zip(keys, down, strict=True)]
    if len(keys[0]) < 2 or any(one is None for one in packed):
        return _order_columns(keys, down)
    words = _pack([one for one in packed if one is not None])
    order: NDArray[np.int64] = np.argsort(words[0], kind="stable")
    if len(words) > 1:
        first = words[0][order]
        if (first[1:] == first[:-1]).any():
            order = np.argsort(words[-1], kind="stable")
            for word in reversed(words[:-1]):
                order = order[np.argsort(word[order], kind="stable")]
    return order


def _order_columns(keys: Sequence[Array], down: list[bool]) -> NDArray[np.int64]:
    """Sort by columns of any kind."""
    columns = [pl.Series(str(i), key) for i, key in enumerate(keys)]
    names = [column.name for column in columns]
    order = pl.DataFrame(columns).select(pl.arg_sort_by(names, descending=down, maintain_order=True))
    return order.to_series().to_numpy().astype(np.int64, copy=False)


def _whole_numbers(key: Array, is_down: bool) -> tuple[Words, int] | None:
    """Return a key as numbers from 0 on, in its order, and how many bits they need; none if it cannot be."""
    if not len(key):
        return None
    if key.dtype.kind == "f" and key.dtype.itemsize == 4:
        if np.isnan(key).any():
            return None
        bits = (key + np.float32(0)).view(np.int32).astype(np.int64)  # adding 0: -0.0 and 0.0 are equal
        numbers = np.where(bits < 0, -(bits & 0x7FFFFFFF) - 1, bits)
    elif key.dtype.kind in "iub":
        numbers = key
    else:
        return None
    low, high = int(numbers.min()), int(numbers.max())
    wide = numbers.astype(np.uint64)  # what is negative wraps, and wraps back below
    shifted = np.uint64(high % 2**WORD) - wide if is_down else wide - np.uint64(low % 2**WORD)
    return shifted, (high - low).bit_length()


def _pack(columns: list[tuple[Words, int]]) -> list[Words]:
    """Put columns side by side into words, the most important first and in the highest bits."""
    words: list[Words] = []
    room = 0
    for numbers, bits in columns:
        if words and bits <= room:
            words[-1] = (words[-1] << np.uint64(bits)) | numbers if bits < WORD else numbers
            room -= bits
        else:
            words.append(numbers)
            room = WORD - bits
    return words
