"""Ties: every metric is its mean over all orders of tied items, and lists follow a draw by key."""

from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.random_rankings import World, catalog_of, make_world
from tacit.config import Experiment
from tacit.errors import EvaluationError
from tacit.evaluation import EvaluationConfig, EvaluationOptions, evaluate
from tacit.evaluation.metrics import METRICS, Positions
from tacit.heldout import Heldout
from tacit.lab.experiments import run
from tacit.random import Key
from tacit.testing import make_clients

KS = (1, 2, 3, 5)


def metrics_of(scores: list[float], truth: list[int], seen: list[int], ks: tuple[int, ...] = KS) -> dict[str, float]:
    """Measure one person."""
    row, n = np.array([scores], np.float32), len(scores)
    heldout = Heldout(make_clients([truth], n), make_clients([seen], n))
    return evaluate(
        lambda _: row, heldout, catalog_of(n), EvaluationConfig(k=ks), Key(1), EvaluationOptions(lists=False)
    ).overall


def mean_over_orders(scores: list[float], truth: list[int], seen: list[int]) -> dict[str, float]:
    """The slow obvious way: each order of the candidates that keeps to the scores, ranked without a tie."""
    candidates = [item for item in range(len(scores)) if item not in seen]
    sums: dict[str, float] = {}
    orders = 0
    for order in permutations(candidates):
        if all(scores[a] >= scores[b] for a, b in pairwise(order)):
            orders += 1
            places = sorted(order.index(item) + 1 for item in truth if item in order)
            missing = len(truth) - len(places)
            found = Positions.at([0, len(truth)], [*places, *[10**6] * missing])
            for name, metric in METRICS.items():
                for k in KS:
                    sums[f"{name}@{k}"] = sums.get(f"{name}@{k}", 0.0) + float(metric(found, k)[0])
    return {name: total / orders for name, total in sums.items()}


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[float], list[int], list[int]]:
    n = draw(st.integers(2, 6))
    scores = draw(st.lists(st.integers(0, 3).map(float), min_size=n, max_size=n))
    items = draw(st.permutations(range(n)))
    held_out = draw(st.integers(1, n))
    seen = draw(st.integers(0, n - held_out))
    return scores, sorted(items[:held_out]), sorted(items[held_out : held_out + seen])


@pytest.mark.slow
@settings(max_examples=100)
@given(worlds())
def test_every_metric_is_its_mean_over_all_orders_of_tied_items(
    world: tuple[list[float], list[int], list[int]],
) -> None:
    expected = mean_over_orders(*world)
    found = metrics_of(*world)
    assert found.keys() == expected.keys()
    for name in expected:
        assert found[name] == pytest.approx(expected[name], abs=1e-12), name


@pytest.mark.slow
@settings(max_examples=60)
@given(st.permutations(range(6)), st.lists(st.integers(0, 2), min_size=6, max_size=6), st.integers(1, 4))
def test_no_monotone_coarsening_is_worth_more_than_expected(exact: list[int], steps: list[int], held_out: int) -> None:
    """Scores without ties are mapped by a function that never falls; each order they may have had is one person."""
    coarse = np.cumsum(steps)[exact]
    orders = np.array([order for order in permutations(range(6)) if all(np.diff(np.array(coarse)[list(order)]) <= 0)])
    scores = np.empty(orders.shape, np.float32)
    np.put_along_axis(scores, orders, np.arange(6, 0, -1, dtype=np.float32)[None], axis=1)
    truth, config = list(range(held_out)), EvaluationConfig(k=KS)
    heldout = Heldout(make_clients([truth] * len(orders), 6), make_clients([[]] * len(orders), 6))
    expected = evaluate(
        lambda rows: scores[rows], heldout, catalog_of(6), config, Key(1), EvaluationOptions(lists=False)
    ).overall
    found = metrics_of(coarse.tolist(), truth, [])
    for name in expected:
        assert found[name] <= expected[name] + 1e-12, name
        assert found[name] >= expected[name] - 1e-12, name


@pytest.mark.slow
@pytest.mark.parametrize("tied", [9, 10, 11, 19, 21, 60])
def test_tying_the_best_scores_gains_nothing(tied: int) -> None:
    """What used to pay: 19 tied best items all counted as found at k = 10, 21 as not found."""
    world = make_world(8, people=600, n_items=80, cold=False)
    rng = np.random.default_rng(0)
    world.scores = np.array([rng.permutation(80) for _ in range(600)], np.float32)
    config, key = EvaluationConfig(k=10), Key(1)
    lowest = np.sort(world.scores, axis=1)[:, -tied][:, None]
    found = evaluate(lambda rows: np.minimum(world.scores, lowest)[rows], world.heldout, world.catalog, config, key)
    drawn = []
    for _ in range(20):
        shuffled = world.scores + np.where(world.scores >= lowest, 100 * rng.random(world.scores.shape), 0)
        drawn.append(evaluate(lambda rows, s=shuffled: s[rows], world.heldout, world.catalog, config, key).overall)
    for name in found.values:
        assert found.overall[name] == pytest.approx(np.mean([one[name] for one in drawn]), rel=0.04), name


