"""A variational autoencoder of histories with a multinomial likelihood (Liang et al., 2018): loss, gradients, scores.

    x = history / |history|, thinned      h = tanh(x A + a)       [mu | s] = h B + b      z = mu + e exp(s / 2)
    g = tanh(z C + c)      logits = g D' + d      loss = -sum over history of log softmax + beta KL(z | normal(0, 1))

averaged over the users of a batch. Both tables (A and D) have the item axis first; x is sparse and stays so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tacit.random import Key
from tacit.types import Array, Floats

SCALE_OF_BIASES = 0.001  # of their first values, as in the authors' code


def init_parameters(n_items: int, hidden: int, latent: int, key: Key) -> dict[str, Floats]:
    """Return the first parameters: Xavier uniform, biases near zero."""
    shapes = {
        "items_in": (n_items, hidden),
        "to_latent": (hidden, 2 * latent),
        "from_latent": (latent, hidden),
        "items_out": (n_items, hidden),
    }
    lengths = {"bias_in": hidden, "bias_to": 2 * latent, "bias_from": hidden, "bias_out": n_items}
    parameters: dict[str, Floats] = {}
    for name, (rows, columns) in shapes.items():
        drawn = key.child(name).uniform(np.arange(rows), columns)
        parameters[name] = ((2.0 * drawn - 1.0) * np.sqrt(6.0 / (rows + columns))).astype(np.float32)
    for name, length in lengths.items():
        parameters[name] = key.child(name).normal(np.arange(length), 1, SCALE_OF_BIASES)[:, 0]
    return parameters


def unit_entries(ptr: NDArray[np.int64]) -> Floats:
    """Return the entry of each interaction in its history of length one, [N]."""
    counts = np.diff(ptr)
    return np.repeat(1.0 / np.sqrt(np.maximum(counts, 1)), counts).astype(np.float32)


def decode(p: Mapping[str, Array], x: sparse.csr_matrix) -> Floats:
    """Return g [C, hidden] of histories x [C, n_items] at the mean of z."""
    h = np.tanh(x @ p["items_in"] + p["bias_in"])
    latent = p["from_latent"].shape[0]
    mu = h @ p["to_latent"][:, :latent] + p["bias_to"][:latent]
    g: Floats = np.tanh(mu @ p["from_latent"] + p["bias_from"])
    return g


def gradients(
    p: Mapping[str, Array], x: sparse.csr_matrix, history: sparse.csr_matrix, noise: Array, beta: float
) -> tuple[float, dict[str, Any]]:
    """Return the loss of a batch and its gradients.

    x: the input after dropout [C, n_items]; history: ones where a user did something; noise: e [C, latent].
    """
    n, latent = noise.shape
    h = np.tanh(x @ p["items_in"] + p["bias_in"])  # [C, hidden]
    code = h @ p["to_latent"] + p["bias_to"]
    mu, s = code[:, :latent], code[:, latent:]
    spread = np.exp(0.5 * s)
    z = mu + noise * spread
    g = np.tanh(z @ p["from_latent"] + p["bias_from"])  # [C, hidden]
    logits = g @ p["items_out"].T + p["bias_out"]  # [C, n_items], the one large array: worked on in place from here

    counts = np.diff(history.indptr)
    rows, columns = np.repeat(np.arange(n), counts), history.indices
    logits -= logits.max(axis=1, keepdims=True)
    chosen = logits[rows, columns].sum(dtype=np.float64)
    d_logits = np.exp(logits, out=logits)
    total = d_logits.sum(axis=1)
    divergence = 0.5 * np.sum(mu**2 + spread**2 - s - 1, dtype=np.float64)
    loss = float((counts @ np.log(total.astype(np.float64)) - chosen + beta * divergence) / n)

    d_logits *= (counts / (total * n)).astype(logits.dtype)[:, None]
    d_logits[rows, columns] -= 1.0 / n
    d_g = (d_logits @ p["items_out"]) * (1 - g**2)
    d_z = d_g @ p["from_latent"].T
    d_mu = d_z + (beta / n) * mu
    d_s = 0.5 * (d_z * noise * spread + (beta / n) * (spread**2 - 1))
    d_code = np.concatenate([d_mu, d_s], axis=1)
    d_h = (d_code @ p["to_latent"].T) * (1 - h**2)
    return loss, {
        "items_in": x.T @ d_h,
        "bias_in": d_h.sum(axis=0),
        "to_latent": h.T @ d_code,
        "bias_to": d_code.sum(axis=0),
        "from_latent": z.T @ d_g,
        "bias_from": d_g.sum(axis=0),
        "items_out": d_logits.T @ g,
        "bias_out": d_logits.sum(axis=0),
    }
