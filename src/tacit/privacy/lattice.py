"""What it costs that noise is drawn in whole steps, by many devices, while a Gaussian is accounted.

Two noises are (h, b)-close if each gives every set at most e^h times the other's probability, plus b. docs/privacy.md
proves the bounds:

    gaussian  the sum of `shares` Gaussians, each rounded, is close to one Gaussian plus independent noise, rounded
              once. That is post-processing of the Gaussian; h falls like exp(-pi^2 s^2), s the steps of one share.
    skellam   a sum of Skellam shares is Skellam noise, and close to a rounded Gaussian of the same variance V; a cell
              adds about 1/V^2 to the mean of h, and 1/V to its deviation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tacit.errors import PrivacyError
from tacit.privacy.gaussian import require

LEAST_STD = 10.0  # steps of Skellam noise; the proof needs a variance of 100
DRAWN = 2.0**-40  # relative error of a probability with which `noise.skellam_steps` draws, at most
LAPLACE_ERROR = 2.0**-46  # total variation between a number of `noise.laplace_steps` and rounded Laplace noise, at most
RARE = 60.0  # what happens with probability exp(-RARE) is part of b


@dataclass(frozen=True)
class LatticeCost:
    """How close two noises are: (h, b) is here (epsilon, delta)."""

    epsilon: float
    delta: float


def find_lattice_cost(mechanism: str, std_in_steps: float, dimension: int, shares: int = 1) -> LatticeCost:
    """Return how close the noise of a sum is to a rounded Gaussian, over all cells together."""
    std = require(std_in_steps, "std_in_steps", above=0)
    n, cells = require(shares, "shares", least=1), require(dimension, "dimension", least=1)
    if mechanism == "gaussian":
        part = std / math.sqrt(n)
        undecided = n * cells * (20 * part + 2) * 2.0**-117  # draws that 117 bits leave open
        return LatticeCost((n - 1) * cells * _log_wrapped(part) if n > 1 else 0.0, min(1.0, undecided))
    _check_skellam(mechanism, std)
    variance = std * std
    tail = 2 * math.exp(-50 + 1e4 / (24 * variance) + 5 / std)  # beyond 10 standard deviations
    width, spread = 2 * 417 / variance, 0.9 / variance**2
    linear = width * RARE / 3
    bernstein = linear + math.sqrt(linear**2 + 2 * cells * spread * RARE)
    mean = cells * (1.8 / variance**2 + math.sqrt(tail) / variance)
    drawn = n * cells * DRAWN**2 + DRAWN * math.sqrt(2 * n * cells * RARE)
    epsilon = mean + bernstein + drawn
    rare = cells * tail + 2 * math.exp(-RARE) + n * cells * 2.0**-115  # the last: draws beyond 13 standard deviations
    return LatticeCost(epsilon, min(1.0, rare * math.exp(min(epsilon, RARE))))  # closeness twice: b + e^h b'


def lattice_delta(
    std_in_steps: float, dimension: int, shift_in_steps: float, mechanism: str = "skellam", shares: int = 1
) -> float:
    """Bound what noise in whole steps adds to delta: at every epsilon at most (1 + e^epsilon) times what is returned.

    `std_in_steps` is the standard deviation of the whole noise per cell, `dimension` the number of cells,
    `shift_in_steps` the Euclidean sensitivity. It is one number where `find_lattice_cost` has two that are smaller.
    """
    std = require(std_in_steps, "std_in_steps", above=0)
    shift = require(shift_in_steps, "shift_in_steps", least=0)
    n, cells = require(shares, "shares", least=1), require(dimension, "dimension", least=1)
    one_norm = min(math.sqrt(cells) * shift, shift * shift)  # of whole numbers; a step changes a cell by 0.4 / std
    if mechanism == "gaussian":
        part = std / math.sqrt(n)
        distance = math.expm1(min(1.0, (n - 1) * cells * _log_wrapped(part))) / 2 if n > 1 else 0.0
        return min(1.0, distance, 0.4 * one_norm / part)
    _check_skellam(mechanism, std)
    return min(1.0, 0.7 * math.sqrt(cells) / (std * std), 0.4 * one_norm / std)


def _log_wrapped(part: float) -> float:
    """Return the most by which the fraction of a share deviates from uniform, in logarithms of its density."""
    decay = math.pi**2 * part * part
    wrapped = 2 * math.exp(-decay) / -math.expm1(-decay)
    return -math.log1p(-wrapped) if wrapped < 1 else math.inf


def _check_skellam(mechanism: str, std: float) -> None:
    if mechanism != "skellam":
        raise PrivacyError(f"There is no noise in steps named '{mechanism}'.", "Known: gaussian, skellam.")
    if std < LEAST_STD:
        raise PrivacyError(
            f"Skellam noise of {std:.3g} steps is too coarse to be accounted.",
            f"Use finer steps (more fraction bits) or more noise: at least {LEAST_STD:g} steps.",
        )
