"""Gradients of the autoencoder against finite differences, in float64."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from helpers.reference_losses import finite_differences
from tacit.models.multi_vae import decode, gradients, init_parameters, unit_entries
from tacit.random import Key


def _batch():
    history = sparse.csr_matrix((np.random.default_rng(0).random((5, 9)) < 0.4).astype(np.float64))
    x = history.copy()
    x.data = unit_entries(x.indptr).astype(np.float64)
    x.data[::3] = 0  # what dropout leaves behind
    return x, history, Key(2).normal(np.arange(5), 3).astype(np.float64)


def _parameters():
    key = Key(1)
    return {name: 3.0 * w.astype(np.float64) for name, w in init_parameters(9, 4, 3, key).items()}


def test_loss_is_what_the_paper_says():
    p, (x, history, noise) = _parameters(), _batch()
    losses = []
    for c in range(5):
        h = np.tanh(x[c].toarray()[0] @ p["items_in"] + p["bias_in"])
        code = h @ p["to_latent"] + p["bias_to"]
        mu, s = code[:3], code[3:]
        g = np.tanh((mu + noise[c] * np.exp(s / 2)) @ p["from_latent"] + p["bias_from"])
        logits = p["items_out"] @ g + p["bias_out"]
        log_softmax = logits - np.log(np.exp(logits).sum())
        divergence = -0.5 * np.sum(1 + s - mu**2 - np.exp(s))
        losses.append(-(history[c].toarray()[0] @ log_softmax) + 0.3 * divergence)
    assert gradients(p, x, history, noise, 0.3)[0] == pytest.approx(np.mean(losses), rel=1e-12)


@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_gradients_are_those_of_the_loss(beta):
    p, batch = _parameters(), _batch()
    _, by_hand = gradients(p, *batch, beta)
    assert by_hand.keys() == p.keys()
    for name, w in p.items():
        (expected,) = finite_differences(lambda: gradients(p, *batch, beta)[0], [w])
        assert np.abs(expected).max() > 1e-3, f"{name}: the check must see this parameter"
        np.testing.assert_allclose(by_hand[name], expected, rtol=1e-6, atol=1e-8, err_msg=name)


def test_scores_come_from_the_mean_of_the_code():
    p, (x, _, _) = _parameters(), _batch()
    code = np.tanh(x @ p["items_in"] + p["bias_in"]) @ p["to_latent"] + p["bias_to"]
    np.testing.assert_allclose(decode(p, x), np.tanh(code[:, :3] @ p["from_latent"] + p["bias_from"]))


def test_histories_have_length_one_and_empty_ones_no_entry():
    values = unit_entries(np.array([0, 4, 4, 5]))
    np.testing.assert_allclose(values, [0.5, 0.5, 0.5, 0.5, 1.0])
