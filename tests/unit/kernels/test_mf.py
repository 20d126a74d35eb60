"""Logistic matrix factorisation against a naive reference that makes the same draws."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.errors import DivergedError
from tacit.kernels.membership import owned_items
from tacit.kernels.mf import mf_epoch
from tacit.methods.base import build, options
from tacit.random import Key
from tacit.testing import make_clients
from tacit.types import Catalog, Clients, Vocabulary

N_ITEMS, FACTORS, NEGATIVES = 30, 5, 3


@pytest.fixture
def crowd() -> Clients:
    rng = np.random.default_rng(1)
    return make_clients([rng.choice(N_ITEMS, rng.integers(1, 20), replace=False) for _ in range(12)], N_ITEMS)


def naive(key: Key, clients: Clients, tables: list[np.ndarray], rate: float, reg: float) -> None:
    """Learn example by example in Python; the draws are those that `tacit.random` makes of the key."""
    people, items, own, bias, offset = tables
    n = len(clients.items) * (1 + NEGATIVES)
    first, second = key.bits(np.arange(2), 20 * n).astype(object)
    more = iter(second)
    for word in first[:n]:
        row = ((word >> 32) * len(clients.items)) >> 32
        u, i = int(clients.rows[row]), int(clients.items[row])
        yes = ((word & 0xFFFFFFFF) * (1 + NEGATIVES)) >> 32 == 0
        if not yes:
            i = ((next(more) >> 32) * N_ITEMS) >> 32
            while i in clients.of(u):
                i = ((next(more) >> 32) * N_ITEMS) >> 32
        x = offset[0] + own[u] + bias[i] + people[u] @ items[i]
        z = float(yes) - 1 / (1 + np.exp(-x))
        p, q = people[u].copy(), items[i].copy()
        people[u] += rate * (z * q - reg * p)
        items[i] += rate * (z * p - reg * q)
        for table, at in ((own, u), (bias, i), (offset, 0)):
            table[at] += rate * (z - reg * table[at])


def test_an_epoch_is_the_naive_one(crowd: Clients) -> None:
    rng, key = np.random.default_rng(2), Key(7).child("epoch", 0)
    shapes = ((12, FACTORS), (N_ITEMS, FACTORS), (12,), (N_ITEMS,), (1,))
    slow = [rng.normal(0, 0.3, shape) for shape in shapes]
    fast = [table.astype(np.float32) for table in slow]
    pairs = np.column_stack([crowd.rows, crowd.items]).astype(np.uint32)
    naive(key, crowd, slow, 0.1, 0.02)
    mf_epoch(key.word, pairs, owned_items(crowd), NEGATIVES, *fast, 0.1, 0.02)
    for a, b in zip(slow, fast, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-4)


def test_it_says_how_likely_the_user_takes_an_item(crowd: Clients) -> None:
    method = build(
        "mf", options("mf", {"epochs": 400, "learning_rate": 0.05, "factors": 8, "negatives": 1, "reg": 0.0})
    )
    for model in method.fit(crowd, Catalog(Vocabulary(np.arange(N_ITEMS))), Key(0)):
        final = model
    found = method.score(final.shared, final.private, crowd)
    likely, had = 1 / (1 + np.exp(-found)), crowd.matrix().toarray() > 0
    assert likely[had].mean() > 0.9
    assert likely[~had].mean() < 0.1
    rows, items = np.array([3, 4]), np.array([0, 11])
    np.testing.assert_allclose(
        method.score_pairs(final.shared, final.private, rows, items, crowd), found[rows, items], rtol=1e-5
    )


def test_it_says_that_it_diverged(crowd: Clients) -> None:
    method = build("mf", options("mf", {"epochs": 200, "learning_rate": 200.0, "reg": 0.1}))
    with pytest.raises(DivergedError, match=r"mf diverged in epoch \d+.*Lower method.learning_rate \(now 200\)"):
        for _ in method.fit(crowd, Catalog(Vocabulary(np.arange(N_ITEMS))), Key(0)):
            pass
