"""Gradients of losses against finite differences of their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.reference_losses import loss_of
from tacit.kernels.losses import LOSSES, residuals

EVERY_LOSS = pytest.mark.parametrize("loss", LOSSES)


def _found(loss, z, y, kind=np.uint32, behind=3):
    """Return the gradients of a batch and their sum, with room behind its last sample."""
    samples = (np.arange(len(y)) << 1 | y).astype(kind)
    scores = np.append(z, np.full(behind, 7)).astype(np.float32)
    total = residuals(LOSSES[loss], samples, scores)
    assert not scores[len(y) :].any(), "what stands behind the last sample moves nothing"
    return scores[: len(y)], total


@EVERY_LOSS
@pytest.mark.parametrize("kind", [np.uint32, np.uint64])
def test_gradients_are_those_of_the_loss(loss, kind):
    rng = np.random.default_rng(0)
    for n in (2, 7, 64):
        z, y = rng.normal(0, 2, n), (rng.random(n) < 0.3).astype(int)
        y[:2] = 0, 1
        found, total = _found(loss, z, y, kind)
        for k in range(n):
            step = np.eye(n)[k] * 1e-6
            expected = (loss_of(loss, z + step, y) - loss_of(loss, z - step, y)) / 2e-6
            assert found[k] == pytest.approx(expected, abs=1e-6)
        assert total == pytest.approx(found.sum() if loss == "bce" else 0, abs=1e-6)


@EVERY_LOSS
@pytest.mark.parametrize("label", [0, 1])
def test_a_batch_of_one_kind(loss, label):
    found, total = _found(loss, np.array([0.5, -1.0]), np.full(2, label))
    assert found.any() == (loss == "bce"), "there is nothing to compare"
    assert bool(total) == (loss == "bce")


@EVERY_LOSS
@pytest.mark.parametrize(
    ("z", "y"), [([-300, 300, 0, -90], [1, 0, 0, 1]), ([100, 0, -5], [1, 1, 0]), ([200, 100, 0], [1, 1, 0])]
)
def test_far_scores_are_right_too(loss, z, y):
    z, y = np.array(z, float), np.array(y)
    found, _ = _found(loss, z, y)
    for k in range(len(z)):
        step = np.eye(len(z))[k] * 1e-5
        expected = (loss_of(loss, z + step, y) - loss_of(loss, z - step, y)) / 2e-5
        assert found[k] == pytest.approx(expected, abs=1e-5)


@EVERY_LOSS
def test_a_score_that_is_no_number_does_not_go_unseen(loss):
    found, _ = _found(loss, np.array([np.nan, 1.0, 0.0]), np.array([1, 0, 1]))
    assert np.isnan(found).any()
