"""What a device does in a round of fed-mlp and fed-neumf: as `kernels.fedncf`, with a tower of ReLU layers.

Samples of a batch stand side by side: one row per factor or unit, one column per sample (`kernels.tiles`).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tacit.kernels import FAST
from tacit.kernels.adam import adam_step
from tacit.kernels.fedncf import begin, end, widest
from tacit.kernels.llvm.denormals import flush_denormals, restore_denormals
from tacit.kernels.llvm.lazy_adam import STATE, catch_up, pair, room_for, sort_out, take_in
from tacit.kernels.llvm.tiles import LANES, columns_to_rows, layers_down, layers_gradient, layers_up, rows_to_columns
from tacit.kernels.losses import residuals
from tacit.kernels.move_sink import leave_layers


@njit(cache=True, nogil=True, error_model="numpy")
def learn_towers(draws, how, items, theta, users, sizes, product, pace, weights, scale, out):
    """Let every client learn a model with a tower, and with a product if `product` is not 0.

    `clients` [C, D] move in place; `how`, `items`, `weights` and `out` are as in `learn_products`.
    """
    before = flush_denormals()
    starts, samples, row_ptr, rows, slots, _ = draws
    width, most, epochs, batch = users.shape[1], widest(row_ptr), how.epochs, how.batch
    inner = sizes.copy()
    inner[0] = sizes[0] // 2
    state, when = np.empty(most * STATE * width, np.float32), np.empty(most, np.int64)
    longest = 0
    for client in range(starts.size - 1):
        longest = max(longest, (starts[client + 1] - starts[client]) // epochs)
    columns = (min(batch, longest) + LANES - 1) // LANES * LANES
    stride = columns + LANES  # rows of a power of two would fall on the same lines of the cache
    acts, back = _rows(product + inner.sum(), stride), _rows(product + inner.sum(), stride)
    room, z, begins = room_for(columns), np.empty(columns, np.float32), np.empty(columns, np.uint64)
    lines = np.empty(columns * width, np.float32)
    own, layers = np.empty((4, width), np.float32), np.empty((4, theta.size), np.float32)
    for client in range(starts.size - 1):
        a, b = row_ptr[client], row_ptr[client + 1]
        begin(state, when, rows[a:b], slots[a:b], items, width)
        own[0], own[1:] = users[client], 0
        layers[0], layers[1:] = theta, 0
        n = (starts[client + 1] - starts[client]) // epochs
        step = 0
        for epoch in range(epochs):
            first = starts[client] + epoch * n
            for k in range(first, first + n, batch):
                part = samples[k : min(k + batch, first + n)]
                counts = sort_out(part, step, when, room)
                catch_up(state, items, width, room, counts[2], step, pace)
                _gradients(part, state, own, layers, inner, product, acts, back, stride, z, begins, lines, how.loss)
                _take_lines(state, items, width, room, counts, begins, lines)
                adam_step(own[0], own[1], own[2], own[3], how.own_rate * pace.rate[step], pace.root[step])
                adam_step(layers[0], layers[1], layers[2], layers[3], pace.rate[step], pace.root[step])
                step += 1
        users[client] = own[0]
        end(state, when, rows[a:b], slots[a:b], items, width, step, pace, weights[0, client], scale, a, out)
        leave_layers(layers[0], theta, weights[1, client], scale, out, client)
    restore_denormals(before)


@njit(cache=True, nogil=True, error_model="numpy")
def _take_lines(state, items, width, room, counts, begins, lines):
    """Take the gradients of the samples of a batch, one line each, into their rows."""
    wide = np.uint64(width)
    for k in range(counts[1]):
        to, place = pair(room.again[k])
        for f in range(wide):
            lines[to * wide + f] += lines[place * wide + f]
    for k in range(counts[0]):
        place = np.uint64(room.first[k])
        take_in(state, begins[place], items, lines, place * wide)


@njit(cache=True, nogil=True)
def _rows(n, stride):
    return np.zeros(n * stride, np.float32)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _gradients(samples, state, own, layers, inner, product, acts, back, stride, z, begins, lines, loss):
    """Write the gradients of a batch: of each sample's row into `lines`, of own and layers into own[3] and layers[3].

    The user's half of the first layer's input is the same for all samples of a client, so it is folded into the bias.
    The tower then starts from the items' half alone, and the gradients of the folded part follow from that of the bias.
    """
    n, half, wide, tail = samples.size, inner[0], inner[1], inner[-1]
    width, filled = product + half, (n + LANES - 1) // LANES * LANES
    size = np.uint64(STATE * width)
    u, theta, gu, grad = own[0], layers[0], own[3], layers[3]
    for k in range(filled):
        begins[k] = np.uint64(samples[k] >> np.uint32(1)) * size if k < n else np.uint64(0)
    rows_to_columns(state, begins, width, acts, stride, filled)
    cut = half * wide  # where the items' half of the first layer begins
    rest, g_rest = theta[cut:], grad[cut:]
    bias = theta[2 * cut : 2 * cut + wide]
    kept = bias.copy()
    for f in range(half):
        for k in range(wide):
            bias[k] += u[product + f] * theta[f * wide + k]
    layers_up(rest, inner, acts, product, stride, filled)
    bias[:] = kept
    top = width + inner[1:-1].sum()  # its rows
    at = theta.size - 1 - product - tail
    head, g_head = theta[at : theta.size - 1], grad[at : theta.size - 1]
    z[:filled] = theta[-1]
    for f in range(product):
        _add_times(head[f] * u[f], acts[f * stride : f * stride + filled], z)
    for f in range(tail):
        _add_times(head[product + f], acts[(top + f) * stride : (top + f) * stride + filled], z)
    grad[-1] = residuals(loss, samples, z[:filled])
    for f in range(product):
        s = _dot(acts[f * stride : f * stride + filled], z)
        g_head[f] = s * u[f]
        gu[f] = s * head[f]
        _spread(head[f] * u[f], z, back[f * stride : f * stride + filled])
    for f in range(tail):
        line = (top + f) * stride
        g_head[product + f] = _dot(acts[line : line + filled], z)
        _spread_on(head[product + f], z, acts[line : line + filled], back[line : line + filled])
    layers_down(rest, inner, acts, back, product, stride, filled)
    layers_gradient(acts, back, inner, g_rest, product, stride, filled)
    g_bias = grad[2 * cut : 2 * cut + wide]
    for f in range(half):
        s = np.float32(0)
        for k in range(wide):
            grad[f * wide + k] = u[product + f] * g_bias[k]
            s += theta[f * wide + k] * g_bias[k]
        gu[product + f] = s
    columns_to_rows(back, stride, width, lines, filled)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _add_times(weight, row, z):
    for k in range(row.size):
        z[k] += weight * row[k]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _dot(row, r):
    s = np.float32(0)
    for k in range(row.size):
        s += row[k] * r[k]
    return s


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _spread(weight, r, row):
    for k in range(row.size):
        row[k] = weight * r[k]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _spread_on(weight, r, unit, row):
    """Write weight * r where a unit is on."""
    for k in range(row.size):
        row[k] = weight * r[k] if unit[k] > 0 else np.float32(0)
