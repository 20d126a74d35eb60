"""Metrics of the lists, each worked by hand on four people, six items."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.random_rankings import catalog_of
from tacit.evaluation import EvaluationConfig, evaluate
from tacit.evaluation.heldout import open_heldout
from tacit.evaluation.lists import bias_disparity, gini, imbalance, pop_reo, pop_rsp, shannon_entropy, short_head
from tacit.evaluation.population import measure_lists
from tacit.heldout import Heldout
from tacit.random import Key
from tacit.testing import make_clients
from tacit.types import Catalog, Labels, Vocabulary

# popularity: item 0: 4, 1: 3, 2: 1, 3: 1, 4: 1, 5: 0; 10 interactions, so the head (8) is items 0, 1 and 2
SEEN = [[0, 1], [0, 1, 2], [0, 1, 3], [0, 4]]
TRUTH = [[2], [3, 4], [2, 5], [1]]
TOP = np.array([[2, 3], [4, 5], [2, 4], [1, -1]], np.int32)
CATEGORIES = Labels(np.arange(7), np.array([0, 0, 0, 1, 1, 1], np.int32), ["bar", "park", "unused"])


@pytest.fixture
def measured() -> dict[str, float]:
    heldout = Heldout(make_clients(TRUTH, 6), make_clients(SEEN, 6))
    catalog = catalog_of(6)
    return measure_lists(TOP, open_heldout(heldout, catalog), catalog, (1, 2)).metrics


def test_item_coverage(measured: dict[str, float]) -> None:
    assert measured["ItemCoverage@1"] == 3  # 2, 4, 1
    assert measured["ItemCoverage@2"] == 5  # and 3, 5
    assert measured["ItemCoverageRatio@2"] == pytest.approx(5 / 6)


def test_gini(measured: dict[str, float]) -> None:
    # at 2: counts of items 0..5 are 0, 1, 2, 1, 2, 1; ascending 0 1 1 1 2 2 with weights -5 -3 -1 1 3 5, total 7
    assert measured["Gini@2"] == pytest.approx(1 - (-3 - 1 + 1 + 6 + 10) / (5 * 7))
    # at 1: 0 0 0 1 1 2 with the same weights: 1 + 3 + 10 = 14; total 4
    assert measured["Gini@1"] == pytest.approx(1 - 14 / 20)


def test_gini_of_recommended_items_only_is_the_definition_to_the_letter() -> None:
    assert gini(np.array([1, 1, 2])) == pytest.approx(1 - (-2 + 0 + 4) / (2 * 4))
    assert gini(np.array([4])) == gini(np.zeros(3, int)) == 0.0, "a single item, or none, is concentration"


def test_shannon_entropy(measured: dict[str, float]) -> None:
    assert measured["ShannonEntropy@1"] == pytest.approx(0.5 * np.log(2) + 2 * 0.25 * np.log(4))
    assert shannon_entropy(np.full(8, 3)) == pytest.approx(np.log(8))
    assert shannon_entropy(np.zeros(3, int)) == 0.0


def test_the_short_head_holds_four_fifths() -> None:
    assert short_head(np.array([4, 3, 1, 1, 1, 0])).tolist() == [True, True, True, False, False, False]
    assert short_head(np.array([9, 1])).tolist() == [True, False]
    assert short_head(np.array([7, 3])).tolist() == [True, True], "7 of 10 is not yet four fifths"
    assert short_head(np.array([0, 0])).tolist() == [False, False]


def test_aclt(measured: dict[str, float]) -> None:
    assert measured["ACLT@2"] == pytest.approx((1 + 2 + 1 + 0) / 4)  # tail: 3, 4, 5
    assert measured["ACLT@1"] == pytest.approx(1 / 4)


def test_pop_reo(measured: dict[str, float]) -> None:
    # at 2 the head finds 2, 2, 1 of held-out 2, 2, 1; the tail finds 4 of held-out 3, 4, 5
    assert measured["PopREO@2"] == pytest.approx(np.std([1, 1 / 3]) / np.mean([1, 1 / 3]))
    assert measured["PopREO@1"] == pytest.approx(np.std([1, 1 / 3]) / np.mean([1, 1 / 3]))


def test_pop_rsp(measured: dict[str, float]) -> None:
    # candidates: head 4 * 3 - 8 = 4, tail 4 * 3 - 2 = 10; at 2 lists hold head 3, tail 4
    assert measured["PopRSP@2"] == pytest.approx(np.std([3 / 4, 4 / 10]) / np.mean([3 / 4, 4 / 10]))
    assert measured["PopRSP@1"] == pytest.approx(np.std([3 / 4, 1 / 10]) / np.mean([3 / 4, 1 / 10]))


def test_only_popular_items_is_one_and_equal_shares_are_zero() -> None:
    assert imbalance(np.array([0.4, 0.0])) == 1.0
    assert imbalance(np.array([0.2, 0.2])) == 0.0
    assert imbalance(np.array([0.0, 0.0])) == 0.0, "no list found anything: no group is favoured"


def test_a_missing_group_leaves_the_metric_undefined() -> None:
    is_head, top = np.array([True, True]), np.array([[0]])
    assert pop_reo(top, np.array([[True]]), np.array([0]), is_head) is None
    assert pop_rsp(top, np.array([0, 1]), is_head) is None


def test_an_undefined_metric_is_left_out_with_a_note() -> None:
    heldout = Heldout(make_clients([[1], [1]], 3), make_clients([[0], [0]], 3))
    found = evaluate(
        lambda rows: np.zeros((len(rows), 3), np.float32), heldout, catalog_of(3), EvaluationConfig(k=1), Key(1)
    )
    assert "PopREO@1" not in found.overall, "no popular item is held out"
    assert any(note.startswith("PopREO@1 is undefined") for note in found.notes)


def test_bias_disparity() -> None:
    heldout = Heldout(make_clients(TRUTH, 6), make_clients(SEEN, 6))
    catalog = Catalog(Vocabulary(np.arange(6)), categories=CATEGORIES)
    bias = measure_lists(TOP, open_heldout(heldout, catalog), catalog, (2,)).bias[2]
    assert bias.names == ["bar", "park"], "a category without items is left out"
    # histories: bar 8 of 10, park 2 of 10; each is half of the catalogue; lists: bar 3 of 7, park 4 of 7
    np.testing.assert_allclose(bias.source, [1.6, 0.4])
    np.testing.assert_allclose(bias.recommended, [6 / 7, 8 / 7])
    np.testing.assert_allclose(bias.disparity, [(6 / 7 - 1.6) / 1.6, (8 / 7 - 0.4) / 0.4])


def test_bias_disparity_of_a_category_outside_all_histories_is_unknown() -> None:
    labels = Labels(np.array([0, 1, 3]), np.array([0, 0, 1], np.int32), ["a", "b"])  # item 1 is in both
    bias = bias_disparity(np.array([1, 1]), np.array([2, 0]), labels)
    np.testing.assert_allclose(bias.source, [1.0, 0.0])
    np.testing.assert_allclose(bias.recommended, [1.0, 1.0])
    assert bias.to_dict()["b"]["disparity"] is None
    assert bias.to_dict()["a"]["disparity"] == 0.0
