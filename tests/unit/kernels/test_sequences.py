"""Sums over steps, against the products of S and T written out."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.kernels.sequences import add_step_pairs, direction_rows, regression_rows
from tacit.methods.parts.order import Decays

N_ITEMS, WIDTH = 12, 21  # wide enough for each of the widths that kernels take at a time
HISTORIES = [[3, 1, 7, 0, 9, 4], [2], [], [5, 6], [11, 3, 8]]
PTR = np.cumsum([0, *map(len, HISTORIES)])
ITEMS = np.array([item for one in HISTORIES for item in one], np.int32)
SHARES = np.array([0.5, 1.0, 1.0, 0.25, 1.0], np.float32)
SCALE = np.float32(2**20)


def sources_and_targets(history: list[int], decays: Decays) -> tuple[np.ndarray, np.ndarray]:
    """S and T of one history, a row for every step that something follows."""
    steps = range(len(history) - 1)
    sources, targets = np.zeros((len(steps), N_ITEMS)), np.zeros((len(steps), N_ITEMS))
    for t in steps:
        for j in range(t + 1):
            sources[t, history[j]] += decays.a ** (t - j)
        for k in range(t + 1, len(history)):
            targets[t, history[k]] += decays.b ** (k - t - 1)
    return sources, targets


@pytest.mark.parametrize("decays", [Decays(3.0, 1.0), Decays(8.0, 0.0), Decays(0.5, 20.0)])
def test_rows_are_those_of_the_products_written_out(decays: Decays) -> None:
    rng = np.random.default_rng(3)
    table = rng.normal(size=(N_ITEMS, WIDTH)).astype(np.float32)
    near, far = decays.units
    steps = np.array(decays.units, np.float32), np.float32(decays.a), np.float32(decays.b)
    places = rng.permutation(len(ITEMS))
    led, solved = np.zeros((len(ITEMS), WIDTH), np.float32), np.zeros((len(ITEMS), 2 * WIDTH), np.float32)
    direction_rows(PTR, ITEMS, places, SHARES, *steps, table, SCALE, led)
    regression_rows(PTR, ITEMS, places, SHARES, *steps, table, SCALE, solved)
    gram, cross = np.zeros((N_ITEMS, N_ITEMS)), np.zeros((N_ITEMS, N_ITEMS))
    for c, history in enumerate(HISTORIES):
        s, t = sources_and_targets(history, decays)
        gram, cross = gram + SHARES[c] * s.T @ s, cross + SHARES[c] * s.T @ t
        rows = places[PTR[c] : PTR[c + 1]]
        expected = SHARES[c] * np.hstack([near * s.T @ s @ table, far * t.T @ s @ table])[history]
        np.testing.assert_allclose(solved[rows], expected, atol=1e-5)
        np.testing.assert_allclose(led[rows], SHARES[c] * far * (s.T @ t @ table)[history], atol=1e-5)
    found = np.zeros_like(gram), np.zeros_like(cross)
    add_step_pairs(PTR, ITEMS, SHARES.astype(np.float64), *decays.tables(6), *found)
    np.testing.assert_allclose(found[0], gram, atol=1e-6)
    np.testing.assert_allclose(found[1], cross, atol=1e-6)


@pytest.mark.parametrize(("kernel", "width"), [(direction_rows, WIDTH), (regression_rows, 2 * WIDTH)])
def test_rows_added_at_once_are_the_rows_written_rounded_and_added(kernel, width: int) -> None:
    rng, decays = np.random.default_rng(4), Decays(3.0, 1.0)
    table = rng.normal(size=(N_ITEMS, WIDTH)).astype(np.float32)
    steps = np.array(decays.units, np.float32), np.float32(decays.a), np.float32(decays.b)
    rows, sums = np.zeros((len(ITEMS), width), np.float32), np.zeros((N_ITEMS, width), np.int64)
    kernel(PTR, ITEMS, np.arange(len(ITEMS)), SHARES, *steps, table, SCALE, rows)
    kernel(PTR, ITEMS, ITEMS, SHARES, *steps, table, SCALE, sums)
    expected = np.zeros_like(sums)
    np.add.at(expected, ITEMS, np.rint(rows * SCALE).astype(np.int64))
    assert np.array_equal(sums, expected)


def test_rows_have_the_bits_of_plain_recursions() -> None:
    decays = Decays(3.0, 1.0)
    table = np.random.default_rng(5).normal(size=(N_ITEMS, WIDTH)).astype(np.float32)
    units, a, b = np.array(decays.units, np.float32), np.float32(decays.a), np.float32(decays.b)
    led, solved = np.zeros((len(ITEMS), WIDTH), np.float32), np.zeros((len(ITEMS), 2 * WIDTH), np.float32)
    places = np.arange(len(ITEMS))
    direction_rows(PTR, ITEMS, places, SHARES, units, a, b, table, SCALE, led)
    regression_rows(PTR, ITEMS, places, SHARES, units, a, b, table, SCALE, solved)
    expected_led, expected = np.zeros_like(led), np.zeros_like(solved)
    for c, history in enumerate(HISTORIES):
        near, far = SHARES[c] * units
        rows = range(PTR[c], PTR[c + 1])
        reached, ahead, sources = np.zeros((3, WIDTH), np.float32), np.zeros(WIDTH, np.float32), {}
        for row, item in zip(rows, history, strict=True):
            reached[0] = b * reached[0] + reached[1]
            expected[row, WIDTH:] = far * reached[0]
            reached[1] = a * reached[1] + table[item]
            sources[row] = near * reached[1]
        for row, item in zip(reversed(rows), reversed(history), strict=True):
            reached[2] = a * reached[2] + ahead
            expected_led[row] = far * reached[2]
            ahead = b * ahead + table[item]
        back = np.zeros(WIDTH, np.float32)
        for row in reversed(rows[:-1]):
            back = a * back + sources[row]
            expected[row, :WIDTH] = back
    assert np.array_equal(led, expected_led)
    assert np.array_equal(solved, expected)
