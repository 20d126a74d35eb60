"""Where the moves of devices go: each is written out, as devices send them, or all are added up at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tacit.kernels.llvm.tiles import add_whole

MOST_STEPS = np.float32(2**24)  # whole numbers up to here are exact in float32
Sums = tuple[NDArray[np.int64], NDArray[np.int64]]


class MoveSink(NamedTuple):
    """Where the moves of a cohort go: each is written out, or all are added up."""

    rows: NDArray[np.float32]  # [R, D]
    layers: NDArray[np.float32]  # [C, P + 1]; the last number is the weight
    kept: NDArray[np.uint8]  # [R] which rows are added; empty: write out instead
    row_sums: NDArray[np.int64]  # [n_items, D]
    row_counts: NDArray[np.int64]
    layer_sums: NDArray[np.int64]  # [1, P + 1]
    layer_counts: NDArray[np.int64]
    largest: NDArray[np.float32]  # [1] the most steps of the grid that fit, or a move that does not


def row_sink(n_rows: int, n_clients: int, width: int, n_layers: int) -> MoveSink:
    """Return room to write all moves out."""
    rows, layers = np.empty((n_rows, width), np.float32), np.empty((n_clients, n_layers + 1), np.float32)
    none, table = np.empty(0, np.int64), np.empty((0, 0), np.int64)
    return MoveSink(rows, layers, np.empty(0, np.uint8), table, none, table, none, np.full(1, MOST_STEPS))


def total_sink(kept: NDArray[np.uint8], rows: Sums, layers: Sums) -> MoveSink:
    """Return where to add the kept rows [R] and all layers: pairs of sums and counts."""
    none, most = np.empty((0, 0), np.float32), np.full(1, MOST_STEPS)
    return MoveSink(none, none, kept, *rows, *layers, most)


@njit(cache=True, nogil=True, error_model="numpy")
def in_steps(moved, start, factor, largest):
    """Turn what has moved into by how much it has: weighted, in whole steps of the grid."""
    limit, n = largest[0], 0
    for k in range(moved.size):
        moved[k] = np.rint((moved[k] - start[k]) * factor)
        n += not abs(moved[k]) <= limit
    if n > 0:
        note_largest(moved, largest)


@njit(cache=True, nogil=True, error_model="numpy")
def note_largest(steps, largest):
    """Note the largest number of steps that does not fit; once one is NaN, NaN stays noted."""
    for x in steps:
        if not abs(x) <= largest[0] and largest[0] == largest[0]:
            largest[0] = abs(x)


@njit(cache=True, nogil=True, error_model="numpy")
def leave_layers(layers, theta, weight, scale, out, client):
    """Write out or add a client's moves of the layers, and their weight behind them."""
    in_steps(layers, theta, weight * scale, out.largest)
    steps, unit = np.rint(weight * scale), np.float32(1) / scale
    if out.kept.size == 0:
        for k in range(theta.size):
            out.layers[client, k] = layers[k] * unit
        out.layers[client, theta.size] = steps * unit
    else:
        add_whole(layers, 0, out.layer_sums.reshape(-1), 0, theta.size)
        out.layer_sums[0, theta.size] += np.int64(steps)
        out.layer_counts[0] += 1
