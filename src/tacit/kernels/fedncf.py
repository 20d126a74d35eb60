"""What a device does in a round of federated neural collaborative filtering: draw, learn on the rows it touches, round.

A device copies the rows of the item table that its samples touch and learns on this sub-table alone. That is exact:
Adam, made anew for the round, leaves a row where it is until it has had a gradient. Local rows are numbered in the
order of their first use, so a step moves only the leading ones that have been used so far.

Samples are words `slot << 1 | label`. What leaves is sorted by item, since the order of use would tell positives (all
of them used in the first local epoch) from negatives.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tacit.kernels.adam import BETA1, BETA2, adam_step
from tacit.kernels.denormals import flush_denormals, restore_denormals
from tacit.kernels.exponential import doubt
from tacit.kernels.ncf import FAST, block, tower_backward, tower_forward
from tacit.kernels.sampling import GAMMA, high, lane, mix

_MINE, _BARRED = np.uint8(1), np.uint8(2)
_SPARSE = 16  # below one free (or touched) item in so many, list them instead of trying (or passing over) all
_B1, _G1 = np.float32(BETA1), np.float32(1 - BETA1)
_B2, _G2 = np.float32(BETA2), np.float32(1 - BETA2)
_EPSILON = np.float32(1e-8)
MOST_STEPS = np.float32(2**24)  # whole numbers up to here are exact in float32
Sums = tuple[NDArray[np.int64], NDArray[np.int64]]


@njit(cache=True, nogil=True, error_model="numpy")
def draw_rounds(ids, ptr, items, avoid_ptr, avoid_items, n_items, negatives, epochs, word):
    """Draw what each client learns from: her positives and fresh negatives of every local epoch, shuffled.

    Returns `starts` [C + 1] into `samples` (the epochs of a client one after the other, equally long) and `row_ptr`
    [C + 1] into `rows` (the items she touches, ascending), `slots` (their places in the order of first use) and
    `is_positive`. Draws are keyed by her id. Someone who has nothing left to draw from has her positives alone.
    """
    n_clients = ids.size
    most = 0
    for c in range(n_clients):
        most += min(n_items, (ptr[c + 1] - ptr[c]) * (1 + negatives * epochs))
    starts, row_ptr = np.zeros(n_clients + 1, np.int64), np.zeros(n_clients + 1, np.int64)
    samples = np.empty(items.size * (1 + negatives) * epochs, np.uint32)
    rows = np.empty(most + 1, np.int32)  # one more than can be used: it is written to before it is known to count
    slots, is_positive = np.empty(most, np.int32), np.empty(most, np.bool_)
    marks = np.zeros(n_items, np.uint8)
    slot_of = np.full(n_items, -1, np.int32)
    free = np.empty(n_items // _SPARSE + 1, np.int32)
    used = np.empty(n_items + 1, np.int32)
    at = 0
    for c in range(n_clients):
        mine, barred = items[ptr[c] : ptr[c + 1]], avoid_items[avoid_ptr[c] : avoid_ptr[c + 1]]
        n_free = n_items - _mark(marks, mine, barred)
        listed = n_free * _SPARSE < n_items
        if listed:
            _list_free(marks, free)
        state = lane(word, ids[c])
        n_used = 0
        for _ in range(epochs):
            first = at
            for i in mine:
                samples[at] = np.uint32(i) << np.uint32(1) | np.uint32(1)
                at += 1
                for _ in range(negatives if n_free > 0 else 0):
                    state += GAMMA
                    if listed:
                        j = np.int64(free[high(mix(state), n_free)])
                    else:
                        j = np.int64(high(mix(state), n_items))
                        while marks[j]:
                            state += GAMMA
                            j = np.int64(high(mix(state), n_items))
                    samples[at] = np.uint32(j) << np.uint32(1)
                    at += 1
            state = _shuffle(samples[first:at], state)
            n_used = _give_slots(samples[first:at], slot_of, used, n_used)
        starts[c + 1] = at
        row_ptr[c + 1] = row_ptr[c] + n_used
        _write_sorted(used[:n_used], slot_of, marks, rows[row_ptr[c] :], slots[row_ptr[c] :], is_positive[row_ptr[c] :])
        _unmark(marks, mine, barred)
    n_rows = row_ptr[n_clients]
    return starts, samples[:at], row_ptr, rows[:n_rows], slots[:n_rows], is_positive[:n_rows]


@njit(cache=True, nogil=True)
def _shuffle(samples, state):
    for done in range(np.uint64(1), np.uint64(samples.size)):
        state += GAMMA
        k, j = done, high(mix(state), done + np.uint64(1))
        samples[k], samples[j] = samples[j], samples[k]
    return state


@njit(cache=True, nogil=True)
def _give_slots(samples, slot_of, used, n_used):
    """Put slots in the place of items, new ones in the order of use; return how many there are."""
    for k in range(samples.size):
        item = samples[k] >> np.uint32(1)
        known = slot_of[item]
        is_new = known < 0
        slot = n_used if is_new else np.int64(known)
        slot_of[item] = slot
        used[n_used] = item  # overwritten by the next one where it is not new
        n_used += is_new
        samples[k] = np.uint32(slot) << np.uint32(1) | (samples[k] & np.uint32(1))
    return n_used


@njit(cache=True, nogil=True)
def _mark(marks, mine, barred):
    """Mark a history and what else must not be drawn; return how many items that are. -1 is not in the catalogue."""
    n = 0
    for i in mine:
        n += marks[i] == 0
        marks[i] = _MINE
    for i in barred:
        if i >= 0 and marks[i] == 0:
            n += 1
            marks[i] = _BARRED
    return n


@njit(cache=True, nogil=True)
def _unmark(marks, mine, barred):
    for i in mine:
        marks[i] = 0
    for i in barred:
        if i >= 0:
            marks[i] = 0


@njit(cache=True, nogil=True)
def _list_free(marks, free):
    n = 0
    for i in range(marks.size):
        if marks[i] == 0:
            free[n] = i
            n += 1


@njit(cache=True, nogil=True)
def _write_sorted(used, slot_of, marks, rows, slots, is_positive):
    """Write the used items in ascending order with their slots and marks, and forget their slots."""
    if used.size * _SPARSE < slot_of.size:
        used.sort()
        for n in range(used.size):
            rows[n] = used[n]
    else:
        n = 0
        for i in range(slot_of.size):
            rows[n] = i
            n += slot_of[i] >= 0
    for n in range(used.size):
        i = rows[n]
        slots[n] = slot_of[i]
        is_positive[n] = marks[i] == _MINE
        slot_of[i] = -1


class Leaving(NamedTuple):
    """Where the moves of a cohort go: each is written out, or all are added up."""

    rows: NDArray[np.float32]  # [R, D]
    layers: NDArray[np.float32]  # [C, P + 1]; the last number is the weight
    kept: NDArray[np.uint8]  # [R] which rows are added; empty: write out instead
    row_sums: NDArray[np.int64]  # [n_items, D]
    row_counts: NDArray[np.int64]
    layer_sums: NDArray[np.int64]  # [1, P + 1]
    layer_counts: NDArray[np.int64]
    largest: NDArray[np.float32]  # [1] the most steps of the grid that fit, or a move that does not


def written(n_rows: int, n_clients: int, width: int, n_layers: int) -> Leaving:
    """Return room to write all moves out."""
    rows, layers = np.empty((n_rows, width), np.float32), np.empty((n_clients, n_layers + 1), np.float32)
    none, table = np.empty(0, np.int64), np.empty((0, 0), np.int64)
    return Leaving(rows, layers, np.empty(0, np.uint8), table, none, table, none, np.full(1, MOST_STEPS))


def added(kept: NDArray[np.uint8], rows: Sums, layers: Sums) -> Leaving:
    """Return where to add the kept rows [R] and all layers: pairs of sums and counts."""
    none, most = np.empty((0, 0), np.float32), np.full(1, MOST_STEPS)
    return Leaving(none, none, kept, *rows, *layers, most)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _scores(table, c, bias, scores):
    """scores[l] = bias + sum over f of c[f] table[f, l]."""
    scores[:] = bias
    for f in range(table.shape[0]):
        row, weight = table[f], c[f]
        for k in range(scores.size):
            scores[k] += weight * row[k]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _descend(table, m, v, residual, c, own, layers, rate, root):
    """Move the leading columns of a transposed table by one step of Adam; leave the gradients of u and head behind.

    The gradient of column l is residual[l] * c, and the sum s of residual[l] table[:, l] serves both others.
    """
    for f in range(table.shape[0]):
        s = np.float32(0)
        for k in range(residual.size):
            s += table[f, k] * residual[k]
        own[3, f] = layers[0, f] * s
        layers[3, f] = own[0, f] * s
        for k in range(residual.size):
            g = residual[k] * c[f]
            m[f, k] = _B1 * m[f, k] + _G1 * g
            v[f, k] = _B2 * v[f, k] + _G2 * (g * g)
            table[f, k] -= rate * m[f, k] / (np.sqrt(v[f, k]) * root + _EPSILON)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _residuals(samples, z, residual):
    """From the logits z of a batch, set residual[slot] to the sum of (sigma - label) / n over its samples."""
    n = samples.size
    residual[:] = 0
    inverse = np.float32(1.0 / n)
    total = np.float32(0)
    for k in range(n):
        z[k] = doubt(-z[k])
    for k in range(n):
        r = (z[k] - np.float32(samples[k] & np.uint32(1))) * inverse
        residual[samples[k] >> np.uint32(1)] += r
        total += r
    return total


@njit(cache=True, nogil=True)
def _reach(samples, reached):
    """Return how many leading slots have been used once these samples have."""
    for s in samples:
        reached = max(reached, np.int64(s >> np.uint32(1)) + 1)
    return reached


@njit(cache=True, nogil=True)
def _widest(row_ptr):
    most = 0
    for c in range(row_ptr.size - 1):
        most = max(most, row_ptr[c + 1] - row_ptr[c])
    return most


@njit(cache=True, nogil=True, error_model="numpy")
def learn_products(draws, epochs, batch, items, theta, people, rate, root, weights, scale, out):
    """Let every client learn a model without a tower; `people` [C, D] move in place.

    z = bias + head . (u * i). With c = head * u, the score of a row is bias + c . i and the gradient of every row is a
    number times c, so the sub-table is kept transposed [D, L] and all loops run along its long side.

    `weights` [2, C] multiply what leaves: the moves of rows and of layers, all rounded to the grid; see `Leaving`.
    """
    before = flush_denormals()
    starts, samples, row_ptr, rows, slots, _ = draws
    width, most = items.shape[1], _widest(row_ptr)
    table, m = np.empty((width, most), np.float32), np.empty((width, most), np.float32)
    v, start = np.empty((width, most), np.float32), np.empty((width, most), np.float32)
    z = np.empty(batch, np.float32)
    scores, residual = np.empty(most, np.float32), np.empty(most, np.float32)
    c, own = np.empty(width, np.float32), np.empty((4, width), np.float32)  # u with its two moments and gradient
    layers = np.empty((4, width + 1), np.float32)
    for client in range(starts.size - 1):
        a, b = row_ptr[client], row_ptr[client + 1]
        for r in range(a, b):
            row, slot = items[rows[r]], slots[r]
            for f in range(width):
                table[f, slot] = row[f]
        for f in range(width):
            start[f, : b - a] = table[f, : b - a]
            m[f, : b - a] = 0
            v[f, : b - a] = 0
        own[0], own[1:] = people[client], 0
        layers[0], layers[1:] = theta, 0
        n = (starts[client + 1] - starts[client]) // epochs
        reached, step = 0, 0
        for epoch in range(epochs):
            first = starts[client] + epoch * n
            for k in range(first, first + n, batch):
                part = samples[k : min(k + batch, first + n)]
                reached = _reach(part, reached)
                c[:] = layers[0, :width] * own[0]
                _scores(table, c, layers[0, width], scores[:reached])
                for k in range(part.size):
                    z[k] = scores[part[k] >> np.uint32(1)]
                layers[3, width] = _residuals(part, z, residual[:reached])
                _descend(table, m, v, residual[:reached], c, own, layers, rate[step], root[step])
                adam_step(own[0], own[1], own[2], own[3], rate[step], root[step])
                adam_step(layers[0], layers[1], layers[2], layers[3], rate[step], root[step])
                step += 1
        people[client] = own[0]
        for f in range(width):
            _moves(table[f, : b - a], start[f], weights[0, client] * scale, out.largest)
        _leave_rows(table.T, rows[a:b], slots[a:b], scale, out, a)
        _leave_layers(layers[0], theta, weights[1, client], scale, out, client)
    restore_denormals(before)


@njit(cache=True, nogil=True, error_model="numpy")
def _moves(moved, start, factor, largest):
    """Turn what has moved into by how much it has: weighted, in whole steps of the grid."""
    limit, n = largest[0], 0
    for k in range(moved.size):
        moved[k] = np.rint((moved[k] - start[k]) * factor)
        n += not abs(moved[k]) <= limit
    if n > 0:
        for x in moved:
            if not abs(x) <= limit:
                largest[0] = abs(x)


@njit(cache=True, nogil=True, error_model="numpy")
def _leave_rows(moves, rows, slots, scale, out, first):
    """Write or add a client's moves [L, D], in whole steps, of the items `rows` at the places `slots`."""
    unit = np.float32(1) / scale
    for r in range(rows.size):
        slot, row = slots[r], rows[r]
        if out.kept.size == 0:
            for f in range(moves.shape[1]):
                out.rows[first + r, f] = moves[slot, f] * unit
        elif out.kept[first + r]:
            for f in range(moves.shape[1]):
                out.row_sums[row, f] += np.int64(np.int32(moves[slot, f]))
            out.row_counts[row] += 1


