"""Accuracy metrics agree with ranx; ties are in test_ties.py."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.random_rankings import World, make_world
from helpers.ranx_alone import ask_ranx
from tacit.evaluation import EvaluationConfig, evaluate
from tacit.evaluation.metrics import Positions, accuracy_metrics
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


def without_ties(seed: int) -> World:
    world = make_world(seed, people=150, n_items=60, cold=False)
    rng = np.random.default_rng(seed)
    world.scores = np.array([rng.permutation(60) for _ in range(150)], np.float32)
    return world


EVALUATE = """
scored = ranx.evaluate(ranx.Qrels(given["qrels"]), ranx.Run(given["run"]), given["metrics"], return_mean=False)
found = {name: values.tolist() for name, values in scored.items()}
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
    theirs = ask_ranx(EVALUATE, given)
    assert len(theirs) == 28
    for name, other in RANX.items():
        for k in ks:
            np.testing.assert_allclose(
                found.values[f"{name}@{k}"], theirs[f"{other}@{k}"], rtol=0, atol=1e-9, err_msg=f"{name}@{k}"
            )


def test_sampled_metrics_are_of_each_item_alone_then_averaged() -> None:
    better, tied = np.array([0, 1, 9, 2]), np.array([1, 2, 1, 1])  # places: 1; 2 or 3; 10; and of another person 3
    values = accuracy_metrics(Positions(np.array([0, 3, 4]), better, tied), (2, 3), apart=True)
    gain = (1 / np.log2(3) + 1 / 2) / 2
    assert values["HR@2"].tolist() == pytest.approx([1.5 / 3, 0])
    assert values["HR@3"].tolist() == pytest.approx([2 / 3, 1])
    assert values["Recall@3"].tolist() == values["HR@3"].tolist()
    assert values["Precision@3"].tolist() == pytest.approx([2 / 9, 1 / 3])
    assert values["MRR@3"].tolist() == pytest.approx([(1 + 5 / 12) / 3, 1 / 3])
    assert values["MAP@3"].tolist() == pytest.approx([(1 + 5 / 12) / 3, 1 / 3])
    assert values["NDCG@3"].tolist() == pytest.approx([(1 + gain) / 3, 0.5])
    assert values["F1@3"].tolist() == pytest.approx([0.5 * 2 / 3, 0.5])


def test_held_out_items_beyond_the_longest_list_do_not_count_in_a_shorter_one(key: Key) -> None:
    world = without_ties(3)
    short = evaluate(world.score, world.heldout, world.catalog, EvaluationConfig(k=5), key)
    both = evaluate(world.score, world.heldout, world.catalog, EvaluationConfig(k=(5, 50)), key)
    for name in short.values:
        np.testing.assert_array_equal(short.values[name], both.values[name])
