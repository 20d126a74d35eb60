"""Centralised GMF, MLP and NeuMF on MovieLens 100K beside the figures published with FedNCF (HR@10 / NDCG@10).

Leave-last-out, each held-out item against 100 unseen items, clean negatives, the model at the end of training: the
number of epochs was chosen on a validation item before the last, never on the test items.
"""

from __future__ import annotations

import numpy as np
import pytest

from tacit.data import SplitConfig, load, split
from tacit.evaluation import EvaluationConfig, EvaluationOptions, evaluate
from tacit.methods.base import build
from tacit.random import Key

pytestmark = [pytest.mark.data, pytest.mark.slow]


@pytest.fixture
def parts(real_data):
    real_data("ml-100k")
    return split(load("ml-100k"), SplitConfig(kind="leave-last-out"), Key(0))


def _figures(name, parts, seed, protocol):
    method = build(name)
    for model in method.fit(parts.train, parts.catalog, Key(seed).child("learn")):
        last = model

    def score(positions):
        part = last.take(positions)
        return method.score(part.shared, part.private, parts.train.take(positions))

    config = EvaluationConfig(protocol=protocol)
    found = evaluate(
        score, parts.test, parts.catalog, config, Key(0).child("candidates"), EvaluationOptions(lists=False)
    )
    return found.mean("HR@10"), found.mean("NDCG@10")


@pytest.mark.parametrize(
    ("name", "hr", "ndcg", "published", "seeds"),
    [
        ("gmf", 0.66, 0.385, (0.68, 0.42), (1, 2, 3)),
        ("neumf", 0.67, 0.385, (0.69, 0.42), (1, 2, 3)),
        ("mlp", 0.63, 0.365, (0.61, 0.35), (1,)),
    ],
)
def test_centralised_models_reach_the_published_level(name, hr, ndcg, published, seeds, parts):
    figures = [_figures(name, parts, seed, "sampled-100") for seed in seeds]
    mean = np.mean(figures, axis=0)
    assert mean[0] >= hr, f"{name}: HR@10 {mean[0]:.3f} over {len(figures)} seeds, published {published[0]}"
    assert mean[1] >= ndcg, f"{name}: NDCG@10 {mean[1]:.3f}, published {published[1]}"
    assert mean[0] < published[0] + 0.1, f"{name}: HR@10 {mean[0]:.3f} is too good to be honest"


def test_multi_vae_ranks_like_ease(parts):
    hr, ndcg = _figures("multi-vae", parts, 1, "full")
    assert hr >= 0.16, f"full ranking, HR@10 {hr:.3f} (EASE: .18)"
    assert ndcg >= 0.08, f"full ranking, NDCG@10 {ndcg:.3f} (EASE: .10)"