def test_all_scores_equal_is_worth_what_chance_is() -> None:
    """A catalogue of ties: P@k is the share of held-out items among the candidates, whatever their number."""
    n = 50
    for held_out in (1, 7, 50):
        found = metrics_of([0.0] * n, list(range(held_out)), [])
        assert found["Precision@5"] == pytest.approx(held_out / n)
        assert found["Recall@5"] == pytest.approx(5 / n)
    assert metrics_of([-0.0, 0.0, 0.0, -0.0], [0], [])["HR@1"] == pytest.approx(1 / 4), "-0.0 equals 0.0"


def test_large_groups_stay_exact() -> None:
    n = 20_000
    group = Positions(np.array([0, 3]), np.array([2, 2, 2]), np.full(3, n))
    hit = 1 - (n - 3 - 97) / n  # to first order, and below it
    assert METRICS["HR"](group, 100)[0] == pytest.approx(1 - np.prod([(n - 98 - i) / (n - i) for i in range(3)]))
    assert METRICS["HR"](group, 100)[0] < 3 * 98 / n < 1.1 * 3 * hit
    everything = Positions(np.array([0, n]), np.zeros(n, np.int64), np.full(n, n))
    for name in ("HR", "NDCG", "Precision", "MRR"):
        assert METRICS[name](everything, 100)[0] == pytest.approx(1.0, abs=1e-12), name


def test_tied_items_are_listed_in_an_order_drawn_by_key_for_each_person(world: World, key: Key) -> None:
    flat, config = np.zeros_like(world.scores), EvaluationConfig(k=10)
    heldout = Heldout(
        make_clients(world.truth, world.n_items, ids=world.ids),
        make_clients([[]] * len(world.truth), world.n_items, ids=world.ids),
    )

    def listed(k: Key) -> np.ndarray:
        top = evaluate(lambda rows: flat[rows], heldout, world.catalog, config, k).top
        assert top is not None
        return top

    np.testing.assert_array_equal(listed(key), listed(key))
    assert (listed(key) != listed(Key(8))).any(), "ties follow the key"
    counts = np.bincount(listed(key).ravel(), minlength=world.n_items)
    expected = counts.mean()
    assert (np.abs(counts - expected) < 6 * np.sqrt(expected)).all(), "every item is shown about equally often"


def test_hits_in_lists_are_what_the_metrics_expect(key: Key) -> None:
    world = make_world(8, people=400, n_items=40, levels=4, cold=False)
    config = EvaluationConfig(k=10)
    hits = []
    for seed in range(20):
        found = evaluate(world.score, world.heldout, world.catalog, config, Key(seed))
        assert found.top is not None
        hits.append(np.mean([len(set(found.top[u]) & set(world.truth[u])) / 10 for u in found.rows]))
    assert found.overall["Precision@10"] == pytest.approx(np.mean(hits), rel=0.01)


def test_what_is_recommended_is_what_was_evaluated() -> None:
    found = run(
        Experiment.from_options(
            {
                "seed": 5,
                "data": {"source": "town", "users": 40, "places": 60, "visits": 8},
                "method": {"name": "item-knn"},
                "evaluation": {"local_only_users": 0},
            },
            "test",
        )
    )
    assert found.evaluation is not None
    top = found.evaluation.top
    assert top is not None
    served, tied = found.recommender, 0
    for position in range(len(served.clients)):
        shown = served.recommend(served.user_ids[position], 10)
        assert [served.catalog.item_ids.index(one.item, "item") for one in shown] == top[position].tolist()
        tied += len({one.score for one in shown}) < 10
    assert tied > 10, "the lists must have ties to compare"


@pytest.mark.parametrize("protocol", ["full", "sampled-5"])
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_a_score_that_is_not_finite_is_refused(protocol: str, wrong: float, world: World, key: Key) -> None:
    scores = np.full_like(world.scores, wrong)
    with pytest.raises(EvaluationError, match="must be finite"):
        evaluate(lambda rows: scores[rows], world.heldout, world.catalog, EvaluationConfig(protocol=protocol), key)


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("protocol", ["full", "sampled-5"])
def test_a_score_too_large_for_32_bits_is_infinite(protocol: str, world: World, key: Key) -> None:
    scores = world.scores.astype(np.float64)
    scores[3, :] = 1e39
    with pytest.raises(EvaluationError, match="must be finite"):
        evaluate(lambda rows: scores[rows], world.heldout, world.catalog, EvaluationConfig(protocol=protocol), key)
