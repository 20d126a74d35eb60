"""One step of a model without a tower, on a transposed table: scores, residuals, Adam.

A device that learns z = bias + head . (u * i) for one person has c = head * u: the score of a column is bias + c . i,
and the gradient of every column is a number times c. So its table is kept transposed [D, L], and loops run along the
long side.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tacit.kernels.adam import BETA1, BETA2
from tacit.kernels.exponential import doubt
from tacit.kernels.ncf import FAST

_B1, _G1 = np.float32(BETA1), np.float32(1 - BETA1)
_B2, _G2 = np.float32(BETA2), np.float32(1 - BETA2)
_EPSILON = np.float32(1e-8)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def product_scores(table, c, bias, scores):
    """scores[l] = bias + sum over f of c[f] table[f, l]."""
    scores[:] = bias
    for f in range(table.shape[0]):
        row, weight = table[f], c[f]
        for k in range(scores.size):
            scores[k] += weight * row[k]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def descend_products(table, m, v, residual, c, own, layers, rate, root):
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
def residuals(samples, z, residual):
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
def reach(samples, reached):
    """Return how many leading slots have been used once these samples have."""
    for s in samples:
        reached = max(reached, np.int64(s >> np.uint32(1)) + 1)
    return reached
