"""Sorting rows by several columns at once, fast and always the same.

Columns are packed into as few whole numbers of 64 bits as they need: one sort of such numbers takes a seventh of the
time of a sort by several columns. Less important columns are packed only if the more important ones leave ties.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.types import Array

Words = NDArray[np.uint64]
WORD = 64  # bits


def order_by(*keys: Array, descending: Sequence[bool] = ()) -> NDArray[np.int64]:
    """Return the rows in order of the keys, the most important first; rows that are equal in all stay in order."""
    down = list(descending) or [False] * len(keys)
    ranges = [_find_range(key) for key in keys]
    if len(keys[0]) < 2 or any(one is None for one in ranges):
        return _order_columns(keys, down)
    columns = [_Column(key, *one, is_down) for key, one, is_down in zip(keys, ranges, down, strict=True) if one]
    first, *more = _share_words(columns)
    word = _pack(first)
    order: NDArray[np.int64] = np.argsort(word, kind="stable")
    if more:
        word = word[order]
        if (word[1:] == word[:-1]).any():
            order = np.argsort(_pack(more[-1]), kind="stable")
            for group in reversed([first, *more[:-1]]):
                order = order[np.argsort(_pack(group)[order], kind="stable")]
    return order


def _order_columns(keys: Sequence[Array], down: list[bool]) -> NDArray[np.int64]:
    """Sort by columns of any kind."""
    columns = [pl.Series(str(i), key) for i, key in enumerate(keys)]
    names = [column.name for column in columns]
    order = pl.DataFrame(columns).select(pl.arg_sort_by(names, descending=down, maintain_order=True))
    return order.to_series().to_numpy().astype(np.int64, copy=False)


@dataclass(frozen=True)
class _Column:
    """A key, the least and the largest of its numbers, and its direction."""

    key: Array
    low: int
    high: int
    is_down: bool

    @property
    def bits(self) -> int:
        return (self.high - self.low).bit_length()

    def numbers(self) -> Words:
        """Return the key as numbers from 0 on, in its order."""
        wide = _whole_numbers(self.key).astype(np.uint64)  # what is negative wraps, and wraps back below
        if self.is_down:
            return np.subtract(np.uint64(self.high % 2**WORD), wide, out=wide)
        return np.subtract(wide, np.uint64(self.low % 2**WORD), out=wide)


def _find_range(key: Array) -> tuple[int, int] | None:
    """Return the least and the largest of the whole numbers that a key becomes; none if it cannot be."""
    is_float = key.dtype.kind == "f" and key.dtype.itemsize == 4
    if not len(key) or not (is_float or key.dtype.kind in "iub"):
        return None
    ends = np.array([key.min(), key.max()])
    if is_float and np.isnan(ends).any():
        return None
    low, high = _whole_numbers(ends)
    return int(low), int(high)


def _whole_numbers(key: Array) -> Array:
    """Return a key as whole numbers in its order."""
    if key.dtype.kind != "f":
        return key
    bits = (key + np.float32(0)).view(np.int32).astype(np.int64)  # adding 0: -0.0 and 0.0 are equal
    return np.where(bits < 0, -(bits & 0x7FFFFFFF) - 1, bits)


def _share_words(columns: list[_Column]) -> list[list[_Column]]:
    """Return which columns share a word, the most important first."""
    groups: list[list[_Column]] = []
    room = 0
    for column in columns:
        if groups and column.bits <= room:
            groups[-1].append(column)
            room -= column.bits
        else:
            groups.append([column])
            room = WORD - column.bits
    return groups


def _pack(columns: list[_Column]) -> Words:
    """Put columns side by side into one word, the most important in the highest bits; made when it is needed."""
    word = columns[0].numbers()
    for column in columns[1:]:
        word <<= np.uint64(column.bits)
        word |= column.numbers()
    return word
