"""BPR and its pieces against naive references that make the same draws."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from tacit.kernels.bpr import bpr_epoch, draw_triples
from tacit.kernels.llvm.exponential import exp32, sigmoid_complement
from tacit.kernels.llvm.rowvec import chunks, dot_difference, rows_of, step_pair
from tacit.kernels.membership import OwnedItems, has, owned_items
from tacit.random import Key
from tacit.testing import make_clients
from tacit.types import Clients


def people(histories: list[list[int]], n_items: int, avoid: list[list[int]] | None = None) -> Clients:
    also = None if avoid is None else make_clients(avoid, n_items)
    return make_clients(histories, n_items, avoid=also)


@pytest.fixture
def crowd() -> Clients:
    rng = np.random.default_rng(1)
    return people([sorted(rng.choice(70, rng.integers(1, 60), replace=False).tolist()) for _ in range(30)], 70)


def pairs_of(clients: Clients) -> np.ndarray:
    return np.column_stack([clients.rows, clients.items]).astype(np.uint32)


def naive_triples(key: Key, n: int, clients: Clients) -> list[tuple[int, int, int]]:
    """The same draws, one by one, from the streams that `tacit.random` makes of the key."""
    first, second = key.bits(np.arange(2), 40 * n).astype(object)
    redraws = iter(second)
    found = []
    for word in first[:n]:
        row = ((word >> 32) * len(clients.items)) >> 32
        user, positive = int(clients.rows[row]), int(clients.items[row])
        negative = ((word & 0xFFFFFFFF) * clients.n_items) >> 32
        while negative in clients.of(user) or (clients.avoid is not None and negative in clients.avoid.of(user)):
            negative = ((next(redraws) >> 32) * clients.n_items) >> 32
        found.append((user, positive, negative))
    return found


def state_of(key: Key) -> np.ndarray:
    # word t of a lane is mix(start + (t + 1) GAMMA), so the start is what `kernels.sampling.lane` returns
    from tacit.random import GAMMA, mix

    return mix(key.word ^ mix(np.arange(2).astype(np.uint64) + GAMMA))


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("most_bytes", [2**20, 0], ids=["bits", "search"])
def test_triples_are_the_naive_ones(crowd: Clients, most_bytes: int, legacy: bool) -> None:
    rng = np.random.default_rng(2)
    if legacy:
        avoid = [sorted(rng.choice(70, 3, replace=False).tolist()) for _ in range(len(crowd))]
        crowd = people([crowd.of(c).tolist() for c in range(len(crowd))], 70, avoid)
    key, triples = Key(3), np.zeros((3, 500), np.uint32)
    draw_triples(state_of(key), pairs_of(crowd), owned_items(crowd, most_bytes), 70, triples)
    assert list(zip(*triples.tolist(), strict=True)) == naive_triples(key, 500, crowd)


@pytest.mark.parametrize("factors", [1, 3, 20, 37])
def test_an_epoch_is_the_naive_one(crowd: Clients, factors: int) -> None:
    rng = np.random.default_rng(4)
    p, q = (rng.normal(0, 0.3, (n, factors)).astype(np.float32) for n in (len(crowd), 70))
    b, rate, reg = rng.normal(0, 0.3, 70).astype(np.float32), 0.05, np.array([0.1, 0.2, 0.3, 0.4], np.float32)
    key, n = Key(5), 700
    p64, q64, b64 = p.astype(float), q.astype(float), b.astype(float)
    for u, i, j in naive_triples(key, n, crowd):
        z = 1 / (1 + np.exp(p64[u] @ (q64[i] - q64[j]) + b64[i] - b64[j]))
        steps = z * (q64[i] - q64[j]) - reg[0] * p64[u], z * p64[u] - reg[1] * q64[i], -z * p64[u] - reg[2] * q64[j]
        for row, step in zip((p64[u], q64[i], q64[j]), steps, strict=True):
            row += rate * step
        b64[i] += rate * (z - reg[3] * b64[i])
        b64[j] += rate * (-z - reg[3] * b64[j])
    bpr_epoch(key.word, n, pairs_of(crowd), owned_items(crowd), rows_of(p), rows_of(q), b, rate, reg)
    for ours, naive in ((p, p64), (q, q64), (b, b64)):
        np.testing.assert_allclose(ours, naive, atol=2e-5)


def test_bits_or_search_make_no_difference(crowd: Clients) -> None:
    results = []
    for most_bytes in (2**20, 0):
        rng = np.random.default_rng(6)
        p, q = (rng.normal(0, 0.1, (n, 8)).astype(np.float32) for n in (len(crowd), 70))
        b = np.zeros(70, np.float32)
        kept_out = owned_items(crowd, most_bytes)
        assert (kept_out.bits.size > 0) == (most_bytes > 0)
        bpr_epoch(Key(1).word, 2000, pairs_of(crowd), kept_out, rows_of(p), rows_of(q), b, 0.05, np.zeros(4, "f"))
        results.append(np.concatenate([p.ravel(), q.ravel(), b]))
    assert np.array_equal(*results)


def test_no_triples_change_nothing(crowd: Clients) -> None:
    p, q, b = np.ones((30, 4), np.float32), np.ones((70, 4), np.float32), np.zeros(70, np.float32)
    none = np.zeros((0, 2), np.uint32)
    bpr_epoch(Key(1).word, 0, none, owned_items(crowd), rows_of(p), rows_of(q), b, 0.05, np.zeros(4, np.float32))
    assert (p == 1).all()
    assert (q == 1).all()


@njit
def ask(kept_out: OwnedItems, client: int, item: int) -> bool:
    return has(kept_out, np.uint64(client), np.uint64(item))


@pytest.mark.slow
@pytest.mark.parametrize("most_bytes", [2**20, 0], ids=["bits", "search"])
def test_membership_counts_history_and_what_is_avoided_once(most_bytes: int) -> None:
    clients = people([[1, 1, 64], [], [0, 129]], 130, avoid=[[2, 64], [5], [-1]])
    kept_out = owned_items(clients, most_bytes)
    expected = [{1, 2, 64}, {5}, {0, 129}]
    assert np.diff(kept_out.ptr).tolist() == [3, 1, 2]
    for client, items in enumerate(expected):
        assert {i for i in range(130) if ask(kept_out, client, i)} == items


@njit
def exps(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    out, doubts = np.empty_like(x), np.empty_like(x)
    for k in range(len(x)):
        out[k], doubts[k] = exp32(x[k]), sigmoid_complement(x[k])
    return out, doubts


@pytest.mark.slow
def test_exp_is_close_everywhere_and_finite_beyond() -> None:
    x = np.linspace(-86, 86, 200_001).astype(np.float32)
    ours, doubts = exps(x)
    exact = np.exp(x.astype(np.float64))
    # the argument itself is rounded in float32, which grows with its size
    assert (np.abs(ours / exact - 1) < 3e-7 + 1.2e-7 * np.abs(x)).all()
    np.testing.assert_allclose(doubts, 1 / (1 + exact), rtol=2e-5)
    far, sure = exps(np.array([-1e9, 1e9, np.nan], np.float32))
    assert np.isfinite(far[:2]).all()
    assert far[0] > 0
    assert np.isnan(sure[2])
    assert sure[0] == 1.0
    assert 0 <= sure[1] < 1e-30


@pytest.mark.slow
@pytest.mark.parametrize("length", [1, 2, 5, 16, 20, 33, 63])
def test_rows_are_cut_without_gap_and_moved_as_written(length: int) -> None:
    cuts = chunks(length)
    assert [at for offset, width in cuts for at in range(offset, offset + width)] == list(range(length))

    @njit
    def move(left, right):
        x = dot_difference(left, np.uint64(1), right, np.uint64(2), np.uint64(0))
        f = np.float32
        step_pair(left, np.uint64(1), right, np.uint64(2), np.uint64(0), f(0.5), f(0.9), f(0.8), f(0.7))
        return x

    rng = np.random.default_rng(length)
    left, right = (rng.normal(size=(n, length)).astype(np.float32) for n in (2, 3))
    p, q = left.astype(float), right.astype(float)
    x = move(rows_of(left), rows_of(right))
    assert x == pytest.approx(p[1] @ (q[2] - q[0]), abs=1e-5)
    np.testing.assert_allclose(left, [p[0], 0.9 * p[1] + 0.5 * (q[2] - q[0])], atol=1e-6)
    np.testing.assert_allclose(right, [0.7 * q[0] - 0.5 * p[1], q[1], 0.8 * q[2] + 0.5 * p[1]], atol=1e-6)
