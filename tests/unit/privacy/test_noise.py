"""Noise in whole steps: its moments, its exact probabilities, its streams, and what it refuses."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import chisquare, ks_2samp, skellam

from tacit.errors import PrivacyError
from tacit.privacy import noise
from tacit.privacy.dp import ContributionSpec, DifferentialPrivacy, DPConfig
from tacit.privacy.noise import (
    NoiseSource,
    SimulatedNoise,
    Steps,
    SystemNoise,
    Words,
    choose_exponential,
    estimate_counts,
    gaussian_steps,
    laplace_steps,
    randomise_bits,
    skellam_steps,
)
from tacit.privacy.skellam import find_hat, find_table, log_mass
from tacit.random import Key
from tacit.updates import Ring

MANY = 10**6
Draw = Callable[[NoiseSource, int, float], Steps]
Mass = Callable[[NDArray[np.int64], float], NDArray[np.float64]]


def source(*names: str | int) -> SimulatedNoise:
    return SimulatedNoise(Key(7).child(*names))


def gaussian_mass(k: NDArray[np.int64], std: float) -> NDArray[np.float64]:
    far = np.abs(k)  # differences of lower tails keep their digits
    return np.asarray(ndtr(-(far - 0.5) / std) - ndtr(-(far + 0.5) / std))


def skellam_mass(k: NDArray[np.int64], std: float) -> NDArray[np.float64]:
    return np.asarray(skellam.pmf(k, std * std / 2, std * std / 2))


def laplace_mass(k: NDArray[np.int64], scale: float) -> NDArray[np.float64]:
    far = np.abs(k)
    tails = np.exp(-(far - 0.5) / scale) - np.exp(-(far + 0.5) / scale)
    return np.where(far == 0, 1 - np.exp(-0.5 / scale), tails / 2)


def draw_skellam(words: NoiseSource, size: int, std: float) -> Steps:
    return skellam_steps(words, size, std * std)


DRAWS: dict[str, tuple[Draw, Mass]] = {
    "gaussian": (gaussian_steps, gaussian_mass),
    "skellam": (draw_skellam, skellam_mass),
    "laplace": (laplace_steps, laplace_mass),
}


@pytest.mark.slow
@pytest.mark.parametrize("width", [0.3, 1.0, 3.7, 99.9, 100.1, 54_500.0, 1e9])
@pytest.mark.parametrize("name", DRAWS)
def test_moments(name: str, width: float) -> None:
    draw, mass = DRAWS[name]
    drawn = draw(source(name), MANY, width)
    assert drawn.dtype == np.int64
    if width < 1000:
        reach = math.ceil(30 * width) + 30
        k = np.arange(-reach, reach + 1)
        variance, fourth = (float((mass(k, width) * k.astype(float) ** power).sum()) for power in (2, 4))
    else:
        variance = {"laplace": 2.0}.get(name, 1.0) * width**2
        fourth = {"laplace": 24.0}.get(name, 3.0) * width**4
    spread = math.sqrt((fourth / variance**2 - 1) / MANY)  # of the measured variance
    assert drawn.astype(float).var() == pytest.approx(variance, rel=max(0.01, 4 * spread))
    assert abs(drawn.mean()) < 4 * math.sqrt(variance / MANY)
    odd = (drawn & 1).mean()
    if width > 50:
        assert odd == pytest.approx(0.5, abs=0.003)  # the lowest bit is noise as well
    assert (np.abs(drawn.astype(float)) ** 4).mean() == pytest.approx(fourth, rel=0.1)


@pytest.mark.parametrize("width", [0.3, 1.0, 2.5, 20.0, 150.0])
@pytest.mark.parametrize("name", DRAWS)
def test_frequencies_are_those_of_the_exact_probabilities(name: str, width: float) -> None:
    draw, mass = DRAWS[name]
    drawn = draw(source(name, "fit"), MANY, width)
    reach = math.ceil(40 * width) + 40
    k = np.arange(-reach, reach + 1)
    expected = mass(k, width) * MANY
    counts = np.bincount(drawn + reach, minlength=2 * reach + 1)
    keep = expected > 20
    rest = max(MANY - expected[keep].sum(), 1e-9)
    observed = np.append(counts[keep], MANY - counts[keep].sum())
    if rest < 5:
        assert observed[-1] < 30
        observed, expected_kept = observed[:-1], expected[keep] / expected[keep].sum() * counts[keep].sum()
    else:
        expected_kept = np.append(expected[keep], rest)
    assert chisquare(observed, expected_kept).pvalue > 1e-4


def test_probabilities_of_wide_skellam_noise() -> None:
    for std in (101.0, 300.0):
        k = np.arange(-int(12 * std), int(12 * std) + 1)
        near = np.abs(k) < 5 * std  # where scipy's own probabilities keep their digits
        ours = log_mass(k, std**2) - 0.5 * math.log(2 * math.pi * std**2)
        assert ours[near] == pytest.approx(np.log(skellam_mass(k, std))[near], abs=1e-9)
        assert np.exp(ours).sum() == pytest.approx(1.0, abs=1e-12)


def test_table_and_hat_meet() -> None:
    table = find_table(1e4)
    bounds = np.array([int(h) * 2**64 + int(low) for h, low in zip(table.high, table.low, strict=True)], object)
    masses = np.diff(bounds) / 2**128
    k = np.arange(table.first + 1, table.first + 1 + len(masses))
    near = np.abs(k) < 1200
    expected = np.exp(log_mass(k, 1e4)) / math.sqrt(2 * math.pi * 1e4)
    assert masses[near].astype(float) == pytest.approx(expected[near], rel=1e-12)
    assert int(bounds[len(bounds) // 2]) + int(bounds[len(bounds) // 2 - 1]) == pytest.approx(2**128, rel=1e-30)


def test_a_hat_lies_above_every_probability() -> None:
    hat = find_hat(12_345.0)
    width = 1 << hat.width_bits
    k = np.arange(hat.first_block * width, -hat.first_block * width)
    cells = (k >> hat.width_bits) - hat.first_block
    shares = hat.share_of_hat(k, cells)
    assert (shares < 1).all()
    assert (shares * 2.0**31 >= hat.surely_below[cells]).all()


@pytest.mark.slow
@pytest.mark.parametrize("gone", [0.0, 0.05, 0.1, 0.15, 0.2])
@pytest.mark.parametrize("name", ["gaussian", "skellam"])
def test_shares_add_up_to_the_whole(name: str, gone: float) -> None:
    n, stated, whole = 20, 0.2, 5_000.0  # 20 devices, noise for up to a fifth of dropouts
    share = whole / math.sqrt(n * (1 - stated))
    draw = DRAWS[name][0]
    stay = round(n * (1 - gone))
    size = 400_000
    total = sum(draw(source(name, "share", device), size, share) for device in range(stay))
    expected = whole**2 * (1 - gone) / (1 - stated)
    assert np.var(total) == pytest.approx(expected, rel=0.01)  # four standard deviations of a measured variance
    assert np.var(total) > 0.99 * whole**2


@pytest.mark.parametrize("n_gone", [4, 5])
def test_shares_of_those_who_are_sure_to_stay_are_a_trusted_servers_noise(n_gone: int) -> None:
    """With as many dropouts as stated, the same distribution; with one more it is narrower, and that is seen."""
    config = {"epsilon": 1.0, "delta": 1e-5}
    of = ContributionSpec((), 1.0, False, 1)
    shared = DifferentialPrivacy.build(DPConfig(**config, dropped=0.2), of, Ring(), 20)
    central = DifferentialPrivacy.build(DPConfig(**config, mode="central"), of, Ring(), 20)
    each = shared.share_variance(1.0, 20)
    shares = sum(shared.draw(source("device", device), 100_000, each) for device in range(20 - n_gone))
    whole = central.draw_whole(source("server"), 100_000, 1.0, 20, 20)
    assert (ks_2samp(shares, whole).pvalue > 1e-3) == (n_gone == 4)
    assert shared.n_needed(20) == 16


class FixedWords(SimulatedNoise):
    """A stream that begins with given words."""

    def __init__(self, *first: int) -> None:
        super().__init__(Key(1))
        self.first = list(first)

    def words(self, n: int) -> Words:
        begin, self.first = self.first[:n], self.first[n:]
        return np.concatenate([np.array(begin, np.uint64), super().words(n - len(begin))])


def test_a_draw_that_its_bits_leave_open_takes_more_of_them() -> None:
    std = 54_500.0
    tail = float(ndtr(-1000.5 / std))  # on the border between 1000 and 1001
    bits = int(tail * 2**53)
    low = gaussian_steps(FixedWords(bits << 12, 0), 1, std)  # the smaller tail: further out
    high = gaussian_steps(FixedWords(bits << 12, 2**64 - 1), 1, std)
    assert {int(low[0]), int(high[0])} <= {1000, 1001}
    assert low[0] >= high[0]
    assert any(
        gaussian_steps(FixedWords(b << 12, 0), 1, std)[0] != gaussian_steps(FixedWords(b << 12, 2**64 - 1), 1, std)[0]
        for b in range(bits - 8, bits + 9)
    )


@pytest.mark.parametrize("more", [0, 1, 2**63, 2**64 - 1])
def test_the_farthest_draws_are_finite_and_mirrored(more: int) -> None:
    right = gaussian_steps(FixedWords(0, more), 1, 1000.0)[0]
    left = gaussian_steps(FixedWords(1, more), 1, 1000.0)[0]
    assert right == -left
    tail = (more + 0.5) * 2.0**-117
    assert right == pytest.approx(-1000 * ndtri(tail), abs=1)


def test_exact_rounding_is_that_of_many_digits() -> None:
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(60):
        for bits, more, std in ((3, 5, 1e9), (2**51, 7, 1e9), (2**52 - 1, 2**64 - 1, 1e9), (12345678, 9, 0.3)):
            tail = (mpmath.mpf(bits) + (mpmath.mpf(more) + 0.5) / 2**64) / 2**53
            exact = mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * tail) * std
            assert noise._round_exactly(bits, more, std) == int(mpmath.nint(exact))


def test_simulated_noise_repeats_and_system_noise_does_not() -> None:
    first, second = source("a").words(100), source("a").words(100)
    assert np.array_equal(first, second)
    whole = source("a")
    assert np.array_equal(np.concatenate([whole.words(30), whole.words(70)]), first)
    for other in (source("b"), SimulatedNoise(Key(8).child("a")), source("a", 1), source("a", "1")):
        assert not np.intersect1d(other.words(100), first).size
    assert not np.intersect1d(SystemNoise().words(1000), SystemNoise().words(1000)).size
    assert SimulatedNoise.is_simulated
    assert not SystemNoise.is_simulated


def test_the_stream_is_aes_in_counter_mode() -> None:
    key = hashlib.sha256(b'tacit noise [7, ["a", 3]]').digest()
    stream = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor().update(bytes(80))
    assert source("a", 3).words(10).tobytes() == stream


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_does_not_repeat_its_parents_noise() -> None:
    system = SystemNoise()
    system._process = -1  # as if this process were a child
    stream = system._stream
    ours = system.words(4)
    theirs = np.frombuffer(stream.update(bytes(32)), np.uint64)  # type: ignore[attr-defined]
    assert not np.array_equal(ours, theirs)
    assert system._process == os.getpid()


def test_the_exponential_mechanism_follows_its_probabilities() -> None:
    words, scores = source("choose"), [0.0, 1.0, 3.0]
    chosen = [choose_exponential(words, scores, sensitivity=1.0, epsilon=2.0) for _ in range(30_000)]
    expected = np.exp(scores) / np.exp(scores).sum() * len(chosen)  # epsilon / (2 sensitivity) = 1
    assert chisquare(np.bincount(chosen, minlength=3), expected).pvalue > 1e-4
    assert choose_exponential(words, [0.0, 1e9, 5.0], 1.0, 1.0) == 1
    assert choose_exponential(words, [-1e300], 1.0, 1.0) == 0


def test_randomised_bits_are_flipped_as_often_as_stated_and_counts_come_back() -> None:
    n, epsilon = 200_000, math.log(3)  # three of four stay
    bits = np.arange(n) % 5 == 0
    noisy = randomise_bits(source("bits"), bits, epsilon)
    assert (noisy == bits).mean() == pytest.approx(0.75, abs=0.005)
    assert estimate_counts(noisy.sum(), n, epsilon) == pytest.approx(n / 5, abs=4 * math.sqrt(n * 0.75 * 0.25) / 0.5)
    # by hand: of 100 clients 40 have the bit; 40 x .75 + 60 x .25 = 45 are expected
    assert float(estimate_counts(45, 100, epsilon)) == pytest.approx(40)
    table = randomise_bits(source("bits"), np.zeros((3, 4), int), 40.0)
    assert table.shape == (3, 4)
    assert not table.any()


@pytest.mark.parametrize("width", [0.0, -1.0, math.nan, math.inf, 1e40, None, "1"])
def test_wrong_widths_are_refused(width: float) -> None:
    for draw in (gaussian_steps, skellam_steps, laplace_steps):
        with pytest.raises(PrivacyError):
            draw(source(), 3, width)
    with pytest.raises(PrivacyError):
        choose_exponential(source(), [1.0], width if width != 1e40 else 0.0, 1.0)
    with pytest.raises(PrivacyError):
        randomise_bits(source(), [1], width)


@pytest.mark.parametrize("size", [-1, 1.5, True, None])
def test_wrong_sizes_are_refused(size: int) -> None:
    for draw in (gaussian_steps, skellam_steps, laplace_steps):
        with pytest.raises(PrivacyError):
            draw(source(), size, 10.0)


def test_nothing_is_drawn_where_nothing_is_asked_for() -> None:
    for width in (10.0, 1e6):
        for draw in (gaussian_steps, skellam_steps, laplace_steps):
            assert draw(source(), 0, width).shape == (0,)


@pytest.mark.parametrize("scores", [[], [math.nan], [math.inf, 1.0], [[1.0]]])
def test_scores_without_a_choice_are_refused(scores: list[float]) -> None:
    with pytest.raises(PrivacyError):
        choose_exponential(source(), scores, 1.0, 1.0)


def test_what_is_not_a_bit_is_refused() -> None:
    with pytest.raises(PrivacyError):
        randomise_bits(source(), [0, 2], 1.0)
