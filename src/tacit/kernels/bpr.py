"""Bayesian personalised ranking (Rendle et al., 2009) by stochastic gradient descent, one triple after the other."""

from __future__ import annotations

import numpy as np
from numba import njit

from tacit.kernels.llvm.exponential import sigmoid_complement
from tacit.kernels.llvm.rowvec import dot_difference, prefetch, step_pair
from tacit.kernels.membership import has
from tacit.kernels.sampling import GAMMA, U64, high, lane, low, mix_word

_BLOCK = 256  # triples drawn ahead: their look-ups in memory overlap, and they stay in the nearest cache
_AHEAD = 4  # triples whose rows are asked for while one is learnt from


@njit(cache=True, nogil=True, error_model="numpy")
def draw_triples(state, pairs, taken, n_items, triples):
    """Fill `triples` [3, B] with users, positives and negatives; `state` [2] holds the two streams and moves on.

    A positive is uniform over the interactions `pairs` [N, 2] of (user, item); a negative uniform over the catalogue,
    redrawn while the user has it. Triple t takes word t of the first stream for both; redraws take the words of the
    second one by one. First all are drawn, then the few refused ones are redrawn: no branch in between.
    """
    zero, one, two = U64(0), U64(1), U64(2)
    size = U64(triples.shape[1])
    refused = np.empty(size, np.uint32)
    n_refused = zero
    at = state[zero]
    for t in range(size):
        at += GAMMA
        word = mix_word(at)
        row = high(word, len(pairs))
        triples[zero, t] = pairs[row, zero]
        triples[one, t] = pairs[row, one]
        triples[two, t] = low(word, n_items)
    state[zero] = at
    for t in range(size):
        refused[n_refused] = t
        n_refused += U64(has(taken, U64(triples[zero, t]), U64(triples[two, t])))
    at = state[one]
    for k in range(n_refused):
        bad = U64(refused[k])
        user, negative = U64(triples[zero, bad]), U64(triples[two, bad])
        while has(taken, user, negative):
            at += GAMMA
            negative = high(mix_word(at), n_items)
        triples[two, bad] = negative
    state[one] = at


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def bpr_epoch(word, n_triples, pairs, taken, users, rows, bias, rate, reg):
    """Take `n_triples` steps of BPR; `users`, `rows` (both from `rows_of`) and `bias` are changed in place.

    The loss of a triple is -log sigmoid(x), x = p_u . (q_i - q_j) + b_i - b_j; `reg` [4] weighs half the squared
    length of p_u, q_i, q_j and of both biases. All gradients of a triple are taken at the values before it.
    """
    rate = np.float32(rate)
    keep = np.float32(1.0) - rate * reg
    keep_u, keep_i, keep_j, keep_b = keep[0], keep[1], keep[2], keep[3]
    state = np.array([lane(word, 0), lane(word, 1)])
    block = np.zeros((3, _BLOCK + _AHEAD), np.uint32)
    for start in range(0, n_triples, _BLOCK):
        triples = block[:, : min(_BLOCK, n_triples - start)]
        draw_triples(state, pairs, taken, len(bias), triples)
        for t in range(U64(triples.shape[1])):
            u, i, j = U64(triples[U64(0), t]), U64(triples[U64(1), t]), U64(triples[U64(2), t])
            soon = t + U64(_AHEAD)
            prefetch(users, U64(block[U64(0), soon]))
            prefetch(rows, U64(block[U64(1), soon]))
            prefetch(rows, U64(block[U64(2), soon]))
            step = rate * sigmoid_complement(bias[i] - bias[j] + dot_difference(users, u, rows, i, j))
            step_pair(users, u, rows, i, j, step, keep_u, keep_i, keep_j)
            bias[i] = keep_b * bias[i] + step
            bias[j] = keep_b * bias[j] - step
