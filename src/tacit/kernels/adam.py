"""Adam with the semantics of a dense optimiser.

One step with gradient g, number t counted from 1 (the two corrections are float64 scalars, rounded once):

    m <- b1 m + (1 - b1) g      v <- b2 v + (1 - b2) g^2
    w <- w - lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)

A row of an embedding table that is not in a batch has g = 0 and still moves while its m is not zero, so whole tables
move at every batch. But a row that never had a gradient has m = v = 0 and stays where it is, so it is exact to leave it
out. A table moves in runs of active rows, which have had a gradient; it is one run where many clients learn together.
Where a client learns alone, `kernels.llvm.lazy_adam` lets a row make all the steps it has missed at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

BETA1 = 0.9
BETA2 = 0.999
EPSILON = 1e-8
_B1, _G1 = np.float32(BETA1), np.float32(1 - BETA1)
_B2, _G2 = np.float32(BETA2), np.float32(1 - BETA2)
_EPSILON = np.float32(EPSILON)


class AdamState(NamedTuple):
    """Parameters with their two moments and their gradient, all of one shape; g is zero between steps."""

    w: NDArray[np.float32]
    m: NDArray[np.float32]
    v: NDArray[np.float32]
    g: NDArray[np.float32]


def initial_adam_state(w: NDArray[np.float32]) -> AdamState:
    """Return parameters that have not moved yet; `w` itself is what will move."""
    return AdamState(w, np.zeros_like(w), np.zeros_like(w), np.zeros_like(w))


def corrections(done: int, steps: int, learning_rate: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the factors of m and of sqrt(v) for the `steps` steps that follow the first `done` ones."""
    t = done + np.arange(1, steps + 1, dtype=np.float64)
    rate = learning_rate / (1.0 - BETA1**t)
    root = 1.0 / np.sqrt(1.0 - BETA2**t)
    return rate.astype(np.float32), root.astype(np.float32)


@njit(cache=True, nogil=True, error_model="numpy")
def adam_step(w, m, v, g, rate, root):
    """Move the parameters [P] by one step along g, and clear g."""
    for k in range(w.size):
        m[k] = _B1 * m[k] + _G1 * g[k]
        v[k] = _B2 * v[k] + _G2 * (g[k] * g[k])
        w[k] -= rate * m[k] / (np.sqrt(v[k]) * root + _EPSILON)
        g[k] = np.float32(0)


@njit(cache=True, nogil=True, error_model="numpy")
def adam_rows(p, runs, rate, root):
    """Move rows runs[r, 0]..runs[r, 1] - 1 of a table [R, D] for every r by one step, and clear their gradients."""
    width = p.w.shape[1]
    w, m, v, g = p.w.reshape(-1), p.m.reshape(-1), p.v.reshape(-1), p.g.reshape(-1)
    for r in range(runs.shape[0]):
        a, b = runs[r, 0] * width, runs[r, 1] * width
        adam_step(w[a:b], m[a:b], v[a:b], g[a:b], rate, root)


@njit(cache=True, nogil=True)
def runs_of(active):
    """Return [n, 2]: start and end of every run of true flags."""
    runs = np.empty((active.size // 2 + 1, 2), np.int64)
    n = 0
    for r in range(active.size):
        if active[r]:
            if r == 0 or not active[r - 1]:
                runs[n, 0] = r
                n += 1
            runs[n - 1, 1] = r + 1
    return runs[:n]
