"""Audits: a sound mechanism is never above its ledger, and broken ones are found."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from tacit.errors import PrivacyError
from tacit.privacy.accounting import PrivacyEvent, account, mu_for
from tacit.privacy.audit import bound_by_one_run, bound_by_two_worlds, chance_of_guesses
from tacit.privacy.noise import SimulatedNoise, gaussian_steps
from tacit.random import Key

DELTA, EPSILON = 1e-5, 2.0
NOISE = 1 / mu_for(EPSILON, DELTA)
LEDGER = account([PrivacyEvent("gaussian", NOISE)], DELTA).epsilon_server
UNIT = 2**12  # steps of the grid in a length of 1
Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Mechanism:
    """A sum of messages of length at most 1, with noise in every cell; each field is one way to break it."""

    noise: float = NOISE
    clip: float = 1.0
    releases_counts: bool = False

    def release(self, is_member: NDArray[np.bool_], *names: str | int) -> Scores:
        """Return what a reader scores canaries with: each has a cell of its own, and asks for a message of length 9."""
        words = SimulatedNoise(Key(3).child(*names))
        message = min(9.0, self.clip) * UNIT
        scores = is_member * message + gaussian_steps(words, len(is_member), self.noise * UNIT)
        return np.asarray(is_member, np.float64) if self.releases_counts else scores

    def two_worlds(self, runs: int, *names: str | int) -> float:
        inside, outside = (self.release(np.full(runs, flag), *names, int(flag)) for flag in (True, False))
        return bound_by_two_worlds(inside, outside, DELTA)

    def one_run(self, canaries: int, *names: str | int) -> float:
        is_member = Key(4).child(*names).uniform(np.array([0]), canaries)[0] < 0.5
        return bound_by_one_run(self.release(is_member, *names), is_member, DELTA)


BROKEN = {
    "noise halved": Mechanism(noise=NOISE / 2),
    "clip off by two": Mechanism(clip=2.0),
    "counts unaccounted": Mechanism(releases_counts=True),
}


@pytest.mark.slow
def test_a_sound_mechanism_is_never_above_its_ledger_in_two_worlds() -> None:
    bounds = [Mechanism().two_worlds(10_000, "sound", run) for run in range(200)]
    assert max(bounds) <= LEDGER
    assert np.median(bounds) > 0.5  # and the audit does see something


@pytest.mark.slow
def test_a_sound_mechanism_is_never_above_its_ledger_in_one_run() -> None:
    bounds = [Mechanism().one_run(1_000, "one", run) for run in range(200)]
    assert max(bounds) <= LEDGER
    assert np.median(bounds) > 0.2


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_mechanism_is_found_in_two_worlds(name: str) -> None:
    assert BROKEN[name].two_worlds(100_000, name) > LEDGER
    assert Mechanism().two_worlds(100_000, name) <= LEDGER


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_mechanism_is_found_in_one_run(name: str) -> None:
    assert BROKEN[name].one_run(20_000, name) > LEDGER
    assert Mechanism().one_run(20_000, name) <= LEDGER


def test_the_more_runs_the_closer_is_the_bound() -> None:
    bounds = [Mechanism().two_worlds(runs, "more") for runs in (200, 5_000, 400_000)]
    assert bounds == sorted(bounds)
    assert bounds[-1] > 0.6 * LEDGER


def test_scores_in_either_direction_are_used() -> None:
    inside, outside = (Mechanism().release(np.full(20_000, flag), "side", int(flag)) for flag in (True, False))
    up, down = bound_by_two_worlds(inside, outside, DELTA), bound_by_two_worlds(-inside, -outside, DELTA)
    swapped = bound_by_two_worlds(outside, inside, DELTA)
    assert up == pytest.approx(down)
    assert swapped == pytest.approx(up)


def test_clear_separation_by_hand() -> None:
    # 500 of 500 and 0 of 500 are measured; each rate lies beyond .025^(1/500) = .99265: epsilon >= log(.99265 / .00735)
    found = bound_by_two_worlds(np.ones(1000), np.zeros(1000), 0.0)
    low = 0.025 ** (1 / 500)
    assert found == pytest.approx(math.log(low / (1 - low)), rel=1e-6)
    assert bound_by_two_worlds(np.ones(1000), np.ones(1000), 0.0) == 0.0


def test_chances_of_guesses_by_hand() -> None:
    # 10 right of 10 without delta: (e^epsilon / (1 + e^epsilon))^10; epsilon log 3: .75^10
    assert chance_of_guesses(50, 10, 10, math.log(3), 0.0) == pytest.approx(0.75**10)
    # 1 right of 1 at epsilon 0: 1/2, and delta adds 2 m delta x P(0 <= number < 1) = 2 x 5 x .01 x 1/2
    assert chance_of_guesses(5, 1, 1, 0.0, 0.01) == pytest.approx(0.5 + 0.05)
    assert chance_of_guesses(5, 3, 0, 1.0, 0.01) == 1.0


@pytest.mark.parametrize(("guesses", "right", "epsilon"), [(7, 5, 0.3), (40, 31, 1.0), (12, 12, 2.0)])
def test_chances_of_guesses_against_a_loop(guesses: int, right: int, epsilon: float) -> None:
    share = math.exp(epsilon) / (1 + math.exp(epsilon))
    numbers = binom(guesses, share)
    largest = max(sum(numbers.pmf(right - j) for j in range(1, i + 1)) / i for i in range(1, right + 1))
    expected = numbers.sf(right - 1) + 2 * 100 * 1e-4 * largest
    assert chance_of_guesses(100, guesses, right, epsilon, 1e-4) == pytest.approx(min(1.0, expected))


def test_guesses_without_knowledge_bound_nothing() -> None:
    coins = Key(5).uniform(np.array([0, 1]), 5_000)
    assert bound_by_one_run(coins[0], coins[1] < 0.5, DELTA) == 0.0


@pytest.mark.parametrize(
    ("inside", "outside", "delta", "confidence"),
    [
        ([1.0] * 3, [0.0] * 9, 1e-5, 0.95),
        ([1.0, math.nan] * 9, [0.0] * 9, 1e-5, 0.95),
        ([[1.0]] * 9, [0.0] * 9, 1e-5, 0.95),
        ([1.0] * 9, [0.0] * 9, -1e-5, 0.95),
        ([1.0] * 9, [0.0] * 9, 1.0, 0.95),
        ([1.0] * 9, [0.0] * 9, 1e-5, 1.0),
        ([1.0] * 9, [0.0] * 9, 1e-5, math.nan),
    ],
)
def test_wrong_audits_are_refused(inside: list[float], outside: list[float], delta: float, confidence: float) -> None:
    with pytest.raises(PrivacyError):
        bound_by_two_worlds(inside, outside, delta, confidence)


@pytest.mark.parametrize("members", [[True] * 3, [1] * 12, [True] * 11])
def test_canaries_need_one_boolean_each(members: list[bool]) -> None:
    with pytest.raises(PrivacyError):
        bound_by_one_run(np.arange(12.0), members, DELTA)
