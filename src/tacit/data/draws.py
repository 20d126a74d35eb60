"""Keyed draws for ragged rows: each user's draw number t does not depend on the other users."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tacit.random import GAMMA, Key, mix
from tacit.types import offsets


def ragged_bits(key: Key, lanes: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return `counts[l]` random words for each lane, one after the other: those of `key.bits(lanes, n)`."""
    start = mix(key.word ^ mix(lanes.astype(np.uint64) + GAMMA))
    total = int(counts.sum())
    position = np.arange(total, dtype=np.int64) - np.repeat(offsets(counts)[:-1], counts)
    return mix(np.repeat(start, counts) + (position + 1).astype(np.uint64) * GAMMA)


def ragged_uniform(key: Key, lanes: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return numbers in [0, 1), `counts[l]` for each lane."""
    return (ragged_bits(key, lanes, counts) >> np.uint64(11)).astype(np.float64) * 2.0**-53
