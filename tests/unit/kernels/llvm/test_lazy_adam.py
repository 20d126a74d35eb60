"""Rows that make their steps when they are next read, beside dense Adam that moves all rows at every step."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from tacit.kernels.adam import BETA1, BETA2, EPSILON
from tacit.kernels.llvm.lazy_adam import (
    STATE,
    adam_schedule,
    catch_up,
    catch_up_all,
    due,
    not_before,
    pair,
    room_for,
    sort_out,
    take_in,
)
from tacit.kernels.llvm.rowvec import rows_of

ROWS, STEPS, RATE = 30, 90, 0.01


@njit
def _learn(batches, gradients, state, when, like, width, pace, done):
    """Learn from batches [steps, B] of samples with a gradient each, after `done` steps; return how many that makes."""
    room = room_for(batches.shape[1])
    lines = np.empty(batches.shape[1] * width, np.float32)
    for t in range(batches.shape[0]):
        counts = sort_out(batches[t], done + t, when, room)
        catch_up(state, like, width, room, counts[2], done + t, pace)
        lines[:] = gradients[t].reshape(-1)
        for k in range(counts[1]):
            to, place = pair(room.again[k])
            for f in range(width):
                lines[to * width + f] += lines[place * width + f]
        for k in range(counts[0]):
            at = np.uint64(batches[t, room.first[k]] >> 1) * np.uint64(STATE * width)
            take_in(state, at, like, lines, np.uint64(room.first[k]) * np.uint64(width))
    catch_up_all(state, like, width, when, done + batches.shape[0], pace)
    return done + batches.shape[0]


def _dense(w, batches, gradients):
    w, m, v = w.astype(np.float64), np.zeros(w.shape), np.zeros(w.shape)
    for t, (rows, each) in enumerate(zip(batches >> 1, gradients, strict=True), 1):
        g = np.zeros(w.shape)
        np.add.at(g, rows, each)
        m = BETA1 * m + (1 - BETA1) * g
        v = BETA2 * v + (1 - BETA2) * g**2
        w = w - RATE * (m / (1 - BETA1**t)) / (np.sqrt(v / (1 - BETA2**t)) + EPSILON)
    return w


def _case(width, size):
    rng = np.random.default_rng(width)
    w = rng.normal(size=(ROWS, width)).astype(np.float32)
    popular = rng.integers(0, ROWS, (STEPS, 6)) * (rng.random((STEPS, 6)) < 0.6)  # row 0 often, and twice in a batch
    gradients = (size * rng.normal(size=(STEPS, 6, width))).astype(np.float32)
    return w, (popular << 1).astype(np.uint32), gradients


def _lazy(w, batches, gradients, cuts=()):
    width, state = w.shape[1], np.zeros((len(w), STATE, w.shape[1]), np.float32)
    state[:, 0] = w
    when, done, pace = np.full(len(w), not_before.py_func(0)), 0, adam_schedule(STEPS, RATE)
    for part in np.split(np.arange(STEPS), cuts):
        when[:] = not_before.py_func(done)
        done = _learn(batches[part], gradients[part], state.reshape(-1), when, rows_of(w), width, pace, done)
    return state[:, 0]


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 12, 37])
def test_missed_steps_are_those_of_dense_adam(width):
    w, batches, gradients = _case(width, 1e-3)
    expected = _dense(w, batches, gradients)
    assert np.abs(expected - w).max() > 0.1
    np.testing.assert_allclose(_lazy(w, batches, gradients), expected, rtol=0, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "far"), [(1e-4, 5e-4), (1e-6, 4e-3), (1e-8, 1.5e-2)])
def test_the_only_difference_is_where_gradients_are_as_small_as_epsilon(size, far):
    w, batches, gradients = _case(12, size)
    expected, found = _dense(w, batches, gradients), _lazy(w, batches, gradients)
    assert np.abs(found - expected).max() <= far * np.abs(expected - w).max()


@pytest.mark.slow
def test_moments_may_be_kept_between_calls():
    w, batches, gradients = _case(12, 1e-3)
    whole, parts = _lazy(w, batches, gradients), _lazy(w, batches, gradients, cuts=(1, 2, 40))
    np.testing.assert_allclose(parts, whole, rtol=0, atol=2e-5)


def test_what_is_due_is_the_sum_of_the_steps_and_does_not_depend_on_how_many_there_are():
    pace, longer = adam_schedule(100, RATE), adam_schedule(1000, RATE)
    t = np.arange(1, 102)
    each = RATE * np.sqrt(1 - BETA2**t) / (1 - BETA1**t)
    slower = BETA1 / np.sqrt(BETA2)
    for last, step in ((0, 1), (0, 100), (7, 8), (7, 30), (99, 100), (50, 50)):
        weights = each[last:step] * slower ** np.arange(step - last)
        epsilons = EPSILON * np.sqrt((1 - BETA2 ** t[last:step]) / BETA2 ** np.arange(step - last))
        weight, epsilon = due.py_func(pace, last, step)
        np.testing.assert_allclose(weight, weights.sum(), rtol=1e-6)
        assert step == last or np.isclose(epsilon, (weights * epsilons).sum() / weights.sum(), rtol=1e-6)
        assert epsilon > 0
    for short, long in zip(pace, longer, strict=True):
        assert np.array_equal(short, long[: len(short)])
