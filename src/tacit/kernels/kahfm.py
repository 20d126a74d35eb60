"""BPR on vectors as long as there are features: rows too long for registers, each processed in one loop."""

from __future__ import annotations

import numpy as np
from numba import njit

from tacit.kernels.bpr import draw_triples
from tacit.kernels.llvm.exponential import sigmoid_complement
from tacit.kernels.sampling import lane

_BLOCK = 256  # triples drawn ahead


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def long_bpr_epoch(word, n_triples, pairs, taken, users, items, bias, rate, reg):
    """Take `n_triples` steps of BPR on users [C, F], items [n, F] and bias [n], all changed in place.

    As `bpr_epoch`, with one regularisation `reg` for the vectors, and none for biases.
    """
    rate, keep = np.float32(rate), np.float32(1.0 - rate * reg)
    state = np.array([lane(word, 0), lane(word, 1)])
    block = np.zeros((3, _BLOCK), np.uint32)
    n_factors = users.shape[1]
    for start in range(0, n_triples, _BLOCK):
        triples = block[:, : min(_BLOCK, n_triples - start)]
        draw_triples(state, pairs, taken, len(bias), triples)
        for t in range(triples.shape[1]):
            p, i, j = users[triples[0, t]], triples[1, t], triples[2, t]
            q_i, q_j = items[i], items[j]
            x = np.float32(0)
            for f in range(n_factors):
                x += p[f] * (q_i[f] - q_j[f])
            step = rate * sigmoid_complement(bias[i] - bias[j] + x)
            for f in range(n_factors):
                was = p[f]
                p[f] = keep * was + step * (q_i[f] - q_j[f])
                q_i[f] = keep * q_i[f] + step * was
                q_j[f] = keep * q_j[f] - step * was
            bias[i] += step
            bias[j] -= step
