"""What gossiping peers do with whole models, whatever the model: draw a weighting set, measure distances, mix.

Arrays have the peer axis first. `rows` says which peers act, `at` which peer model each of them has received. A peer
alone is a cohort of one; a simulation passes all that have one more peer model to read.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tacit.kernels import FAST
from tacit.kernels.sampling import GAMMA, high, lane, mix_word

CARVING = np.uint64(2**63)  # streams of a peer: its actions are numbered from 0, this one is apart


@njit(cache=True, nogil=True, error_model="numpy")
def draw_weighting_set(chance, ptr, sizes):
    """Return a mask [N]: which `sizes[c]` of each client's interactions its peer keeps for weighing, at random."""
    kept = np.zeros(ptr[-1], np.bool_)
    for c in range(chance.size):
        n = ptr[c + 1] - ptr[c]
        order = np.arange(n)
        state = lane(chance[c], CARVING)
        for k in range(min(sizes[c], n)):
            state += GAMMA
            j = k + np.int64(high(mix_word(state), n - k))
            order[k], order[j] = order[j], order[k]
            kept[ptr[c] + order[k]] = True
    return kept


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _mix(a, b, wa, wb, out):
    for k in range(a.size):
        out[k] = wa * a[k] + wb * b[k]


@njit(cache=True, nogil=True, error_model="numpy")
def mix_at(rows, at, own, peer_models, weights, out):
    """out[n] = weights[r, 0] own[n] + weights[r, 1] peer models[p] for the peers n = rows[r] and peer models p =
    at[r]."""
    for r in range(rows.size):
        a, b, into = own[rows[r]], peer_models[at[r]], out[rows[r]]
        wa, wb = weights[r, 0], weights[r, 1]
        if wb == 0:
            into[:] = a  # a refused peer model may hold NaN
        else:
            _mix(a.reshape(-1), b.reshape(-1), wa, wb, into.reshape(-1))


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _square(a, b):
    total = np.float32(0)
    for k in range(a.size):
        d = a[k] - b[k]
        total += d * d
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def distances_at(rows, at, own, peer_models):
    """Return [R]: the Euclidean distance of each peer model's table from the reader's own."""
    found = np.empty(rows.size, np.float64)
    for r in range(rows.size):
        found[r] = np.sqrt(np.float64(_square(own[rows[r]].reshape(-1), peer_models[at[r]].reshape(-1))))
    return found


@njit(cache=True, nogil=True, error_model="numpy")
def copy_at(rows, source, target):
    """target[n] = source[n] for some peers."""
    for n in rows:
        target[n] = source[n]
