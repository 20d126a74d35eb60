"""The leak verdict: a twin that was told, one that was not, and too little evidence."""

from __future__ import annotations

import json

import numpy as np
import pytest

from helpers.random_rankings import World, make_world
from tacit.errors import EvaluationError
from tacit.evaluation import Evaluation, EvaluationConfig, EvaluationOptions, evaluate, narrow, sample_people, verdict
from tacit.random import Key

CONFIG = EvaluationConfig(k=5)


@pytest.fixture
def sample(key: Key) -> World:
    world = make_world(2, people=400, n_items=200, cold=False)
    return world.take(sample_people(world.heldout, 50, key).tolist())


def judged(world: World, scores: np.ndarray, key: Key) -> Evaluation:
    return evaluate(
        lambda rows: scores[rows], world.heldout, world.catalog, CONFIG, key, EvaluationOptions(lists=False, auc=True)
    )


def popularity(world: World) -> np.ndarray:
    counts = np.bincount([i for own in world.seen for i in own], minlength=world.n_items)
    return np.broadcast_to(counts.astype(np.float32), world.scores.shape)


def told(world: World) -> np.ndarray:
    """Items pushed down as negatives, except those held out: what leaky training looks like."""
    scores = -np.random.default_rng(0).random(world.scores.shape).astype(np.float32)
    for u, truth in enumerate(world.truth):
        scores[u, truth] += 0.7
    return scores


def test_a_twin_that_was_told_is_a_leak(sample: World, key: Key) -> None:
    leak = verdict(judged(sample, told(sample), key), judged(sample, popularity(sample), key), "NDCG@5", False)
    assert not leak.ok
    assert "must have been told" in leak.reason
    assert leak.people == 50
    assert leak.twin["AUC"] > leak.most_popular["AUC"]


def test_auc_alone_betrays_a_leak_that_the_short_list_misses(sample: World, key: Key) -> None:
    slightly = told(sample)
    for u in range(len(sample.truth)):  # the top of every list is wrong
        unseen = set(range(sample.n_items)) - set(sample.seen[u]) - set(sample.truth[u])
        slightly[u, sorted(unseen)[:6]] = 5
    leak = verdict(judged(sample, slightly, key), judged(sample, popularity(sample), key), "NDCG@5", False)
    assert leak.p_values["NDCG@5"] > 0.01
    assert not leak.ok
    assert "on AUC" in leak.reason


def test_with_item_features_a_good_twin_is_shown_and_not_condemned(sample: World, key: Key) -> None:
    leak = verdict(judged(sample, told(sample), key), judged(sample, popularity(sample), key), "NDCG@5", True)
    assert leak.ok
    assert "can be honest" in leak.reason


def test_an_ignorant_twin_is_clean(sample: World, key: Key) -> None:
    noise = np.random.default_rng(1).random(sample.scores.shape).astype(np.float32)
    better = told(sample)
    leak = verdict(judged(sample, noise, key), judged(sample, better, key), "NDCG@5", False)
    assert leak.ok
    assert (
        leak.reason
        == "Learning alone does not beat Most Popular beyond chance on NDCG@5 (p = 1) or AUC (p = 1), 50 people."
    )


def test_equal_twins_are_clean(sample: World, key: Key) -> None:
    same = judged(sample, popularity(sample), key)
    assert verdict(same, same, "NDCG@5", False).p_values == {"NDCG@5": 1.0, "AUC": 1.0}


@pytest.mark.parametrize(("people", "ok"), [(1, True), (6, True), (7, False), (30, False)])
def test_a_lead_of_the_same_size_everywhere_needs_seven_people(people: int, ok: bool) -> None:
    ids = np.arange(people)
    high, low = (Evaluation("full", (5,), ids, ids, {"NDCG@5": np.full(people, v)}, {"NDCG@5": v}) for v in (0.9, 0.1))
    assert verdict(high, low, "NDCG@5", False).ok is ok


def test_the_verdict_is_plain_json(sample: World, key: Key) -> None:
    one = judged(sample, popularity(sample), key)
    written = json.loads(json.dumps(verdict(one, one, "NDCG@5", False).to_dict()))
    assert written["ok"] is True
    assert written["twin"]["NDCG@5"] == one.overall["NDCG@5"] == written["most_popular"]["NDCG@5"]


def test_different_people_are_refused(sample: World, key: Key) -> None:
    one = judged(sample, popularity(sample), key)
    few = sample.take(list(range(20)))
    other = evaluate(
        few.score, narrow(sample.heldout, np.arange(20)), sample.catalog, CONFIG, key, EvaluationOptions(lists=False)
    )
    with pytest.raises(EvaluationError, match=r"twin' was evaluated on 50 people and 'Most Popular' on 20"):
        verdict(one, other, "NDCG@5", False)
