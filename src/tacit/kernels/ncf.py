"""Neural collaborative filtering by hand: samples of an epoch, forward, backward, Adam, batch after batch.

The score of user u and item i is

    z = bias + head . [ u_p * i_p  |  a_L ],      a_0 = [u_t | i_t],   a_k = relu(a_(k-1) W_k + b_k)

where u = [u_p | u_t] and i = [i_p | i_t] are rows of the two tables: the half of the product, then that of the tower.
A model without a product has head . a_L only, one without a tower head . (u_p * i_p) only. All layers live in one flat
vector: W_1, b_1, ..., W_L, b_L, head, bias. `sizes` is [2D, h_1, ..., h_L], empty where there is no tower, and
`product` is D or 0.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tacit.kernels import FAST
from tacit.kernels.adam import adam_rows, adam_step, runs_of
from tacit.kernels.llvm.denormals import flush_denormals, restore_denormals
from tacit.kernels.local_samples import SPARSE, list_free, mark, unmark
from tacit.kernels.losses import BCE, residuals
from tacit.kernels.sampling import GAMMA, high, lane, mix_word

_ONE = np.uint64(1)
_ITEM = np.uint64(0x7FFFFFFF)
_CHUNK = 512  # pairs scored at a time: their activations stay in cache


@njit(inline="always")
def _pack(row, item, label):
    return (np.uint64(row) << np.uint64(32)) | (np.uint64(item) << _ONE) | np.uint64(label)


@njit(inline="always")
def _row(sample):
    return np.int64(sample >> np.uint64(32))


@njit(inline="always")
def _item(sample):
    return np.int64((sample >> _ONE) & _ITEM)


@njit(cache=True, nogil=True, error_model="numpy")
def draw_samples(ids, ptr, items, avoid_ptr, avoid_items, n_items, negatives, word):
    """Return each positive followed by `negatives` fresh draws from what its user has neither done nor to avoid.

    A sample is one word: position of the user << 32 | item << 1 | label. Draws are keyed by the user's id. Someone
    who has no such item left contributes their positives alone.
    """
    samples = np.empty(items.size * (1 + negatives), np.uint64)
    marks = np.zeros(n_items, np.uint8)
    free = np.empty(n_items // SPARSE + 1, np.int32)
    n = 0
    for c in range(ids.size):
        mine, barred = items[ptr[c] : ptr[c + 1]], avoid_items[avoid_ptr[c] : avoid_ptr[c + 1]]
        n_free = n_items - mark(marks, mine, barred)
        listed = n_free * SPARSE < n_items
        if listed:
            list_free(marks, free)
        state = lane(word, ids[c])
        for i in mine:
            samples[n] = _pack(c, i, 1)
            n += 1
            for _ in range(negatives if n_free > 0 else 0):
                state += GAMMA
                if listed:
                    j = np.int64(free[high(mix_word(state), n_free)])
                else:
                    j = np.int64(high(mix_word(state), n_items))
                    while marks[j]:
                        state += GAMMA
                        j = np.int64(high(mix_word(state), n_items))
                samples[n] = _pack(c, j, 0)
                n += 1
        unmark(marks, mine, barred)
    return samples[:n]


@njit(cache=True, nogil=True)
def shuffle(samples, word, group):
    """Put the samples into a random order, in place; groups of so many stay together."""
    state = lane(word, 0)
    for k in range(samples.size // group - 1, 0, -1):
        state += GAMMA
        j = np.int64(high(mix_word(state), k + 1))
        for g in range(group):
            a, b = k * group + g, j * group + g
            samples[a], samples[b] = samples[b], samples[a]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _relu(z, b):
    for k in range(z.shape[0]):
        for f in range(z.shape[1]):
            z[k, f] = max(z[k, f] + b[f], np.float32(0))


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _relu_back(d, a, gb):
    """Set d to zero where the unit was off, and add the gradients of the biases to gb."""
    for k in range(d.shape[0]):
        for f in range(d.shape[1]):
            d[k, f] = d[k, f] if a[k, f] > 0 else np.float32(0)
            gb[f] += d[k, f]


@njit(cache=True, nogil=True)
def block(buffer, before, rows, width, capacity):
    """Return [rows, width] inside a flat buffer that holds `capacity` rows of each layer, after `before` columns."""
    start = capacity * before
    return buffer[start : start + rows * width].reshape((rows, width))


@njit(cache=True, nogil=True)
def tower_forward(acts, n, capacity, theta, sizes, first):
    """Fill the activations of layers first + 1, ... from those of layer `first`, for n rows."""
    at = 0
    before = 0
    for k in range(sizes.size - 1):
        a, b = sizes[k], sizes[k + 1]
        if k >= first:
            z = block(acts, before + a, n, b, capacity)
            np.dot(block(acts, before, n, a, capacity), theta[at : at + a * b].reshape((a, b)), z)
            _relu(z, theta[at + a * b : at + a * b + b])
        at += (a + 1) * b
        before += a


@njit(cache=True, nogil=True)
def tower_backward(acts, back, n, capacity, theta, grad, sizes):
    """From the gradient of the last activations in `back`, fill `grad` and the gradient of the input, for n rows."""
    at = 0
    before = 0
    for k in range(sizes.size - 1):
        at += (sizes[k] + 1) * sizes[k + 1]
        before += sizes[k]
    for k in range(sizes.size - 2, -1, -1):
        a, b = sizes[k], sizes[k + 1]
        at -= (a + 1) * b
        d = block(back, before, n, b, capacity)
        _relu_back(d, block(acts, before, n, b, capacity), grad[at + a * b : at + (a + 1) * b])
        before -= a
        np.dot(block(acts, before, n, a, capacity).T, d, grad[at : at + a * b].reshape((a, b)))
        np.dot(d, theta[at : at + a * b].reshape((a, b)).T, block(back, before, n, a, capacity))


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _logits(samples, users, items, theta, sizes, product, acts, capacity, z):
    """Fill z and the activations for a batch of samples."""
    n = samples.size
    tail, before = 0, 0
    if sizes.size > 0:
        half = sizes[0] // 2
        x = block(acts, 0, n, sizes[0], capacity)
        for k in range(n):
            u, i = _row(samples[k]), _item(samples[k])
            for f in range(half):
                x[k, f] = users[u, product + f]
                x[k, half + f] = items[i, product + f]
        tower_forward(acts, n, capacity, theta, sizes, 0)
        tail, before = sizes[-1], sizes[:-1].sum()
    head = theta[theta.size - 1 - product - tail : theta.size - 1]
    top = block(acts, before, n, tail, capacity)
    for k in range(n):
        u, i = _row(samples[k]), _item(samples[k])
        s = theta[-1]
        for f in range(product):
            s += head[f] * users[u, f] * items[i, f]
        for f in range(tail):
            s += head[product + f] * top[k, f]
        z[k] = s


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def ncf_gradients(samples, loss, group, users, items, theta, sizes, product, acts, back, z, g_users, g_items, g_theta):
    """Add the gradients of a batch's loss to three gradients that are zero.

    Samples of several users cannot be compared, so a loss of differences is the mean over groups of one user's: a
    positive and its negatives, `group` samples each. `acts` and `back` are work space of len(z) * sum(sizes) numbers,
    and z has room for the batch.
    """
    n, capacity = samples.size, z.size
    _logits(samples, users, items, theta, sizes, product, acts, capacity, z)
    tail = sizes[-1] if sizes.size > 0 else 0
    before = sizes[:-1].sum() if sizes.size > 0 else 0
    head = theta[theta.size - 1 - product - tail : theta.size - 1]
    g_head = g_theta[theta.size - 1 - product - tail : theta.size - 1]
    top = block(acts, before, n, tail, capacity)
    d_top = block(back, before, n, tail, capacity)
    size = n if loss == BCE else group
    share = np.float32(size) / np.float32(n)
    for start in range(0, n, size):
        g_theta[-1] += share * residuals(loss, samples[start : start + size], z[start : start + size])
    for k in range(n):
        u, i = _row(samples[k]), _item(samples[k])
        r = share * z[k]
        for f in range(product):
            a, b = users[u, f], items[i, f]
            c = r * head[f]
            g_users[u, f] += c * b
            g_items[i, f] += c * a
            g_head[f] += r * a * b
        for f in range(tail):
            g_head[product + f] += r * top[k, f]
            d_top[k, f] = r * head[product + f]
    if sizes.size > 0:
        tower_backward(acts, back, n, capacity, theta, g_theta, sizes)
        half = sizes[0] // 2
        d_x = block(back, 0, n, sizes[0], capacity)
        for k in range(n):
            u, i = _row(samples[k]), _item(samples[k])
            for f in range(half):
                g_users[u, product + f] += d_x[k, f]
                g_items[i, product + f] += d_x[k, half + f]


@njit(cache=True, nogil=True, error_model="numpy")
def ncf_epoch(
    samples, batch, loss, group, users, items, layers, sizes, product, active_users, active_items, rate, root
):
    """Learn from the samples in batches of whole groups, in place.

    `users`, `items` and `layers` are `Moving` parameters, `rate` and `root` Adam's corrections of each batch. Rows in
    the samples are marked active before the first batch, which is exact: until they have a gradient they do not move.
    """
    before = flush_denormals()
    for s in samples:
        active_users[_row(s)] = True
        active_items[_item(s)] = True
    user_runs, item_runs = runs_of(active_users), runs_of(active_items)
    acts = np.empty(batch * sizes.sum(), np.float32)
    back = np.empty_like(acts)
    z = np.empty(batch, np.float32)
    for t in range(rate.size):
        part = samples[t * batch : (t + 1) * batch]
        ncf_gradients(
            part, loss, group, users.w, items.w, layers.w, sizes, product, acts, back, z, users.g, items.g, layers.g
        )
        adam_rows(users, user_runs, rate[t], root[t])
        adam_rows(items, item_runs, rate[t], root[t])
        adam_step(layers.w, layers.m, layers.v, layers.g, rate[t], root[t])
    restore_denormals(before)


@njit(cache=True, nogil=True, error_model="numpy")
def pair_scores(rows, columns, users, items, theta, sizes, product):
    """Return z [M] of user rows[m] and item columns[m]."""
    z = np.empty(rows.size, np.float32)
    samples = np.empty(min(_CHUNK, rows.size), np.uint64)
    acts = np.empty(samples.size * sizes.sum(), np.float32)
    for start in range(0, rows.size, _CHUNK):
        n = min(_CHUNK, rows.size - start)
        for k in range(n):
            samples[k] = _pack(rows[start + k], columns[start + k], 0)
        _logits(samples[:n], users, items, theta, sizes, product, acts, samples.size, z[start : start + n])
    return z


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def add_tower_scores(first_users, first_items, theta, sizes, product, scores):
    """Add head . a_L to scores [C, N] for every user and item.

    The first layer is linear before its relu, so its two halves are made once each and only added here:
    `first_users` [C, h_1] = u_t W_1u + b_1, `first_items` [N, h_1] = i_t W_1i.
    """
    n_items, width = first_items.shape
    capacity = min(_CHUNK, n_items)
    acts = np.empty(capacity * sizes.sum(), np.float32)
    head = theta[theta.size - 1 - sizes[-1] : theta.size - 1]
    before = sizes[:-1].sum()
    for c in range(first_users.shape[0]):
        for start in range(0, n_items, capacity):
            n = min(capacity, n_items - start)
            a = block(acts, sizes[0], n, width, capacity)
            for k in range(n):
                for f in range(width):
                    a[k, f] = max(first_users[c, f] + first_items[start + k, f], np.float32(0))
            tower_forward(acts, n, capacity, theta, sizes, 1)
            top = block(acts, before, n, sizes[-1], capacity)
            for k in range(n):
                s = np.float32(0)
                for f in range(head.size):
                    s += head[f] * top[k, f]
                scores[c, start + k] += s
