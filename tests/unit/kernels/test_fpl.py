"""The kernels of FPL against scalar references in numpy with the same draws; draws against what chance allows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tacit.kernels.fpl import count_sent, draw_pairs, rows_of_pairs, settle, sum_of_pairs
from tacit.kernels.llvm.exponential import sigmoid_complement
from tacit.kernels.llvm.rowvec import rows_of
from tacit.kernels.llvm.triples import pad_rows, unpad_rows
from tacit.kernels.membership import owned_items
from tacit.random import Key
from tacit.testing import make_clients
from tacit.types import Clients

N_ITEMS, SCALE, RATE = 30, np.float32(2**20), np.float32(0.05)
REG = np.array([0.01, 0.02, 0.03], np.float32)


def cohort(n: int = 6, seed: int = 0, n_items: int = N_ITEMS) -> Clients:
    rng = np.random.default_rng(seed)
    histories = [rng.choice(n_items, 3 + 2 * c, replace=False) for c in range(n)]
    return make_clients(histories, n_items, ids=range(0, 7 * n, 7))


def drawn(clients: Clients, n_triples: int, most_bytes: int = 2**20) -> np.ndarray:
    pairs = np.empty((2, len(clients), n_triples), np.uint32)
    has = owned_items(clients, most_bytes)
    draw_pairs(Key(3).word, clients.ids, clients.ptr, clients.items, has, clients.n_items, pairs[0], pairs[1])
    return pairs


def naive(p: np.ndarray, q: np.ndarray, pairs: np.ndarray, sequential: bool) -> tuple[np.ndarray, np.ndarray]:
    """Rows [2, C, T, D], positives first, and the moved p: double precision, but the same rounding to the grid."""
    p, q, (pos, neg) = p.astype(np.float64), q.astype(np.float64), pairs.astype(int)
    rows, moved = np.zeros((2, *pos.shape, p.shape[1])), p.copy()
    no_bias = np.append(np.ones(p.shape[1] - 1), 0)
    for c in range(len(p)):
        for t in range(pos.shape[1]):
            at = moved[c].copy() if sequential else p[c]
            i, j = q[pos[c, t]], q[neg[c, t]]
            z = 1 / (1 + np.exp(at @ (i - j)))
            rows[0, c, t] = (np.rint(SCALE * z * at) - np.rint(SCALE * REG[1] * i * no_bias)) / SCALE
            rows[1, c, t] = (-np.rint(SCALE * z * at) - np.rint(SCALE * REG[2] * j * no_bias)) / SCALE
            moved[c] += RATE * (z * (i - j) - REG[0] * at) * no_bias
    return rows, moved


def tables(n: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    p, q = Key(1).normal(np.arange(n), width, 0.3), Key(2).normal(np.arange(N_ITEMS), width, 0.3)
    p[:, -1] = 1.0
    return p, q


@pytest.mark.parametrize("width", [2, 8, 11, 21])
@pytest.mark.parametrize("sequential", [True, False])
@pytest.mark.parametrize("n", [6, 37])
def test_rows_and_steps_equal_the_naive_ones(width: int, sequential: bool, n: int) -> None:
    clients, steps = cohort().take(np.arange(n) % 6), 9
    pairs, (p, q) = drawn(clients, steps), tables(n, width)
    moved = pad_rows(p)
    people = moved if sequential else moved.copy()
    rows = np.empty((2 * n * steps, moved.shape[1]), np.float32)
    rows_of_pairs(*map(rows_of, (people, moved, pad_rows(q))), *pairs, rows_of(rows), SCALE, RATE, REG)
    expected_rows, expected = naive(p, q, pairs, sequential)
    found = unpad_rows(rows, width).reshape(2, n, steps, width)
    np.testing.assert_allclose(found, expected_rows, atol=4 / SCALE)
    np.testing.assert_allclose(unpad_rows(moved, width), expected, atol=1e-5)
    assert (unpad_rows(moved, width)[:, -1] == 1).all()


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("n", [1, 6, 16, 37])
def test_sums_at_once_are_the_sums_of_the_rows_written_out(kind: type, n: int) -> None:
    clients, steps, width = cohort(6), 5, 11
    clients = clients.take(np.arange(n) % 6)
    pairs, (p, q) = drawn(clients, steps), tables(n, width)
    is_sent = (np.arange(n * steps).reshape(n, steps) % 3 > 0).astype(np.uint8)
    moved, table = pad_rows(p), pad_rows(q)
    rows = np.empty((n * 2 * steps, table.shape[1]), np.float32)
    rows_of_pairs(rows_of(moved), rows_of(moved), rows_of(table), *pairs, rows_of(rows), SCALE, RATE, REG)
    numbers = np.rint(unpad_rows(rows, width).astype(np.float64) * SCALE).astype(np.int64).reshape(2, n, steps, width)
    expected, touched = np.zeros((N_ITEMS, width), np.int64), np.zeros(N_ITEMS, np.int64)
    for c in range(n):
        for t in range(steps):
            for item, number, leaves in (
                (pairs[0, c, t], numbers[0, c, t], is_sent[c, t]),
                (pairs[1, c, t], numbers[1, c, t], True),
            ):
                expected[item] += number * int(leaves)
                touched[item] += int(leaves)
    targets, counts = np.empty_like(pairs[0]), np.zeros((2, N_ITEMS + 1), np.int32)
    count_sent(*pairs, is_sent, targets, counts)
    totals, peaks = np.zeros((N_ITEMS + 1, table.shape[1]), kind), np.zeros((1, table.shape[1]), np.float32)
    again = pad_rows(p)
    arrays = (
        rows_of(again),
        rows_of(again),
        rows_of(table),
        *pairs,
        targets,
        totals,
        rows_of(totals.view(np.float32)),
        rows_of(peaks),
    )
    sum_of_pairs(*arrays, SCALE, RATE, REG)
    sums, found = np.zeros((N_ITEMS, width), np.int64), np.zeros(N_ITEMS, np.int64)
    settle(table, totals, counts, sums, found, SCALE, REG)
    assert np.array_equal(sums, expected)
    assert np.array_equal(found, touched)
    assert np.array_equal(again, moved)
    firsts = np.abs(numbers[0, :, :, -1])  # a bias row has no second term: what is left is the first one itself
    assert peaks[0, -1] == firsts.max()


def test_the_largest_term_is_kept_even_if_it_is_nan() -> None:
    clients, width = cohort(), 11
    pairs, (p, q) = drawn(clients, 4), tables(6, width)
    p[3, 2] = np.nan
    table, people = pad_rows(q), pad_rows(p)
    totals, peaks = np.zeros((N_ITEMS + 1, table.shape[1]), np.int64), np.zeros((1, table.shape[1]), np.float32)
    arrays = (
        rows_of(people),
        rows_of(people),
        rows_of(table),
        *pairs,
        pairs[0],
        totals,
        rows_of(totals.view(np.float32)),
        rows_of(peaks),
    )
    sum_of_pairs(*arrays, SCALE, RATE, REG)
    assert np.isnan(peaks).any()


def test_padding_leads_there_and_back_and_is_aligned() -> None:
    for width in (1, 2, 8, 9, 21):
        rows = Key(1).normal(np.arange(5), width)
        wide = pad_rows(rows)
        assert wide.shape[1] % 8 == 0
        assert wide.ctypes.data % 64 == 0
        assert np.array_equal(unpad_rows(wide, width), rows)
        assert not wide[:, width - 1 : -1].any()


def test_doubt_is_one_minus_the_logistic_function() -> None:
    x = np.linspace(-90, 90, 3001).astype(np.float32)
    found = np.array([sigmoid_complement(value) for value in x])
    np.testing.assert_allclose(found, 1 / (1 + np.exp(x.astype(np.float64))), rtol=5e-6, atol=2e-38)


# --- draws ------------------------------------------------------------------------------------------------------------


def test_positives_are_uniform_over_the_history_and_negatives_over_the_rest() -> None:
    clients, n = cohort(), 20_000
    positives, negatives = drawn(clients, n)
    for c in range(len(clients)):
        mine = clients.of(c)
        hits = np.bincount(positives[c], minlength=N_ITEMS)
        assert set(np.flatnonzero(hits)) == set(mine)
        assert stats.chisquare(hits[mine]).pvalue > 1e-4
        others = np.setdiff1d(np.arange(N_ITEMS), mine)
        hits = np.bincount(negatives[c], minlength=N_ITEMS)
        assert not hits[mine].any(), "a negative was drawn that the client has"
        assert stats.chisquare(hits[others]).pvalue > 1e-4
    table = np.zeros((13, N_ITEMS))
    np.add.at(table, (np.searchsorted(clients.of(5), positives[5]), negatives[5]), 1)
    assert stats.chi2_contingency(table[:, table.any(axis=0)]).pvalue > 1e-4, "the two of a triple hang together"


def test_draws_are_the_same_by_bits_by_search_and_alone() -> None:
    clients = cohort(5, seed=3, n_items=200)
    by_bits, by_search = drawn(clients, 50), drawn(clients, 50, most_bytes=0)
    assert np.array_equal(by_bits, by_search)
    for c in range(5):
        assert np.array_equal(drawn(clients.take([c]), 50)[:, 0], by_bits[:, c])


def test_someone_who_has_all_but_one_always_gets_that_one() -> None:
    clients = Clients(np.array([4]), np.array([0, 29]), np.delete(np.arange(30), 11).astype(np.int32), 30)
    assert (drawn(clients, 200)[1] == 11).all()
