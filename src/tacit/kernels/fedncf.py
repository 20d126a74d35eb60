"""What a device does in a round of federated neural collaborative filtering: learn on the rows it touches, round.

A device copies the rows of the item table that its samples touch and learns on this sub-table alone. That is exact:
Adam, made anew for the round, leaves a row where it is until it has had a gradient. Local rows are numbered in the
order of their first use, so a step moves only the leading ones that have been used so far.

Samples and rows are drawn by `kernels.local_samples`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tacit.kernels.adam import adam_step
from tacit.kernels.denormals import flush_denormals, restore_denormals
from tacit.kernels.exponential import doubt
from tacit.kernels.ncf import FAST, block, tower_backward, tower_forward
from tacit.kernels.products import descend_products, product_scores, reach, residuals

MOST_STEPS = np.float32(2**24)  # whole numbers up to here are exact in float32
Sums = tuple[NDArray[np.int64], NDArray[np.int64]]


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
                reached = reach(part, reached)
                c[:] = layers[0, :width] * own[0]
                product_scores(table, c, layers[0, width], scores[:reached])
                for k in range(part.size):
                    z[k] = scores[part[k] >> np.uint32(1)]
                layers[3, width] = residuals(part, z, residual[:reached])
                descend_products(table, m, v, residual[:reached], c, own, layers, rate[step], root[step])
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
                reached = reach(part, reached)
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
