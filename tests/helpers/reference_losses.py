"""Losses as their definitions say, in float64, their gradients by differences, and a neural model's scores."""

from __future__ import annotations

import numpy as np


def loss_of(name, z, y):
    """Return the loss of scores z with labels y; one without positives or negatives has nothing to compare."""
    if name == "bce":
        return np.mean(np.logaddexp(0, z) - y * z)
    if y.all() or not y.any():
        return 0.0
    ahead = z[y == 0][None, :] - z[y == 1][:, None]
    if name == "bpr":
        return np.mean(np.logaddexp(0, ahead))
    return np.mean(np.logaddexp.reduce(np.append(ahead, np.zeros((len(ahead), 1)), axis=1), axis=1))


def finite_differences(loss, parameters, h=1e-6):
    """Return the gradients of a loss by the arrays that it reads: each number is moved a little to both sides."""
    gradients = []
    for p in parameters:
        g = np.zeros(p.shape)
        for at in np.ndindex(p.shape):
            kept = p[at]
            p[at] = kept + h
            above = loss()
            p[at] = kept - h
            g[at] = (above - loss()) / (2 * h)
            p[at] = kept
        gradients.append(g)
    return gradients


def ncf_scores(shape, u, i, flat):
    """Return the scores of rows of people beside rows of items: a product, a tower of layers, or both."""
    layers, d = shape.unflatten(flat), shape.product
    parts = [u[:, :d] * i[:, :d]]
    if shape.layers:
        a = np.concatenate([u[:, d:], i[:, d:]], axis=1)
        for k in range(1, len(shape.layers) + 1):
            a = np.maximum(a @ layers[f"layer{k}"] + layers[f"bias{k}"], 0)
        parts.append(a)
    return np.concatenate(parts, axis=1) @ layers["head"] + layers["head_bias"]