@njit(cache=True, nogil=True, error_model="numpy")
def _leave_layers(layers, theta, weight, scale, out, client):
    """Write or add a client's moves of the layers, and their weight behind them."""
    _moves(layers, theta, weight * scale, out.largest)
    steps, unit = np.rint(weight * scale), np.float32(1) / scale
    if out.kept.size == 0:
        for k in range(theta.size):
            out.layers[client, k] = layers[k] * unit
        out.layers[client, theta.size] = steps * unit
    else:
        for k in range(theta.size):
            out.layer_sums[0, k] += np.int64(np.int32(layers[k]))
        out.layer_sums[0, theta.size] += np.int64(steps)
        out.layer_counts[0] += 1


@njit(cache=True, nogil=True, error_model="numpy")
def learn_towers(draws, epochs, batch, items, theta, people, sizes, product, rate, root, weights, scale, out):
    """Let every client learn a model with a tower, and with a product if `product` is not 0; otherwise as above.

    Her half of the first layer's input is the same for all her samples, so it is folded into the bias: the tower then
    starts from the items' half alone, and the gradients of the folded part follow from that of the bias.
    """
    before = flush_denormals()
    starts, samples, row_ptr, rows, slots, _ = draws
    width, most, half = items.shape[1], _widest(row_ptr), sizes[0] // 2
    inner = sizes.copy()
    inner[0] = half
    table, m = np.empty(most * width, np.float32), np.empty(most * width, np.float32)
    v, g = np.empty(most * width, np.float32), np.empty(most * width, np.float32)
    start = np.empty(most * width, np.float32)
    local, g_local = table.reshape((most, width)), g.reshape((most, width))
    acts, back = np.empty(batch * inner.sum(), np.float32), np.empty(batch * inner.sum(), np.float32)
    z, own, layers = (
        np.empty(batch, np.float32),
        np.empty((4, width), np.float32),
        np.empty((4, theta.size), np.float32),
    )
    for client in range(starts.size - 1):
        a, b = row_ptr[client], row_ptr[client + 1]
        for r in range(a, b):
            for f in range(width):
                local[slots[r], f] = items[rows[r], f]
        end = (b - a) * width
        start[:end] = table[:end]
        m[:end] = 0
        v[:end] = 0
        g[:end] = 0
        own[0], own[1:] = people[client], 0
        layers[0], layers[1:] = theta, 0
        n = (starts[client + 1] - starts[client]) // epochs
        reached, step = 0, 0
        for epoch in range(epochs):
            first = starts[client] + epoch * n
            for k in range(first, first + n, batch):
                part = samples[k : min(k + batch, first + n)]
                reached = _reach(part, reached)
                _tower_gradients(part, local, own, layers, inner, product, acts, back, z, g_local)
                end = reached * width
                adam_step(table[:end], m[:end], v[:end], g[:end], rate[step], root[step])
                adam_step(own[0], own[1], own[2], own[3], rate[step], root[step])
                adam_step(layers[0], layers[1], layers[2], layers[3], rate[step], root[step])
                step += 1
        people[client] = own[0]
        end = (b - a) * width
        _moves(table[:end], start, weights[0, client] * scale, out.largest)
        _leave_rows(local, rows[a:b], slots[a:b], scale, out, a)
        _leave_layers(layers[0], theta, weights[1, client], scale, out, client)
    restore_denormals(before)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _tower_gradients(samples, table, own, layers, inner, product, acts, back, z, g):
    """Add the gradients of a batch to g (rows), own[3] and layers[3], which are zero."""
    n, capacity, half, wide, tail = samples.size, z.size, inner[0], inner[1], inner[-1]
    u, theta, gu, grad = own[0], layers[0], own[3], layers[3]
    cut = half * wide  # where the items' half of the first layer begins
    rest, g_rest = theta[cut:], grad[cut:]
    bias = theta[2 * cut : 2 * cut + wide]
    kept = bias.copy()
    for f in range(half):
        for k in range(wide):
            bias[k] += u[product + f] * theta[f * wide + k]
    x = block(acts, 0, n, half, capacity)
    for k in range(n):
        row = table[samples[k] >> np.uint32(1)]
        for f in range(half):
            x[k, f] = row[product + f]
    tower_forward(acts, n, capacity, rest, inner, 0)
    bias[:] = kept
    before = inner[:-1].sum()
    top, d_top = block(acts, before, n, tail, capacity), block(back, before, n, tail, capacity)
    at = theta.size - 1 - product - tail
    head, g_head = theta[at : theta.size - 1], grad[at : theta.size - 1]
    for k in range(n):
        row = table[samples[k] >> np.uint32(1)]
        s = theta[-1]
        for f in range(product):
            s += head[f] * u[f] * row[f]
        for f in range(tail):
            s += head[product + f] * top[k, f]
        z[k] = s
    inverse = np.float32(1.0 / n)
    for k in range(n):
        z[k] = doubt(-z[k])
    for k in range(n):
        slot = samples[k] >> np.uint32(1)
        r = (z[k] - np.float32(samples[k] & np.uint32(1))) * inverse
        grad[-1] += r
        for f in range(product):
            gu[f] += r * table[slot, f]  # its sum over the batch serves u and head alike, see below
            g[slot, f] += r * head[f] * u[f]
        for f in range(tail):
            g_head[product + f] += r * top[k, f]
            d_top[k, f] = r * head[product + f]
    for f in range(product):
        g_head[f] = gu[f] * u[f]
        gu[f] *= head[f]
    tower_backward(acts, back, n, capacity, rest, g_rest, inner)
    g_bias = grad[2 * cut : 2 * cut + wide]
    for f in range(half):
        s = np.float32(0)
        for k in range(wide):
            grad[f * wide + k] = u[product + f] * g_bias[k]
            s += theta[f * wide + k] * g_bias[k]
        gu[product + f] = s
    d_x = block(back, 0, n, half, capacity)
    for k in range(n):
        slot = samples[k] >> np.uint32(1)
        for f in range(half):
            g[slot, product + f] += d_x[k, f]
