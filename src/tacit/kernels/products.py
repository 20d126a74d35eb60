"""One batch of a model without a tower: scores, residuals, and gradients of rows, user vector and head.

A device that learns z = bias + head . (u * i) for one client has c = head * u: the score of a row is bias + c . i, and
the gradient of every row is a number times c. Rows have the layout of `kernels.llvm.lazy_adam`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tacit.kernels.llvm.lazy_adam import STATE, dot_row, pair, take_product
from tacit.kernels.losses import residuals


@njit(cache=True, nogil=True, error_model="numpy")
def take_products(samples, state, items, width, room, counts, own, layers, c, z, loss):
    """Take the gradients of a batch, sorted out into `room`, into its rows; leave the others in own[3] and layers[3].

    The sum s of residual * row over the batch serves both: the user vector's is head * s, the head's u * s.
    """
    size, one = np.uint64(STATE * width), np.uint32(1)
    u, head, s = own[0], layers[0], own[3]
    for f in range(width):
        c[f] = head[f] * u[f]
        s[f] = 0
    for k in range(samples.size):
        z[k] = dot_row(state, np.uint64(samples[k] >> one) * size, items, c) + head[width]
    layers[3, width] = residuals(loss, samples, z[: samples.size])
    for k in range(counts[1]):
        to, place = pair(room.again[k])
        z[to] += z[place]
    for k in range(counts[0]):
        place = np.uint64(room.first[k])
        take_product(state, np.uint64(samples[place] >> one) * size, items, z[place], c, s)
    for f in range(width):
        layers[3, f] = u[f] * s[f]
        s[f] *= head[f]
