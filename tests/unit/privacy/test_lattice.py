"""What whole steps cost, against exact probabilities: every step of the proofs in docs/privacy.md, as numbers."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import ndtr

from tacit.errors import PrivacyError
from tacit.privacy.accounting import PrivacyEvent, account
from tacit.privacy.gaussian import delta_of_gdp
from tacit.privacy.lattice import find_lattice_cost, lattice_delta
from tacit.privacy.skellam import find_table

Floats = NDArray[np.float64]


def rounded_gaussian(std: float, reach: int) -> Floats:
    """Return the probabilities of -reach, ..., reach."""
    far = np.abs(np.arange(-reach, reach + 1))
    return np.asarray(ndtr(-(far - 0.5) / std) - ndtr(-(far + 0.5) / std))


def exact_skellam(variance: float) -> tuple[NDArray[np.int64], Floats]:
    """Return numbers and their probabilities, from the whole numbers of the table."""
    table = find_table(variance)
    bounds = [int(high) * 2**64 + int(low) for high, low in zip(table.high, table.low, strict=True)]
    masses = [b - a for a, b in pairwise(bounds)]
    k = np.arange(table.first + 1, table.first + 1 + len(masses))
    return k, np.array([float(Fraction(mass, 2**128)) for mass in masses])


def delta_of_shift(mass: Floats, shift: int, epsilon: float) -> float:
    """Return the exact delta of noise with these probabilities on one number that moves by `shift`."""
    moved = np.concatenate([np.zeros(shift), mass])
    still = np.concatenate([mass, np.zeros(shift)])
    return float(np.maximum(moved - math.exp(epsilon) * still, 0).sum())


@pytest.mark.parametrize("std", [10.0, 17.3, 60.0, 99.0])
def test_each_step_of_the_proof_for_skellam_noise(std: float) -> None:
    variance = std * std
    k, p = exact_skellam(variance)
    inside = np.abs(k) <= 12 * std
    k, p = k[inside], p[inside]
    z2 = k * k / variance
    q = rounded_gaussian(std, int(k.max()))
    log_ratio = np.log(p / q)
    upper, lower = (z2**2 / 24 + 0.3) / variance, (0.375 + 5.1 / variance) * z2 / variance
    assert (log_ratio <= upper).all()
    assert (log_ratio >= -lower).all()
    most = np.maximum(upper, lower)
    for mass in (p, q):
        assert (mass * most**2).sum() <= 0.9 / variance**2
        assert mass[z2 > 100].sum() <= 2 * math.exp(-50 + 1e4 / (24 * variance) + 5 / std)
    assert most[z2 <= 100].max() <= 417 / variance
    assert ((p - q) * log_ratio).sum() <= 1.8 / variance**2
    assert np.abs(p - q).sum() / 2 <= lattice_delta(std, 1, 1e9)


@pytest.mark.parametrize("shares", [2, 3, 6])
@pytest.mark.parametrize("part", [0.45, 0.6, 0.8, 1.0])
def test_each_step_of_the_proof_for_rounded_shares(shares: int, part: float) -> None:
    whole = part * math.sqrt(shares)
    reach = math.ceil(12 * part) + 2
    p = rounded_gaussian(part, reach)
    for _ in range(shares - 1):
        p = np.convolve(p, rounded_gaussian(part, reach))
    k = np.arange(len(p)) - len(p) // 2
    t = np.linspace(-40 / whole, 40 / whole, 40_001)  # the reference, from its characteristic function
    curve = np.exp(-((whole * t) ** 2) / 2) * np.sinc(t / (2 * np.pi)) ** shares
    near = np.abs(k) <= 4 * whole
    q = np.array([(curve * np.cos(t * number)).sum() * (t[1] - t[0]) / (2 * np.pi) for number in k[near]])
    assert np.abs(np.log(p[near] / q)).max() <= find_lattice_cost("gaussian", whole, 1, shares).epsilon + 1e-9
    assert np.abs(p[near] - q).sum() / 2 <= lattice_delta(whole, 1, 1e9, "gaussian", shares) + 1e-9


def test_one_rounded_gaussian_costs_nothing() -> None:
    cost = find_lattice_cost("gaussian", 0.3, 1000)
    assert cost.epsilon == 0.0
    assert cost.delta < 1e-30
    assert lattice_delta(0.3, 1000, 5, "gaussian") == 0.0


@settings(max_examples=40)
@given(st.floats(10, 99), st.integers(1, 40), st.floats(0.05, 6))
def test_exact_skellam_noise_keeps_what_is_accounted(std: float, shift: int, epsilon: float) -> None:
    std = round(std, 1)  # tables are kept per variance
    _, mass = exact_skellam(std * std)
    exact = delta_of_shift(mass, shift, epsilon)
    allowed = delta_of_gdp(shift / std, epsilon)
    assert exact <= allowed + (1 + math.exp(epsilon)) * lattice_delta(std, 1, shift)
    cost = find_lattice_cost("skellam", std, 1)
    if cost.epsilon < epsilon / 2:
        at = delta_of_gdp(shift / std, epsilon - 2 * cost.epsilon)
        assert exact <= math.exp(cost.epsilon) * at + (1 + math.exp(epsilon)) * cost.delta


@settings(max_examples=40)
@given(st.floats(0.5, 3), st.integers(1, 6), st.integers(1, 12), st.floats(0.05, 6))
def test_exact_rounded_shares_keep_what_is_accounted(part: float, shares: int, shift: int, epsilon: float) -> None:
    whole = part * math.sqrt(shares)
    one = rounded_gaussian(part, math.ceil(12 * part) + 2)
    mass = one
    for _ in range(shares - 1):
        mass = np.convolve(mass, one)
    exact = delta_of_shift(mass, shift, epsilon)
    allowed = delta_of_gdp(shift / whole, epsilon)
    bound = lattice_delta(whole, 1, shift, "gaussian", shares)
    assert exact <= allowed + (1 + math.exp(epsilon)) * bound + 1e-12


def test_two_cells_of_skellam_noise() -> None:
    std, shift, delta = 60.0, (36, 48), 1e-5  # 60 steps in length
    k, mass = exact_skellam(std * std)
    near = np.abs(k) <= 480
    mass = mass[near] / mass[near].sum()
    moved = [np.concatenate([np.zeros(by), mass]) for by in shift]
    still = [np.concatenate([mass, np.zeros(by)]) for by in shift]
    far, here = np.outer(*moved), np.outer(*still)
    event = PrivacyEvent("skellam", 1.0, std_in_steps=std, dimension=2)
    epsilon = account([event], delta).epsilon_server
    assert epsilon > 4.377  # of the Gaussian
    assert np.maximum(far - math.exp(epsilon) * here, 0).sum() <= delta


@settings(max_examples=50)
@given(st.floats(10, 1e9), st.integers(1, 10**7), st.integers(1, 10**6), st.sampled_from(["skellam", "gaussian"]))
def test_finer_steps_and_fewer_cells_cost_less(std: float, cells: int, shares: int, mechanism: str) -> None:
    here = find_lattice_cost(mechanism, std, cells, shares)
    finer, wider = (
        find_lattice_cost(mechanism, 2 * std, cells, shares),
        find_lattice_cost(mechanism, std, 2 * cells, shares),
    )
    assert finer.epsilon <= here.epsilon <= wider.epsilon
    assert here.delta <= wider.delta
    assert here.epsilon >= 0
    assert 0 <= here.delta <= 1
    first = lattice_delta(std, cells, 1e6, mechanism, shares)
    assert lattice_delta(2 * std, cells, 1e6, mechanism, shares) <= first
    assert first <= lattice_delta(std, 2 * cells, 1e6, mechanism, shares)
    assert lattice_delta(std, cells, 0.0, mechanism, shares) == 0.0


@pytest.mark.parametrize(
    ("mechanism", "std", "cells", "shares"),
    [("skellam", 9.9, 1, 1), ("laplace", 50, 1, 1), ("gaussian", math.nan, 1, 1), ("gaussian", 5, 0, 1),
     ("gaussian", 5, 1, 0), ("skellam", -5, 1, 1)],
)  # fmt: skip
def test_wrong_noise_is_refused(mechanism: str, std: float, cells: int, shares: int) -> None:
    with pytest.raises(PrivacyError):
        find_lattice_cost(mechanism, std, cells, shares)
    with pytest.raises(PrivacyError):
        lattice_delta(std, cells, 1.0, mechanism, shares)
