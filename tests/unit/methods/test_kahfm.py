"""kaHFM: a naive reference of its kernel, where it starts, and its reasons."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.knowledge_graph import small_world
from tacit.errors import DivergedError
from tacit.kernels.bpr import draw_triples
from tacit.kernels.kahfm import long_bpr_epoch
from tacit.kernels.membership import owned_items
from tacit.kernels.sampling import lane
from tacit.methods.kahfm import KaHFM, KaHFMConfig
from tacit.methods.parts.features import features_of, tf_idf
from tacit.random import Key


def test_an_epoch_is_that_of_the_naive_version() -> None:
    clients, _ = small_world()
    rng = np.random.default_rng(0)
    people, items = (rng.normal(0, 0.3, (n, 37)).astype(np.float32) for n in (12, 30))
    bias = rng.normal(0, 0.3, 30).astype(np.float32)
    p, q, b = (array.astype(np.float64) for array in (people, items, bias))
    pairs = np.column_stack([clients.rows, clients.items]).astype(np.uint32)
    word, kept_out = Key(3).word, owned_items(clients)
    long_bpr_epoch(word, 50, pairs, kept_out, people, items, bias, 0.1, 0.02)
    triples = np.zeros((3, 50), np.uint32)
    state = np.array([lane(word, np.uint64(n)) for n in (0, 1)], np.uint64)
    draw_triples(state, pairs, kept_out, 30, triples)
    for u, i, j in triples.T:
        z = 1 / (1 + np.exp(p[u] @ (q[i] - q[j]) + b[i] - b[j]))
        p_u, q_i, q_j = p[u].copy(), q[i].copy(), q[j].copy()
        p[u] += 0.1 * (z * (q_i - q_j) - 0.02 * p_u)
        q[i] += 0.1 * (z * p_u - 0.02 * q_i)
        q[j] += 0.1 * (-z * p_u - 0.02 * q_j)
        b[i] += 0.1 * z
        b[j] -= 0.1 * z
    for ours, naive in ((people, p), (items, q), (bias, b)):
        np.testing.assert_allclose(ours, naive, atol=1e-5)


def test_it_starts_from_what_the_items_are() -> None:
    clients, catalog = small_world()
    described = tf_idf(features_of(catalog, "graph", "test")).toarray()
    model = next(KaHFM(KaHFMConfig(learning_rate=1e-9)).fit(clients, catalog, Key(0)))
    np.testing.assert_allclose(model.shared["items"], described, atol=1e-6)
    np.testing.assert_allclose(model.private["people"][4], described[clients.of(4)].mean(axis=0), atol=1e-6)


def test_a_step_too_large_is_stopped() -> None:
    clients, catalog = small_world()
    with pytest.raises(DivergedError, match="kahfm diverged"):
        list(KaHFM(KaHFMConfig(learning_rate=500.0)).fit(clients, catalog, Key(0)))
