"""Adam against its definition, and rows asleep against rows moved in vain."""

from __future__ import annotations

import numpy as np

from tacit.kernels.adam import adam_rows, adam_step, corrections, initial_adam_state, runs_of


def _by_definition(w, gradients, learning_rate):
    w, m, v = w.astype(np.float64), np.zeros(w.shape), np.zeros(w.shape)
    for t, g in enumerate(gradients, 1):
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g**2
        w = w - learning_rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return w


def test_steps_follow_the_definition():
    rng = np.random.default_rng(0)
    w, gradients = rng.normal(size=37).astype(np.float32), rng.normal(size=(20, 37)).astype(np.float32)
    p = initial_adam_state(w.copy())
    for done in (0, 10):  # the corrections go on where they stopped
        rate, root = corrections(done, 10, 1e-2)
        for t in range(10):
            p.g[:] = gradients[done + t]
            adam_step(*p, rate[t], root[t])
    np.testing.assert_allclose(p.w, _by_definition(w, gradients, 1e-2), rtol=0, atol=2e-6)
    assert not p.g.any(), "the gradient is cleared for the next step"


def test_leaving_out_rows_that_never_had_a_gradient_changes_no_bit():
    rng = np.random.default_rng(1)
    w = rng.normal(size=(40, 12)).astype(np.float32)
    touched = rng.random(40) < 0.4
    touched[[0, 39]] = True
    lazy, dense = initial_adam_state(w.copy()), initial_adam_state(w.copy())
    rate, root = corrections(0, 30, 1e-3)
    for t in range(30):
        rows = np.flatnonzero(touched & (rng.random(40) < 0.3))  # a touched row moves on without a gradient, too
        g = rng.normal(size=(len(rows), 12)).astype(np.float32)
        lazy.g[rows] = dense.g[rows] = g
        adam_rows(lazy, runs_of(touched), rate[t], root[t])
        adam_rows(dense, np.array([[0, 40]]), rate[t], root[t])
    for mine, reference in zip(lazy, dense, strict=True):
        np.testing.assert_array_equal(mine, reference)
    np.testing.assert_array_equal(lazy.w[~touched], w[~touched])
    assert (lazy.w[touched] != w[touched]).any(axis=1).all()


def test_runs_cover_exactly_the_flags():
    rng = np.random.default_rng(2)
    for flags in (np.zeros(5, bool), np.ones(5, bool), *(rng.random((50, 9)) < 0.5)):
        covered = np.zeros(len(flags), int)
        for start, end in runs_of(flags):
            covered[start:end] += 1
        np.testing.assert_array_equal(covered, flags)
