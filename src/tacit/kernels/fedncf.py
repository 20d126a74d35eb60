"""What a device does in a round of fed-gmf: it learns on the rows it touches, and rounds their moves to the grid.

A device copies the rows of the item table that its samples touch and learns on this sub-table alone. That is exact:
Adam, made anew for the round, leaves a row where it is until it has had a gradient. From then on a row moves at every
step, but makes its steps when it is next read (`kernels.llvm.lazy_adam`).

Samples and rows are drawn by `kernels.local_samples`; models with a tower learn in `kernels.fedtower`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from tacit.kernels.adam import adam_step
from tacit.kernels.llvm.denormals import flush_denormals, restore_denormals
from tacit.kernels.llvm.lazy_adam import (
    STATE,
    add_steps,
    catch_up,
    due,
    leave_steps,
    room_for,
    sort_out,
    start_row,
    step_of,
)
from tacit.kernels.move_sink import leave_layers, note_largest
from tacit.kernels.products import take_products


class Learning(NamedTuple):
    """How devices learn."""

    epochs: int  # in which the samples of a device are stored one after the other, equally long
    batch: int
    loss: int  # one of LOSSES
    own_rate: np.float32  # the step of the user's own vector, in units of the learning rate


@njit(cache=True, nogil=True)
def widest(row_ptr):
    """Return the most rows that a client touches."""
    most = 0
    for c in range(row_ptr.size - 1):
        most = max(most, row_ptr[c + 1] - row_ptr[c])
    return most


@njit(cache=True, nogil=True, error_model="numpy")
def begin(state, when, rows, slots, items, width):
    """Put the rows that a client touches into their slots, none of them having had a gradient."""
    for r in range(rows.size):
        slot = np.uint64(slots[r])
        start_row(state, slot * np.uint64(STATE * width), items, rows[r])
        when[slot] = -1


@njit(cache=True, nogil=True, error_model="numpy")
def end(state, when, rows, slots, items, width, step, pace, weight, scale, first, out):
    """Make all steps that are due before `step`, and let a client's rows leave, in the order of items.

    The client's rows are written out, or added to a total, as `MoveSink` says, from its row `first` on.
    """
    factor, limit, size, wide = weight * scale, out.largest[0], np.uint64(STATE * width), np.uint64(width)
    sums, unit = out.row_sums.reshape(-1), np.float32(1) / scale
    for r in range(rows.size):
        slot, item = np.uint64(slots[r]), np.uint64(rows[r])
        last, at = step_of(when[slot]), slot * size
        due_weight, epsilon = due(pace, last, step)
        if leave_steps(state, at, items, item, due_weight, epsilon, factor, limit):
            note_largest(state[at : at + wide], out.largest)
        if out.kept.size == 0:
            for f in range(wide):
                out.rows[first + r, f] = state[at + f] * unit
        elif out.kept[first + r]:
            add_steps(state, at, items, sums, item * wide)
            out.row_counts[item] += 1


@njit(cache=True, nogil=True, error_model="numpy")
def learn_products(draws, how, items, theta, users, pace, weights, scale, out):
    """Let every client learn a model without a tower; `clients` [C, D] move in place.

    z = bias + head . (u * i). With c = head * u, the score of a row is bias + c . i and the gradient of every row is a
    number times c. `items` comes from `rows_of`, `how` is `Learning`.

    `weights` [2, C] multiply what leaves: the moves of rows and of layers, all rounded to the grid; see `MoveSink`.
    """
    before = flush_denormals()
    starts, samples, row_ptr, rows, slots, _ = draws
    width, most, epochs, batch = users.shape[1], widest(row_ptr), how.epochs, how.batch
    state, when = np.empty(most * STATE * width, np.float32), np.empty(most, np.int64)
    longest = 0
    for client in range(starts.size - 1):
        longest = max(longest, (starts[client + 1] - starts[client]) // epochs)
    room = room_for(min(batch, longest))
    z, c = np.empty(min(batch, longest), np.float32), np.empty(width, np.float32)
    own, layers = np.empty((4, width), np.float32), np.empty((4, width + 1), np.float32)  # two moments and gradient
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
                take_products(part, state, items, width, room, counts, own, layers, c, z, how.loss)
                adam_step(own[0], own[1], own[2], own[3], how.own_rate * pace.rate[step], pace.root[step])
                adam_step(layers[0], layers[1], layers[2], layers[3], pace.rate[step], pace.root[step])
                step += 1
        users[client] = own[0]
        end(state, when, rows[a:b], slots[a:b], items, width, step, pace, weights[0, client], scale, a, out)
        leave_layers(layers[0], theta, weights[1, client], scale, out, client)
    restore_denormals(before)
