"""What a device does in a round of fed-gmf: learn on the rows it touches, round.

A device copies the rows of the item table that its samples touch and learns on this sub-table alone. That is exact:
Adam, made anew for the round, leaves a row where it is until it has had a gradient. Local rows are numbered in the
order of their first use, so a step moves only the leading ones that have been used so far.

Samples and rows are drawn by `kernels.local_samples`; models with a tower learn in `kernels.fedtower`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tacit.kernels.adam import adam_step
from tacit.kernels.denormals import flush_denormals, restore_denormals
from tacit.kernels.leaving import in_steps, leave_layers, leave_rows
from tacit.kernels.products import descend_products, product_scores, reach, residuals
from tacit.kernels.tiles import columns_to_rows, rows_to_columns


@njit(cache=True, nogil=True)
def widest(row_ptr):
    """Return the most rows that a client touches."""
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
    width, most = items.shape[1], (widest(row_ptr) + 3) // 4 * 4
    table, m = np.empty((width, most), np.float32), np.empty((width, most), np.float32)
    v, start = np.empty((width, most), np.float32), np.empty((width, most), np.float32)
    begins, lines = np.zeros(most, np.uint64), np.empty(most * width, np.float32)
    flat, columns, row_sums = items.reshape(-1), table.reshape(-1), out.row_sums.reshape(-1)
    z = np.empty(batch, np.float32)
    scores, residual = np.empty(most, np.float32), np.empty(most, np.float32)
    c, own = np.empty(width, np.float32), np.empty((4, width), np.float32)  # u with its two moments and gradient
    layers = np.empty((4, width + 1), np.float32)
    for client in range(starts.size - 1):
        a, b = row_ptr[client], row_ptr[client + 1]
        for r in range(a, b):
            begins[slots[r]] = rows[r] * width
        rows_to_columns(flat, begins, width, columns, most, (b - a + 3) // 4 * 4)
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
            in_steps(table[f, : b - a], start[f], weights[0, client] * scale, out.largest)
        columns_to_rows(columns, most, width, lines, (b - a + 3) // 4 * 4)
        for r in range(a, b):
            begins[r - a] = slots[r] * width
        leave_rows(lines, begins, rows[a:b], width, scale, out.kept[a:b], out.rows[a:b], row_sums, out.row_counts)
        leave_layers(layers[0], theta, weights[1, client], scale, out, client)
    restore_denormals(before)
