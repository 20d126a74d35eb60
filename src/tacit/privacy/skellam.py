"""Probabilities of Skellam noise, prepared for drawing: a table for small variances, a hat of blocks for large ones.

With k = V sinh(t) and w = sqrt(V^2 + k^2), the probability of k under variance V is

    exp(w - V - k t) / sqrt(2 pi w) (1 + u1 + u2 + u3 + ...)

(Debye's expansion of the Bessel function I_k(V); the terms shrink like 1/w).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

_PRECISION = 256  # bits of the recurrence
_REACH = 13.0  # standard deviations; further out lie less than 10^-36
_BLOCK = 8.0  # blocks per standard deviation, at least


@dataclass(frozen=True)
class SkellamTable:
    """Cumulated probabilities as numbers of 128 bits: `high` and `low` words [cells]; cell 0 is the number `first`."""

    high: NDArray[np.uint64]
    low: NDArray[np.uint64]
    first: int


@dataclass(frozen=True)
class SkellamHat:
    """Blocks of 2^width_bits numbers, constant above each; cumulated weights of blocks as in a table [blocks]."""

    variance: float
    high: NDArray[np.uint64]
    low: NDArray[np.uint64]
    first_block: int
    width_bits: int
    top: NDArray[np.float64]  # the hat above a block
    surely_below: NDArray[np.int64]  # heights of 31 bits that lie below every probability of the block

    def share_of_hat(self, steps: NDArray[np.int64], cells: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the probabilities of `steps` over the hat of their blocks."""
        return np.exp(log_mass(steps, self.variance)) / self.top[cells]


def log_mass(steps: NDArray[np.int64], variance: float) -> NDArray[np.float64]:
    """Return log-probabilities, up to a constant, for variances of at least 10^4 and within 13 standard deviations."""
    x = steps / variance
    root = np.sqrt(1 + x * x)
    exponent = x * x / (1 + root) - x * np.arcsinh(x)  # of one V; both terms are positive and differ by a factor of 2
    r, t = 1 / (variance * root), (x / root) ** 2  # 1/w and (k/w)^2
    u1 = r * (3 - 5 * t) / 24
    u2 = r * r * (81 + t * (-462 + 385 * t)) / 1152
    u3 = r * r * r * (30375 + t * (-369603 + t * (765765 - 425425 * t))) / 414720
    return np.asarray(variance * exponent - np.log1p(x * x) / 4 + np.log1p(u1 + u2 + u3), np.float64)


@lru_cache(maxsize=64)
def find_table(variance: float) -> SkellamTable:
    """Return the table of a small variance, from the recurrence of Bessel functions in whole numbers."""
    exact = Fraction(variance)
    far = 64 + math.ceil(16 * math.sqrt(variance))
    above, here, masses = 0, 1 << _PRECISION, [1 << _PRECISION]
    for k in range(far, 0, -1):  # I_{k-1} = I_{k+1} + (2 k / V) I_k
        above, here = here, above + 2 * k * exact.denominator * here // exact.numerator
        masses.append(here)
    masses.reverse()  # of 0, 1, ..., far
    total = masses[0] + 2 * sum(masses[1:])
    least = total >> 128
    last = max(k for k in range(far + 1) if masses[k] > least)
    line = [masses[abs(k)] for k in range(-last, last + 1)]
    return SkellamTable(*_cumulate(line), -last)


@lru_cache(maxsize=64)
def find_hat(variance: float) -> SkellamHat:
    """Return the hat of a large variance."""
    std = math.sqrt(variance)
    width_bits = math.floor(math.log2(std / _BLOCK))
    n_blocks = math.ceil(_REACH * std / 2**width_bits)
    first = np.arange(-n_blocks, n_blocks, dtype=np.int64) << width_bits
    last = first + (1 << width_bits) - 1
    ends = np.sort(np.exp(log_mass(np.stack([first, last]), variance)), axis=0)  # [2, blocks], lower end first
    top = ends[1] * (1 + 1e-9)  # rounding must not lift a probability above the hat
    surely = np.floor(ends[0] / top * (1 - 1e-9) * 2.0**31).astype(np.int64)
    high, low = _cumulate([int(Fraction(weight) * 2**256) for weight in top.tolist()])
    return SkellamHat(variance, high, low, -n_blocks, width_bits, top, surely)


def _cumulate(weights: list[int]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the upper bounds of all cells but the last, as high and low words of numbers below 2^128."""
    sums = list(accumulate(weights))
    bounds = [(part << 128) // sums[-1] for part in sums[:-1]]
    return np.array([bound >> 64 for bound in bounds], np.uint64), np.array(
        [bound & (2**64 - 1) for bound in bounds], np.uint64
    )
