"""The privacy meter: it finds what is there to find, and nothing where nothing was sent."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

from tacit.privacy.meter import ObservedRows, auc, measure_exposure, presence, prior, sign

N_ITEMS, SIZE, STEPS = 400, 20, 20


def sends(pi: float, rounds: int, seed: int) -> tuple[np.ndarray, np.ndarray, ObservedRows]:
    """A client that sends as FPL does: positives with chance pi, negatives always."""
    rng = np.random.default_rng(seed)
    popularity = rng.zipf(1.6, N_ITEMS).clip(0, 1000)
    history = rng.choice(N_ITEMS, SIZE, replace=False, p=popularity / popularity.sum())
    others = np.setdiff1d(np.arange(N_ITEMS), history)
    rose, fell = np.zeros(N_ITEMS, np.int64), np.zeros(N_ITEMS, np.int64)
    for _ in range(rounds):
        drawn = rng.choice(history, STEPS)
        rose[np.unique(drawn[rng.random(STEPS) < pi])] += 1
        fell[np.unique(rng.choice(others, STEPS))] += 1
    return history, popularity, ObservedRows(rose, fell, rounds)


def index(pi: float, rounds: int, *, signs: bool = True) -> float:
    found = []
    for seed in range(8):
        history, popularity, seen = sends(pi, rounds, seed)
        evidence = presence(seen, SIZE, pi, STEPS) + (sign(seen) if signs else 0.0)
        found.append(measure_exposure(history, popularity, evidence).leak_index)
    return float(np.mean(found))


def test_everything_in_clear_is_found_out() -> None:
    assert index(1.0, 10) > 0.95


def test_a_small_pi_only_takes_longer() -> None:
    assert index(0.1, 2) < index(0.1, 10) < index(0.1, 100)
    assert index(0.1, 100) > 0.95


def test_absence_is_evidence_too() -> None:
    """With pi = 0 no item of the history is ever sent; in the end these are the items that never occur."""
    assert index(0.0, 2, signs=False) < 0.4
    assert index(0.0, 200, signs=False) > 0.9


def test_an_empty_ledger_reveals_no_more_than_popularity() -> None:
    history, popularity, _ = sends(1.0, 1, 0)
    found = measure_exposure(history, popularity, np.zeros(N_ITEMS))
    assert found.leak_index == 0.0
    assert found.auc == found.auc_popularity
    assert found.named == 0


def test_what_is_named_is_counted() -> None:
    history, popularity, seen = sends(1.0, 20, 1)
    found = measure_exposure(history, popularity, presence(seen, SIZE, 1.0, STEPS) + sign(seen))
    assert found.named == found.accused == found.items == SIZE
    assert found.precision == found.tpr_at_1 == 1.0


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=40))
@settings(max_examples=80)
def test_auc_is_the_mann_whitney_statistic(pairs: list[tuple[int, bool]]) -> None:
    belief, own = np.array([float(b) for b, _ in pairs]), np.array([h for _, h in pairs])
    if own.all() or not own.any():
        assert auc(belief, own) == 0.5
        return
    expected = mannwhitneyu(belief[own], belief[~own]).statistic / (own.sum() * (~own).sum())
    assert auc(belief, own) == pytest.approx(expected)


def test_a_prior_expects_as_many_items_as_the_history_has() -> None:
    popularity = np.arange(1, 201)
    chance = 1.0 / (1.0 + np.exp(-prior(popularity, 10)))
    assert chance.sum() == pytest.approx(10, rel=1e-6)
    assert (np.diff(chance) > 0).all()


def test_extremes_stay_finite() -> None:
    everything = ObservedRows(np.full(5, 3), np.zeros(5, np.int64), 3)
    assert np.isfinite(presence(everything, 5, 1.0, 10)).all()
    assert np.isfinite(prior(np.zeros(5), 5)).all()
    found = measure_exposure(np.arange(5), np.zeros(5), sign(everything))
    assert found.auc == 0.5
    assert found.items == 5
