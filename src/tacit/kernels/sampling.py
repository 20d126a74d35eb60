"""Keyed draws inside kernels: the scalar forms of `tacit.random`, plus fast streams per lane.

`lane(word, l)` is where lane `l` starts; `state += GAMMA; mix_word(state)` is its next word, so draw t of a lane is the
same number as column t of `Key.bits`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

U64 = np.uint64
GAMMA = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_LOW = np.uint64(0xFFFFFFFF)


@njit(inline="always")
def mix_word(x):
    """SplitMix64's finaliser of one word."""
    x = (x ^ (x >> U64(30))) * _M1
    x = (x ^ (x >> U64(27))) * _M2
    return x ^ (x >> U64(31))


@njit(inline="always")
def lane(word, index):
    """Start the stream of one lane (a client, an epoch, a held-out item)."""
    return mix_word(U64(word) ^ mix_word(U64(index) + GAMMA))


@njit(inline="always")
def high(word, n):
    """Return a number in [0, n) from the upper half of a word, n < 2^32."""
    return ((word >> U64(32)) * U64(n)) >> U64(32)


@njit(inline="always")
def low(word, n):
    """Return a number in [0, n) from the lower half of a word, n < 2^32."""
    return ((word & _LOW) * U64(n)) >> U64(32)
