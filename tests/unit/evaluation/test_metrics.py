"""Accuracy metrics: doctests, agreement with ranx, and tied groups larger than the list."""

from __future__ import annotations

import doctest
import importlib
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from helpers.random_rankings import World, make_world
from helpers.waiting import LONG
from tacit.evaluation import EvaluationConfig, evaluate
from tacit.evaluation.metrics import METRICS, Positions, accuracy
from tacit.random import Key

RANX = {
    "HR": "hit_rate",
    "NDCG": "ndcg",
    "Precision": "precision",
    "Recall": "recall",
    "F1": "f1",
    "MAP": "map",
    "MRR": "mrr",
}


@pytest.mark.parametrize("module", ["metrics", "lists", "result", "compare", "leak"])
def test_hand_worked_examples(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"tacit.evaluation.{module}"))
    assert result.attempted > 0
    assert result.failed == 0


def without_ties(seed: int) -> World:
    world = make_world(seed, people=150, n_items=60, cold=False)
    rng = np.random.default_rng(seed)
    world.scores = np.array([rng.permutation(60) for _ in range(150)], np.float32)
    return world


# ranx compiles for a minute; without compilation it takes seconds, but the switch is one of the whole process
RANX_ALONE = """
import json, sys, ranx
given = json.load(sys.stdin)
found = ranx.evaluate(ranx.Qrels(given["qrels"]), ranx.Run(given["run"]), given["metrics"], return_mean=False)
json.dump({name: values.tolist() for name, values in found.items()}, sys.stdout)
"""


@pytest.mark.slow
def test_metrics_agree_with_ranx(key: Key) -> None:
    world, ks = without_ties(0), (1, 5, 10, 60)
    found = evaluate(world.score, world.heldout, world.catalog, EvaluationConfig(k=ks), key)
    candidates = {u: sorted(set(range(world.n_items)) - set(world.seen[u])) for u in found.rows.tolist()}
    given = {
        "qrels": {f"u{u:03}": {f"i{i}": 1 for i in world.truth[u]} for u in candidates},
        "run": {f"u{u:03}": {f"i{i}": float(world.scores[u, i]) for i in own} for u, own in candidates.items()},
        "metrics": [f"{name}@{k}" for name in RANX.values() for k in ks],
    }
    answer = subprocess.run(
        [sys.executable, "-c", RANX_ALONE],
        input=json.dumps(given),
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=LONG,
    )
    theirs = json.loads(answer.stdout)
    assert len(theirs) == 28
    for name, other in RANX.items():
        for k in ks:
            np.testing.assert_allclose(
                found.values[f"{name}@{k}"], theirs[f"{other}@{k}"], rtol=0, atol=1e-9, err_msg=f"{name}@{k}"
            )


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_a_tied_group_larger_than_the_list_never_exceeds_one(k: int) -> None:
    for size in range(1, 12):
        place = (size + 1) / 2  # all held out, all tied, nobody else
        found = Positions(np.array([0, size]), np.full(size, place))
        for name, metric in METRICS.items():
            assert 0 <= metric(found, k)[0] <= 1, (name, size)


@pytest.mark.parametrize("k", [1, 3])
def test_of_two_tied_for_the_last_place_one_is_in_the_list(k: int) -> None:
    one = Positions(np.array([0, 1]), np.array([k + 0.5]))
    both = Positions(np.array([0, 2]), np.array([k + 0.5, k + 0.5]))
    assert [METRICS[name](one, k)[0] for name in ("HR", "Recall")] == [0.5, 0.5]
    assert METRICS["Precision"](one, k)[0] == 0.5 / k
    assert METRICS["HR"](both, k)[0] == 1.0
    assert METRICS["Precision"](both, k)[0] == 1 / k


def test_ties_are_worth_what_random_orders_give_on_average(key: Key) -> None:
    world, config = make_world(8, people=400, n_items=40, levels=12, cold=False), EvaluationConfig(k=(5, 10))
    tied, with_ties = evaluate(world.score, world.heldout, world.catalog, config, key), world.scores
    rng, runs = np.random.default_rng(0), []
    for _ in range(30):
        world.scores = with_ties + rng.permuted(np.tile(np.linspace(0, 0.4, 40, dtype=np.float32), (400, 1)), axis=1)
        runs.append(evaluate(world.score, world.heldout, world.catalog, config, key).overall)
    for name in ("HR@5", "Precision@5", "Recall@5", "HR@10", "Precision@10", "Recall@10"):
        assert tied.overall[name] == pytest.approx(np.mean([found[name] for found in runs]), rel=0.02), name


def test_sampled_metrics_are_of_each_item_alone_then_averaged() -> None:
    found = Positions(np.array([0, 3, 4]), np.array([1.0, 2.5, np.inf, 3.0]))
    values = accuracy(found, (2, 3), apart=True)
    assert values["HR@2"].tolist() == pytest.approx([1.5 / 3, 0])
    assert values["HR@3"].tolist() == pytest.approx([2 / 3, 1])
    assert values["Recall@3"].tolist() == values["HR@3"].tolist()
    assert values["Precision@3"].tolist() == pytest.approx([2 / 9, 1 / 3])
    assert values["MRR@3"].tolist() == pytest.approx([(1 + 0.4) / 3, 1 / 3])
    assert values["MAP@3"].tolist() == pytest.approx([(1 + 0.4) / 3, 1 / 3])
    assert values["NDCG@3"].tolist() == pytest.approx([(1 + 1 / np.log2(3.5)) / 3, 0.5])
    assert values["F1@3"].tolist() == pytest.approx([0.5 * 2 / 3, 0.5])


def test_held_out_items_beyond_the_longest_list_do_not_count_in_a_shorter_one(key: Key) -> None:
    world = without_ties(3)
    short = evaluate(world.score, world.heldout, world.catalog, EvaluationConfig(k=5), key)
    both = evaluate(world.score, world.heldout, world.catalog, EvaluationConfig(k=(5, 50)), key)
    for name in short.values:
        np.testing.assert_array_equal(short.values[name], both.values[name])
