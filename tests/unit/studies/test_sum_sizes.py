"""What one sum tells of a member is compared with attackers who have nothing of that member."""

from __future__ import annotations

import numpy as np

from tacit.random import Key
from tacit.studies.sheets import value_of
from tacit.studies.sum_sizes import draw_batches, exposure_by_size, own_items
from tacit.types import Clients


def clients_of(is_own: np.ndarray) -> Clients:
    counts = is_own.sum(axis=1)
    ptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    items = np.nonzero(is_own)[1].astype(np.int32)
    return Clients(np.arange(len(is_own)), ptr, items, is_own.shape[1])


def test_a_user_with_a_unique_item_is_named_by_their_own_part_only() -> None:
    """Users with three items of their own each: others do not help."""
    is_own = np.random.default_rng(1).permutation(np.kron(np.eye(28, dtype=bool), np.ones(3, bool)).T).T
    people = clients_of(is_own)
    assert (own_items(people) == is_own).all()
    rows = exposure_by_size(people, Key(3), draws=2)
    for what in ("the others' sum", "what is popular"):
        assert value_of(rows, "sum of 7, all items", f"named by {what}") == 0.0
    assert value_of(rows, "sum of 7, all items", "named") > 0.05
    kept = [value_of(rows, f"sum of 7, {way}", "of taking part") for way in ("all items", "70% drawn once")]
    assert min(kept) > 0


def test_who_has_what_all_have_adds_nothing() -> None:
    is_own = np.zeros((20, 30), bool)
    is_own[:, :5] = True
    rows = exposure_by_size(clients_of(is_own), Key(1), draws=1)
    for size in (7, 10, 13, 20):
        assert value_of(rows, f"sum of {size}, all items", "named") == 1.0
        assert value_of(rows, f"sum of {size}, all items", "of taking part") == 0.0


def test_every_user_is_in_one_sum_at_most() -> None:
    batches = draw_batches(23, 7, Key(1))
    assert batches.shape == (3, 7)
    assert len(set(batches.ravel().tolist())) == 21
