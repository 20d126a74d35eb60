"""Logistic matrix factorisation by stochastic gradient descent, one example after the other."""

from __future__ import annotations

import numpy as np
from numba import njit

from tacit.kernels.llvm.exponential import sigmoid_complement
from tacit.kernels.membership import has
from tacit.kernels.sampling import GAMMA, U64, high, lane, low, mix_word


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def mf_epoch(word, pairs, taken, negatives, users, items, user_bias, item_bias, offset, rate, reg):
    """Take (1 + negatives) steps per interaction of `pairs` [N, 2]; all tables are changed in place.

    An example is an interaction, uniform over all, with its own item as a yes or, `negatives` times as often, an item
    that the user has not as a no. x = b + b_u + b_i + p . q, the loss -log sigmoid(x) or -log sigmoid(-x), plus `reg`
    times half the squares of all five. All gradients of an example are taken at the values before it.
    """
    rate, reg = np.float32(rate), np.float32(reg)
    keep, one = np.float32(1.0) - rate * reg, np.float32(1.0)
    n_items, factors = len(items), items.shape[1]
    draws, redraws = lane(word, 0), lane(word, 1)
    for _ in range(len(pairs) * (1 + negatives)):
        draws += GAMMA
        which = mix_word(draws)
        row = high(which, len(pairs))
        u, i = pairs[row, 0], pairs[row, 1]
        is_yes = low(which, 1 + negatives) == 0
        if not is_yes:
            redraws += GAMMA
            i = np.uint32(high(mix_word(redraws), n_items))
            while has(taken, U64(u), U64(i)):
                redraws += GAMMA
                i = np.uint32(high(mix_word(redraws), n_items))
        x = offset[0] + user_bias[u] + item_bias[i]
        for f in range(factors):
            x += users[u, f] * items[i, f]
        step = rate * (sigmoid_complement(x) if is_yes else sigmoid_complement(x) - one)
        for f in range(factors):
            p, q = users[u, f], items[i, f]
            users[u, f] = keep * p + step * q
            items[i, f] = keep * q + step * p
        user_bias[u] = keep * user_bias[u] + step
        item_bias[i] = keep * item_bias[i] + step
        offset[0] = keep * offset[0] + step
