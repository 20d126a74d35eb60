"""Drawn candidates keep the protocol; the list kernel against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.kernels.candidates import count_rivals, draw_candidates
from tacit.kernels.topk import NOT_FOUND, is_distinct, listed_truth, rank_rows, seen_before
from tacit.random import Key
from tacit.types import offsets

WORD = Key(3).word


def ragged(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    ordered = [sorted(r) for r in rows]
    return offsets(np.array([len(r) for r in ordered])), np.array([i for r in ordered for i in r], np.int32)


def people(n_items: int, n: int = 60) -> tuple[list[list[int]], list[list[int]]]:
    rng = np.random.default_rng(n_items)
    seen, truth = [], []
    for u in range(n):
        shuffled = rng.permutation(n_items)
        cut = int(rng.integers(0, n_items - 3))
        seen.append(shuffled[:cut].tolist())
        truth.append(shuffled[cut : cut + u % 4].tolist() + ([-1] if u % 7 == 0 else []))
    return seen, truth


def draw(rows: list[int], n_items: int, n: int, word: np.uint64 = WORD) -> list[tuple[int, int, list[int]]]:
    """Return (person, held-out item, candidates) for some people."""
    seen, truth = people(n_items)
    ids = np.arange(len(seen)) * 3
    ptr, items, is_short = draw_candidates(word, ids, np.array(rows), *ragged(seen), *ragged(truth), n_items, n)
    found, h = [], 0
    for b, u in enumerate(rows):
        unseen = n_items - len(set(seen[u]) | {i for i in truth[u] if i >= 0})
        assert is_short[b] == (unseen < n)
        for item in sorted(truth[u]):
            found.append((u, item, items[ptr[h] : ptr[h + 1]].tolist()))
            h += 1
    assert h == len(ptr) - 1
    return found


@pytest.mark.parametrize("n_items", [12, 40, 500])
@pytest.mark.parametrize("n", [1, 10, 30])
def test_candidates_are_unseen_distinct_and_as_many_as_asked(n_items: int, n: int) -> None:
    seen, truth = people(n_items)
    for u, item, candidates in draw(list(range(60)), n_items, n):
        if item < 0:
            assert candidates == []
            continue
        unseen = set(range(n_items)) - set(seen[u]) - set(truth[u])
        assert set(candidates) <= unseen
        assert len(set(candidates)) == len(candidates) == min(n, len(unseen))


@pytest.mark.parametrize("n_items", [12, 500])
def test_candidates_depend_on_the_person_and_the_key_only(n_items: int) -> None:
    together = {(u, item): c for u, item, c in draw(list(range(60)), n_items, 5) if item >= 0}
    apart = {(u, i): c for start in range(59, -1, -1) for u, i, c in draw([start], n_items, 5) if i >= 0}
    assert together == apart
    other = {(u, i): c for u, i, c in draw(list(range(60)), n_items, 5, Key(4).word) if i >= 0}
    assert together != other


def test_items_of_one_person_get_candidates_of_their_own() -> None:
    drawn = [c for u, item, c in draw([3], 500, 20) if item >= 0]
    assert len({tuple(c) for c in drawn}) == 3


@pytest.mark.parametrize("n", [2, 7])  # by rejection, and by shuffling
def test_every_unseen_item_is_equally_likely(n: int) -> None:
    counts = np.zeros(12)
    ids = np.arange(6000)
    seen, truth = ragged([[0]] * 6000), ragged([[1]] * 6000)
    _, items, _ = draw_candidates(WORD, ids, ids, *seen, *truth, 12, n)
    counts += np.bincount(items, minlength=12)
    assert counts[:2].sum() == 0
    expected = 6000 * n / 10
    assert np.abs(counts[2:] - expected).max() < 5 * np.sqrt(expected), "five standard deviations"


def test_rivals_by_hand() -> None:
    others = np.array([3, 2, 2, 1, 5], np.float32)
    own = np.array([2, np.nan, 6], np.float32)
    better, tied = count_rivals(own, others, np.array([0, 4, 4, 5]))
    assert better.tolist() == [1, NOT_FOUND, 0]
    assert tied.tolist() == [3, 1, 1]


def numpy_lists(scores: np.ndarray, seen: list[list[int]], order: np.ndarray, shifts: np.ndarray, k: int) -> np.ndarray:
    top = np.full((len(scores), k), -1)
    for u, row in enumerate(scores):
        places = (order + shifts[u]) % len(order)
        best = [j for j in np.lexsort((-places, -row)) if j not in seen[u]][:k]
        top[u, : len(best)] = best
    return top


@pytest.mark.slow
@pytest.mark.parametrize("n_items", [1, 5, 64, 65, 255, 256, 257, 2000])  # below, at and above the number of groups
@pytest.mark.parametrize("k", [1, 7, 100])
@pytest.mark.parametrize("levels", [2, 10**6])
def test_lists_equal_a_plain_sort(n_items: int, k: int, levels: int) -> None:
    rng = np.random.default_rng(n_items * k)
    scores = ((rng.integers(0, levels, (20, n_items)) - levels // 2) / 7).astype(np.float32)
    seen = [rng.permutation(n_items)[: rng.integers(0, n_items + 1)].tolist() for _ in range(20)]
    item_at = rng.permutation(n_items).astype(np.int32)
    order = np.argsort(item_at)
    top = np.zeros((20, k), np.int32)
    nothing = ragged([[]] * 20)
    rows, shifts, none = np.arange(20), rng.integers(0, n_items, 20), np.empty(0, np.int64)
    bits = scores.view(np.int32)
    bad = rank_rows(bits, rows, *ragged(seen), *nothing, order, item_at, shifts, top, none, none)
    assert bad == -1
    np.testing.assert_array_equal(top, numpy_lists(scores, seen, order, shifts, k))


def test_ascending_and_descending_scores() -> None:
    scores = np.stack([np.arange(1000), -np.arange(1000)]).astype(np.float32)
    top = np.zeros((2, 3), np.int32)
    nothing = ragged([[], []])
    at, shifts, none = np.arange(1000), np.array([0, 7]), np.empty(0, np.int64)
    order = (at, at.astype(np.int32), shifts)
    rank_rows(scores.view(np.int32), np.arange(2), *nothing, *nothing, *order, top, none, none)
    assert top.tolist() == [[999, 998, 997], [0, 1, 2]]


def test_membership() -> None:
    truth, seen = ragged([[-1, 3, 5], [], [2]]), ragged([[5, 9], [1], [3]])
    top = np.array([[5, -1, 4], [1, 2, 3], [2, 0, -1]], np.int32)
    assert listed_truth(top, *truth).tolist() == [[True, False, False], [False] * 3, [True, False, False]]
    assert seen_before(*truth, *seen).tolist() == [False, False, True, False]
    assert listed_truth(np.array([[2, 900, 901]]), *ragged([list(range(0, 1000, 2))])).tolist() == [[True, True, False]]


@pytest.mark.parametrize(
    ("histories", "distinct"),
    [([[1, 2], [0, 5]], True), ([[1, 1]], False), ([[2, 1]], False), ([[-1, -1, 3], []], True), ([[3], [3]], True)],
)
def test_distinct_items_ascend_within_a_user(histories: list[list[int]], distinct: bool) -> None:
    ptr = offsets(np.array([len(own) for own in histories]))
    assert is_distinct(ptr, np.array([i for own in histories for i in own], np.int32)) == distinct
