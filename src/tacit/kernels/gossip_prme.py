"""A peer's PRME-G: two metric spaces, learnt from steps between places by ranking (Feng et al., 2015).

The distance of place l for client u who is at place c:

    D(u, c, l) = w(c, l) (share |x_u - x_l|^2 + (1 - share) |s_c - s_l|^2)      w(c, l) = (1 + km between them)^(1/4)
    D(u, -, l) = |x_u - x_l|^2                                                  if the user has not been anywhere lately

and the nearer the better. A table is [2 D, n_items]: the space of preference, then that of sequence, transposed. A step
is (from, to); from is -1 where there is none. Each step is compared with places the user has not been to: with z = D(u,
c, j) - D(u, c, i), parameters follow the gradient of log sigma(z), with weight decay.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tacit.kernels.gossip_gmf import CANDIDATES, add_credit, draw_unseen
from tacit.kernels.llvm.denormals import flush_denormals, restore_denormals
from tacit.kernels.llvm.exponential import sigmoid_complement
from tacit.kernels.sampling import GAMMA, high, lane, mix_word

EARTH = np.float32(6371.0)  # km


@njit(inline="always")
def _weight(places, a, b):
    """(1 + km)^(1/4) along the straight line; 1 where a place is not known."""
    x, y, z = places[a, 0] - places[b, 0], places[a, 1] - places[b, 1], places[a, 2] - places[b, 2]
    far = EARTH * np.sqrt(x * x + y * y + z * z)
    return np.sqrt(np.sqrt(np.float32(1) + far)) if far == far else np.float32(1)


@njit(inline="always")
def _apart(table, first, width, a, b):
    total = np.float32(0)
    for f in range(first, first + width):
        d = table[f, a] - table[f, b]
        total += d * d
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def distance(table, vector, places, share, c, i):
    """D(u, c, i)."""
    width = vector.size
    near = np.float32(0)
    for f in range(width):
        d = vector[f] - table[f, i]
        near += d * d
    if c < 0:
        return near
    return _weight(places, c, i) * (share * near + (np.float32(1) - share) * _apart(table, width, width, c, i))


@njit(cache=True, nogil=True, error_model="numpy")
def learn_prme(rows, chance, done, ptr, steps, seen_ptr, seen, avoid_ptr, avoid, places, how, rates, items, users):
    """Let the peers `rows` learn from their own steps [S, 2]; their items, users and counters move in place.

    `how` is (negatives, epochs), `rates` (learning rate, regularisation, share of preference).
    """
    before = flush_denormals()
    negatives, epochs = how
    n_items = items.shape[2]
    marks = np.zeros(n_items, np.uint8)
    for n in rows:
        state = lane(chance[n], done[n])
        done[n] += 1
        mine, barred = seen[seen_ptr[n] : seen_ptr[n + 1]], avoid[avoid_ptr[n] : avoid_ptr[n + 1]]
        n_free = n_items
        for i in mine:
            n_free -= marks[i] == 0
            marks[i] = 1
        for i in barred:
            if i >= 0:
                n_free -= marks[i] == 0
                marks[i] = 1
        own = steps[ptr[n] : ptr[n + 1]]
        order = np.arange(own.shape[0])
        for _ in range(epochs if n_free > 0 else 0):
            for k in range(order.size - 1, 0, -1):
                state += GAMMA
                j = np.int64(high(mix_word(state), k + 1))
                order[k], order[j] = order[j], order[k]
            for k in order:
                for _ in range(negatives):
                    state += GAMMA
                    j = np.int64(high(mix_word(state), n_items))
                    while marks[j]:
                        state += GAMMA
                        j = np.int64(high(mix_word(state), n_items))
                    _ascend(items[n], users[n], places, rates, own[k, 0], own[k, 1], j)
        for i in mine:
            marks[i] = 0
        for i in barred:
            if i >= 0:
                marks[i] = 0
    restore_denormals(before)


@njit(cache=True, nogil=True, error_model="numpy")
def _ascend(table, vector, places, rates, c, i, j):
    """One step of gradient ascent on log sigma(D(u, c, j) - D(u, c, i))."""
    rate, reg, share = rates
    width = vector.size
    z = distance(table, vector, places, share, c, j) - distance(table, vector, places, share, c, i)
    pull = rate * np.float32(2) * sigmoid_complement(z)  # the 2 of the square's derivative
    shrink = np.float32(1) - rate * np.float32(2) * reg
    wi, wj, part = np.float32(1), np.float32(1), np.float32(1)
    if c >= 0:
        wi, wj, part = _weight(places, c, i), _weight(places, c, j), share
    for f in range(width):
        u, a, b = vector[f], table[f, i], table[f, j]
        vector[f] = shrink * u + pull * part * (wj * (u - b) - wi * (u - a))
        table[f, i] = shrink * a + pull * part * wi * (u - a)
        table[f, j] = shrink * b - pull * part * wj * (u - b)
    if c >= 0 and c != i:
        part = np.float32(1) - share
        for f in range(width, 2 * width):
            s, a, b = table[f, c], table[f, i], table[f, j]
            table[f, c] = shrink * s + pull * part * (wj * (s - b) - wi * (s - a))
            table[f, i] = shrink * a + pull * part * wi * (s - a)
            table[f, j] = shrink * b - pull * part * wj * (s - b)


@njit(cache=True, nogil=True, error_model="numpy")
def judge_prme(rows, at, chance, done, weigh_ptr, weigh, seen_ptr, seen, places, share, own, peer_models, how, worths):
    """Fill `worths` [R, 2, 2]: (own, peer model's) mean (HR, NDCG) of the steps kept for weighing.

    `own` and `peer_models` are (items, users), `how` is (sends, samples); see `judge_gmf`.
    """
    before = flush_denormals()
    sends, samples = how
    n_items = own[0].shape[2]
    marks = np.zeros(n_items, np.uint8)
    drawn = np.empty(CANDIDATES, np.int64)
    for r in range(rows.size):
        n, p = rows[r], at[r]
        worths[r] = -1
        state = lane(chance[n], done[n])
        done[n] += 1
        n_free = n_items
        for i in seen[seen_ptr[n] : seen_ptr[n + 1]]:
            n_free -= marks[i] == 0
            marks[i] = 1
        mine = weigh[weigh_ptr[n] : weigh_ptr[n + 1]]
        if mine.shape[0] > 0 and n_free > 0:
            worths[r] = 0
            for e in range(mine.shape[0]):
                if samples:
                    state = draw_unseen(marks, state, drawn)
                for model in range(2):
                    table = own[0][n] if model == 0 else peer_models[0][p]
                    vector = peer_models[1][p] if model == 1 and sends else own[1][n]
                    far = distance(table, vector, places, share, mine[e, 0], mine[e, 1])
                    better = 0
                    if samples:
                        for j in drawn:
                            other = distance(table, vector, places, share, mine[e, 0], j)
                            better += (other < far) + (other <= far)
                    else:
                        for j in range(n_items):
                            if marks[j] == 0:
                                other = distance(table, vector, places, share, mine[e, 0], j)
                                better += (other < far) + (other <= far)
                    if far == far:  # NaN never ranks above anything
                        among = CANDIDATES if samples else n_free
                        add_credit(CANDIDATES * 0.5 * better / among, worths[r, model])
            worths[r] /= mine.shape[0]
        for i in seen[seen_ptr[n] : seen_ptr[n + 1]]:
            marks[i] = 0
    restore_denormals(before)


@njit(cache=True, nogil=True, error_model="numpy")
def score_prme(items, users, here, places, share, scores):
    """Set scores [C, n_items] to minus the distance of every place from where each client is."""
    for n in range(items.shape[0]):
        for i in range(items.shape[2]):
            scores[n, i] = -distance(items[n], users[n], places, share, here[n], i)
