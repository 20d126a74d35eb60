"""Averages, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.methods.parts.aggregation import AVERAGES, LONG_HISTORY
from tacit.updates import Ring, Total

RING = Ring()


def averaged(rule: str, moves: dict[int, float], samples: list[int], shrink: float = 0.0) -> float:
    """Average one number that only some of the people have moved, as devices and a server do it."""
    average = AVERAGES[rule]
    rows, layers = average.weights(np.array(samples), RING)
    total = sum(rows[person] * move for person, move in moves.items())
    sums, counts = np.array([[total]], np.float32), np.array([len(moves)])
    return float(average.rows(sums, counts, len(samples), float(layers.sum()), shrink)[0, 0])


@pytest.mark.parametrize(("rule", "expected"), [("simple-avg", 0.0435), ("fedavg", 0.0433), ("mf-fedavg", 0.047)])
def test_the_example_of_the_paper(rule: str, expected: float) -> None:
    """Two people, of 150 and 170 interactions; the first alone moves an item from 0.04 to 0.047."""
    assert 0.04 + averaged(rule, {0: 0.007}, [150, 170]) == pytest.approx(expected, abs=5e-5)


def test_shrinkage_believes_few_people_less() -> None:
    assert averaged("mf-fedavg", {0: 0.6}, [10, 10, 10], shrink=2) == pytest.approx(0.2)
    assert averaged("mf-fedavg", {0: 0.6, 1: 0.6, 2: 0.6}, [10, 10, 10], shrink=2) == pytest.approx(0.36)
    assert averaged("simple-avg", {0: 0.6}, [10, 10, 10], shrink=1) == pytest.approx(0.15)
    assert averaged("fedavg", {0: 0.6}, [20, 10, 30], shrink=1) == pytest.approx(0.6 * 20 / 80)


@pytest.mark.parametrize("rule", AVERAGES)
def test_an_empty_sum_moves_nothing(rule: str) -> None:
    average = AVERAGES[rule]
    assert not average.rows(np.zeros((3, 2), np.float32), np.zeros(3, int), 0, 0.0).any()
    assert not average.rows(np.zeros((3, 2), np.float32), np.zeros(3, int), 5, 1.0, 0.5).any()
    assert not average.layers(np.zeros(4, np.float32), 0.0).any()


@pytest.mark.parametrize("fraction", [4, 12, 20, 23])
def test_weights_lie_on_the_grid_and_fit(fraction: int) -> None:
    ring = Ring(fraction=fraction)
    samples = np.array([0, 1, 20, 737, LONG_HISTORY, 10 * LONG_HISTORY])
    _, weights = AVERAGES["mf-fedavg"].weights(samples, ring)
    steps = weights.astype(np.float64) * float(ring.scale)
    assert np.array_equal(steps, np.rint(steps))
    assert weights[0] == 0
    assert weights[1] > 0, "a client with one sample still counts"
    assert weights[-1] == weights[-2] == ring.largest
    if fraction >= 12:
        assert weights[3] / weights[2] == pytest.approx(737 / 20)


@pytest.mark.parametrize("rule", AVERAGES)
def test_an_absent_row_is_a_move_of_zero_where_all_clients_count(rule: str) -> None:
    total = Total.zero({"items": (3, 2), "layers": (1, 4)})
    total.counts["items"][1], total.n_clients = 1, 5
    for weight in (0, 1):
        total.sums["layers"][0, -1] = weight * int(RING.scale)
        moves, received = AVERAGES[rule].moves(total, RING)
        assert moves.keys() == received.keys() == {"items", "layers"}
        assert received["items"].tolist() == ([False, True, False] if rule == "mf-fedavg" else [True] * 3)
        assert received["layers"].tolist() == [weight > 0]
    total.n_clients = total.counts["items"][1] = 0
    assert not AVERAGES[rule].moves(total, RING)[1]["items"].any()
