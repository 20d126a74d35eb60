"""Losses over one client's samples, as the gradient of each score in a batch.

    bce       mean over the samples of log(1 + e^z) - label z
    bpr       mean over the pairs (p, n) of the batch's positives and negatives of log(1 + e^(z_n - z_p))
    softmax   mean over the positives p of log(1 + sum over the batch's negatives n of e^(z_n - z_p))

All samples of a batch are one client's, so any negative of it stands against any positive; their labels are their last
bits. Where positives or negatives are missing, the last two have nothing to compare and move nothing.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tacit.kernels import FAST
from tacit.kernels.llvm.exponential import exp32, sigmoid_complement

BCE, BPR, SOFTMAX = 0, 1, 2
LOSSES = {"bce": BCE, "bpr": BPR, "softmax": SOFTMAX}


@njit(inline="always")
def is_positive(sample):
    """Return the last bit of a sample, its label."""
    return sample & np.uint8(1) != 0


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def residuals(loss, samples, z):
    """Put the gradients of a batch in the place of its scores, and zero behind its last sample; return their sum.

    Pairwise losses are shift-invariant, so their gradients sum to exactly zero. What rounding leaves of that sum is
    dropped, because Adam would make whole steps of it. Inside a tower such steps remain. There the bias of a unit that
    is on for every sample of a device, and the client's half of the first layer behind it, have gradients that are zero
    but for rounding.
    """
    n, total = samples.size, np.float32(0)
    if loss == BPR:
        _bpr(samples, z)
    elif loss == SOFTMAX:
        _softmax(samples, z)
    else:
        inverse = np.float32(1.0 / n)
        for k in range(z.size):
            z[k] = sigmoid_complement(-z[k])
        for k in range(n):
            z[k] = (z[k] - np.float32(is_positive(samples[k]))) * inverse
            total += z[k]
    z[n:] = 0
    return total


@njit(cache=True, nogil=True)
def _negatives(samples):
    """Return the places of a batch's negatives."""
    places, n = np.empty(samples.size, np.int64), 0
    for k in range(samples.size):
        places[n] = k
        n += not is_positive(samples[k])
    return places[:n]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _bpr(samples, z):
    places = _negatives(samples)
    others, pulls = z[places], np.zeros(places.size, np.float32)
    pairs = np.float32(places.size * (samples.size - places.size))
    inverse = np.float32(1) / max(pairs, np.float32(1))
    for k in range(samples.size):
        if is_positive(samples[k]):
            own, total = z[k], np.float32(0)
            for j in range(others.size):
                wrong = sigmoid_complement(own - others[j])
                pulls[j] += wrong
                total += wrong
            z[k] = -total * inverse
    for j in range(places.size):
        z[places[j]] = pulls[j] * inverse


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _softmax(samples, z):
    places = _negatives(samples)
    n_positives = samples.size - places.size
    inverse, highest = np.float32(1.0 / max(n_positives, 1)), np.float32(-np.inf)
    for place in places:  # of the negatives alone: whatever a positive is above them, it has nothing to gain
        highest = max(highest, z[place])
    highest = np.float32(0) if places.size == 0 else highest
    rivals, pull = np.float32(0), np.float32(0)
    for k in range(samples.size):
        z[k] = exp32(z[k] - highest)
    for place in places:
        rivals += z[place]
    for k in range(samples.size):
        if is_positive(samples[k]):
            each = inverse / (z[k] + rivals)
            pull += each
            z[k] = -rivals * each
    for place in places:
        z[place] *= pull
