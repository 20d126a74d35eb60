"""Noise in whole steps of the ring's grid, from a stream cipher.

A `NoiseSource` is a stream of 64-bit words of AES-256 in counter mode: `SystemNoise` under a fresh key of the operating
system, `SimulatedNoise` under a key that follows from a `tacit.random.Key`. A simulation can repeat the latter, and a
report must call it simulated. Nothing here draws from numpy's generators.

Samplers decide on as many bits as a draw needs: where 53 bits leave two whole numbers possible, more are drawn.
docs/privacy.md says how far the probabilities are from the exact ones.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import threading
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import ArrayLike, NDArray

from tacit.errors import PrivacyError
from tacit.kernels.noise import GUIDE_BITS, find_cells, place_in_blocks, write_guide
from tacit.privacy.gaussian import require
from tacit.privacy.skellam import SkellamHat, SkellamTable, find_hat, find_table
from tacit.random import Key

Words = NDArray[np.uint64]
Steps = NDArray[np.int64]
WIDEST = 2.0**36  # steps: sums of 2^20 such numbers stay far below 2^63
LARGEST_EPSILON = 40.0  # above it, 64 bits do not decide whether a bit is flipped
TABLE_UP_TO = 1e4  # variance of Skellam noise
_NDTRI_ERROR = 1e-14  # relative; cephes states 1e-15
_ZEROS = memoryview(bytes(1 << 18))  # what the cipher turns into its stream, used again and again
_FEWEST = 2.0**-70  # less likely bits of a geometric number are never set


class NoiseSource(ABC):
    """A stream of random 64-bit words that no other party can predict."""

    is_simulated: bool

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._stream = self._start()

    @abstractmethod
    def _key(self) -> bytes:
        """Return the 32 bytes under which the stream starts."""

    def _start(self) -> CipherContext:
        return Cipher(algorithms.AES256(self._key()), modes.CTR(bytes(16))).encryptor()

    def words(self, n: int) -> Words:
        """Return the next `n` words of the stream."""
        with self._lock:
            if self._process != os.getpid() and not self.is_simulated:  # a fork must not repeat its parent's noise
                self._process, self._stream = os.getpid(), self._start()
            drawn = np.empty(n + 2, np.uint64)  # the cipher asks for room for one block more
            room = drawn.view(np.uint8).data
            for start in range(0, 8 * n, len(_ZEROS)):
                self._stream.update_into(_ZEROS[: min(len(_ZEROS), 8 * n - start)], room[start:])
            return drawn[:n]


class SystemNoise(NoiseSource):
    """Noise for real devices: a fresh key from the operating system, never repeated."""

    is_simulated = False

    def _key(self) -> bytes:
        return os.urandom(32)


class SimulatedNoise(NoiseSource):
    """Noise that a simulation can repeat: the same key gives the same words. It protects no user."""

    is_simulated = True

    def __init__(self, key: Key) -> None:
        self.key = key
        super().__init__()

    def _key(self) -> bytes:
        path = [part if isinstance(part, str) else int(part) for part in self.key.path]
        return hashlib.sha256(f"tacit noise {json.dumps([int(self.key.seed), path])}".encode()).digest()


def gaussian_steps(source: NoiseSource, size: int, std: float) -> Steps:
    """Return Gaussian numbers of standard deviation `std` steps, each rounded to a whole number [size].

    A word gives a sign and 52 bits of a tail probability. Where these bits leave the rounding open, 64 more decide.
    """
    require(std, "std", above=0, most=WIDEST)
    words = source.words(_whole(size))
    bits = words >> np.uint64(12)
    tail = (bits.astype(np.float64) + 0.5) * 2.0**-53  # in (0, 1/2), known up to 2^-54
    from scipy.special import ndtri

    drawn = ndtri(tail)
    drawn *= -std
    rounded = np.rint(drawn)
    # |dy/dtail| = std / density <= std sqrt(pi / 2) / tail, here over the interval of tails that the bits leave open
    unsure = drawn * _NDTRI_ERROR + (2.6 * 2.0**-54 * std) / tail
    is_open = 0.5 - np.abs(drawn - rounded) <= unsure
    is_open |= bits == 0
    steps: Steps = rounded.astype(np.int64)
    open_at = np.flatnonzero(is_open)
    for at, more in zip(open_at, source.words(len(open_at)), strict=True):
        steps[at] = _round_exactly(int(bits[at]), int(more), std)
    np.negative(steps, out=steps, where=(words & np.uint64(1)).astype(bool))
    return steps


def _round_exactly(bits: int, more: int, std: float) -> int:
    """Return the rounded magnitude for a tail probability of 117 bits, computed with 50 digits."""
    import mpmath

    with mpmath.workdps(50):
        tail = mpmath.mpf((bits << 65) + 2 * more + 1) / mpmath.mpf(2) ** 118
        from scipy.special import ndtri

        z = mpmath.mpf(-float(ndtri(float(tail))))
        for _ in range(4):  # Newton's method doubles the digits each time
            z += (mpmath.erfc(z / mpmath.sqrt(2)) / 2 - tail) * mpmath.sqrt(2 * mpmath.pi) * mpmath.exp(z * z / 2)
        return int(mpmath.nint(z * std))


def skellam_steps(source: NoiseSource, size: int, variance: float) -> Steps:
    """Return Skellam numbers: the difference of two Poisson numbers of rate variance / 2 each [size].

    Sums of Skellam numbers are Skellam numbers, so shares of many devices add up exactly.
    """
    require(variance, "variance", above=0, most=WIDEST * WIDEST)
    n = _whole(size)
    if variance <= TABLE_UP_TO:
        return _look_up(source, n, find_table(float(variance)))
    hat, steps, left = find_hat(float(variance)), np.empty(n, np.int64), np.arange(n)
    while len(left):
        drawn, is_accepted = _propose(source, len(left), hat)
        if len(left) == n:
            steps = drawn
        else:
            steps[left] = drawn
        left = left[~is_accepted]
    return steps


def _look_up(source: NoiseSource, n: int, table: SkellamTable) -> Steps:
    return _find_cells(source, n, table.high, table.low) + table.first


def _find_cells(source: NoiseSource, n: int, high: Words, low: Words) -> Steps:
    """Return in which cell uniform numbers of 128 bits fall; bounds are given by their high and low words."""
    words, cells = source.words(n), np.empty(n, np.int64)
    guide = np.empty(1 << GUIDE_BITS, np.int64)
    write_guide(high, guide)
    if not find_cells(high, guide, words, cells):
        return cells
    for at in np.flatnonzero(high[np.minimum(cells, len(high) - 1)] == words):  # one in 10^16: 64 bits do not decide
        more = source.words(1)[0]
        while cells[at] < len(high) and high[cells[at]] == words[at] and low[cells[at]] <= more:
            cells[at] += 1
    return cells


def _propose(source: NoiseSource, n: int, hat: SkellamHat) -> tuple[Steps, NDArray[np.bool_]]:
    """Draw numbers under a hat of blocks, and accept each with the probability that is left of the hat."""
    steps, is_accepted = _find_cells(source, n, hat.high, hat.low), np.empty(n, np.bool_)
    words = source.words(n)
    place_in_blocks(words, hat.first_block, hat.width_bits, hat.surely_below, steps, is_accepted)
    open_at = np.flatnonzero(~is_accepted)
    more = (source.words(len(open_at)) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    exact = ((words[open_at] >> np.uint64(33)).astype(np.int64) + more) * 2.0**-31
    unsure = steps[open_at]
    is_accepted[open_at] = exact < hat.share_of_hat(unsure, (unsure >> hat.width_bits) - hat.first_block)
    return steps, is_accepted


def laplace_steps(source: NoiseSource, size: int, scale: float) -> Steps:
    """Return Laplace numbers of `scale` steps, each rounded to a whole number [size].

    A rounded magnitude is 0, or else 1 plus a geometric number; the bits of a geometric number are independent.
    """
    require(scale, "scale", above=0, most=WIDEST)
    n = _whole(size)
    signs = source.words(n)
    steps = np.ones(n, np.int64)
    bit = 0
    while (chance := math.exp(-(2.0**bit) / scale)) > _FEWEST:
        is_set = source.words(n) < _threshold(chance / (1 + chance))
        steps += is_set.astype(np.int64) << bit
        bit += 1
    steps *= source.words(n) < _threshold(math.exp(-0.5 / scale))
    np.negative(steps, out=steps, where=(signs & np.uint64(1)).astype(bool))
    return steps


def _threshold(chance: float) -> np.uint64:
    return np.uint64(min(int(chance * 2.0**64), 2**64 - 1))


def choose_exponential(source: NoiseSource, scores: ArrayLike, sensitivity: float, epsilon: float) -> int:
    """Return one position of `scores`, each with probability proportional to exp(epsilon score / (2 sensitivity)).

    `sensitivity` is the most by which one client changes any score.
    """
    require(sensitivity, "sensitivity", above=0)
    require(epsilon, "epsilon", above=0)
    given = np.asarray(scores, np.float64)
    if given.ndim != 1 or not len(given) or not np.isfinite(given).all():
        raise PrivacyError("Scores to choose from must be a list of finite numbers.", "Leave out what has no score.")
    shares = np.exp((given - given.max()) * (epsilon / (2 * sensitivity)))
    bounds = list(accumulate(int(share * 2.0**200) for share in shares.tolist()))
    high, low = source.words(2).tolist()
    return bisect_right(bounds, (((high << 64) | low) * bounds[-1]) >> 128)


def randomise_bits(source: NoiseSource, bits: ArrayLike, epsilon: float) -> NDArray[np.bool_]:
    """Return the bits, each flipped with probability 1 / (1 + e^epsilon): randomised response."""
    require(epsilon, "epsilon", above=0, most=LARGEST_EPSILON)
    given = np.asarray(bits)
    if given.dtype != bool and not np.isin(given, (0, 1)).all():
        raise PrivacyError("Randomised response takes bits, 0 or 1.", "Give an array of booleans.")
    is_flipped = source.words(given.size) < _threshold(1 / (1 + math.exp(epsilon)))
    return given.astype(bool) ^ is_flipped.reshape(given.shape)


def sum_random_bits(source: NoiseSource, counts: ArrayLike, n: int, epsilon: float) -> Steps:
    """Return how many of `n` clients report a 1, for each of several bits, of whom `counts` have it set.

    Every client's every bit is flipped on its own, as `randomise_bits` does it on a device.
    """
    require(epsilon, "epsilon", above=0, most=LARGEST_EPSILON)
    given = np.asarray(counts, np.int64)
    if given.ndim != 1 or (given < 0).any() or (given > n).any():
        raise PrivacyError(f"Of {n} clients between 0 and {n} have a bit set.", "Give one count for each bit.")
    flip, answers = _threshold(1 / (1 + math.exp(epsilon))), np.empty(len(given), np.int64)
    for at, count in enumerate(given.tolist()):
        is_flipped = source.words(n) < flip
        answers[at] = count + int(np.count_nonzero(is_flipped[count:])) - int(np.count_nonzero(is_flipped[:count]))
    return answers


def estimate_counts(noisy_counts: ArrayLike, n: int, epsilon: float) -> NDArray[np.float64]:
    """Return unbiased estimates of how many of `n` clients had a bit set, from the sums of their randomised bits."""
    require(epsilon, "epsilon", above=0, most=LARGEST_EPSILON)
    flip = 1 / (1 + math.exp(epsilon))
    return (np.asarray(noisy_counts, np.float64) - n * flip) / (1 - 2 * flip)


def _whole(size: int | Sequence[int]) -> int:
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 0:
        raise PrivacyError(f"The number of draws is {size!r}.", "Give a whole number of at least 0.")
    return int(size)
