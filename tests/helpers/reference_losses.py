"""Losses as their definitions say, in float64."""

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
