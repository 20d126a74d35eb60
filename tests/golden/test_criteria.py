"""Alice and Bob (Ferrara's thesis, examples 5.1 and 5.2) to the digit."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.protocols.criteria import mean_score, priority_score

SIZE, DIVERSITY, SHARPNESS = np.array([0.9, 0.1]), np.array([0.2, 0.8]), np.array([0.4, 0.5])  # Alice, Bob


def test_example_5_1_weights_by_the_mean() -> None:
    scores = mean_score(np.array([SIZE, DIVERSITY, SHARPNESS]))
    assert (scores * 3).round(12).tolist() == [1.5, 1.4]
    assert (scores / scores.sum()).round(2).tolist() == [0.52, 0.48]


@pytest.mark.parametrize(
    ("order", "scores"),
    [((SIZE, DIVERSITY, SHARPNESS), [1.152, 0.22]), ((SHARPNESS, DIVERSITY, SIZE), [0.552, 0.94])],
    ids=["size first", "sharpness first"],
)
def test_example_5_2_the_order_decides(order: tuple[np.ndarray, ...], scores: list[float]) -> None:
    assert priority_score(np.array(order)).round(12).tolist() == scores
