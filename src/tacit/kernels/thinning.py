"""Dropout on histories: each entry stays with some probability, by a keyed coin of its own."""

from __future__ import annotations

import numpy as np
from numba import njit

from tacit.kernels.sampling import GAMMA, lane, mix_word


@njit(cache=True, nogil=True)
def thin(ids, ptr, values, keep, word):
    """Return values [N] with entries set to zero with probability 1 - keep and the others divided by keep.

    The coin of entry t of a client depends on its id and t only.
    """
    thinned = np.zeros_like(values)
    limit = np.uint64(min(keep, 1.0 - 2.0**-53) * 2.0**64)
    if keep >= 1.0:
        return values.copy()
    for c in range(ids.size):
        state = lane(word, ids[c])
        for k in range(ptr[c], ptr[c + 1]):
            state += GAMMA
            if mix_word(state) < limit:
                thinned[k] = values[k] / np.float32(keep)
    return thinned
