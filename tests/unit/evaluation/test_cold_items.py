"""Items without a training row: which they are, and how they are measured apart."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.data import SplitConfig, load, split
from tacit.errors import ConfigError, EvaluationError
from tacit.evaluation import EvaluationConfig, evaluate_cold_items
from tacit.heldout import Heldout
from tacit.random import Key
from tacit.testing import make_clients
from tacit.types import Catalog, Vocabulary

TOWN = load("town", users=60, places=50)
KEY = Key(3)


def cold_split(**given: object) -> tuple[object, dict[str, set[int]]]:
    parts = split(TOWN, SplitConfig.from_options({"cold_items": 0.2, **given}, "split"), KEY)
    return parts, {part: set(items.tolist()) for part, items in parts.cold.items()}


@pytest.mark.parametrize("kind", ["temporal", "random", "global-time", "leave-last-out"])
def test_cold_items_have_no_training_row_and_all_their_rows_are_held_out(kind: str) -> None:
    parts = split(TOWN, SplitConfig(kind=kind, cold_items=0.2), KEY)  # type: ignore[arg-type]
    cold = parts.cold["test"]
    assert len(cold) == TOWN.n_items // 5
    assert not np.isin(parts.train.items, cold).any()
    truth, _ = parts.test.open()
    if kind == "global-time":  # new users are not tested
        assert np.isin(cold, truth.items).any()
        return
    held = np.isin(truth.items, cold).sum()
    assert held == np.isin(TOWN.interactions.items, cold).sum()
    assert len(truth.items) > held, "other items are tested too"


def test_a_validation_part_has_cold_items_of_its_own_and_changes_none_of_the_test() -> None:
    parts, cold = cold_split(validation=True)
    _, without = cold_split()
    assert cold["test"] == without["test"]
    assert not cold["test"] & cold["validation"]
    assert len(cold["validation"]) == len(cold["test"])
    assert not np.isin(parts.train.items, [*cold["test"], *cold["validation"]]).any()  # type: ignore[attr-defined]


def test_without_a_validation_part_no_item_is_cold_in_it() -> None:
    for none in (False, 0.0):
        assert set(cold_split(validation=none)[1]) == {"test"}


def test_which_items_are_cold_follows_from_the_seed() -> None:
    drawn = [split(TOWN, SplitConfig(cold_items=0.2), Key(seed)).cold["test"].tolist() for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(
    "given",
    [{"kind": "given"}, {"targets": "next"}, {"catalog": "train"}, {"cold_items": 0.6, "validation": True}],
    ids=str,
)
def test_splits_that_cannot_hold_out_whole_items_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="cold_items"):
        SplitConfig.from_options({"cold_items": 0.2, **given}, "split")


def test_a_share_below_one_item_is_refused() -> None:
    with pytest.raises(ConfigError, match="cold_items"):
        split(TOWN, SplitConfig(cold_items=0.001), KEY)


SCORES = np.array([[5.0, 4.0, 3.0, 2.0, 1.0], [5.0, 4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0, 5.0]], np.float32)
CATALOG = Catalog(Vocabulary(np.arange(5)))
COLD = np.array([3, 4], np.int32)


def measure(truth: list[list[int]], seen: list[list[int]]) -> dict[str, float]:
    heldout = Heldout(make_clients(truth, 5), make_clients(seen, 5))
    config = EvaluationConfig(k=(1, 2))
    return evaluate_cold_items(lambda rows: SCORES[rows], heldout, CATALOG, COLD, config, KEY)


def test_cold_items_are_ranked_among_all_and_among_themselves() -> None:
    """By hand: the first user has item 3 third of four unseen ones; the second has both; the third has no cold item."""
    found = measure([[3], [1, 3, 4], [1]], [[0], [2], [0]])
    assert found["ColdRecall@2"] == 0.0  # items 1 and 2, then 0 and 1, come first
    assert found["ColdAloneRecall@1"] == pytest.approx((1.0 + 0.5) / 2)
    assert found["ColdAloneRecall@2"] == 1.0
    assert found["ColdAloneHR@1"] == 1.0


def test_what_was_seen_is_no_candidate() -> None:
    found = measure([[3], [4], []], [[0, 1, 2], [3], []])
    assert found["ColdRecall@1"] == pytest.approx(0.5)  # item 3 of the first; the second has item 0 before
    assert found["ColdAloneRecall@1"] == 1.0


def test_nothing_to_measure_is_an_error() -> None:
    with pytest.raises(EvaluationError, match="cold"):
        measure([[1], [2], []], [[0], [0], []])
