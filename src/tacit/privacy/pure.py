"""Differential privacy without a delta: Laplace noise on sums, and randomised response on single items.

    laplace               the magnitudes of what a client adds are at most S together; noise of scale S / epsilon_i on
                          every number, by a trusted server or on every message
    randomised response   a client reports which of all items it has, at most B; every bit is flipped with probability
                          1 / (1 + e^(epsilon_i / B)) before its message leaves, and sums of bits are unbiased again

Sums compose: epsilon is the sum of the epsilon_i, so a share of the budget is a share of epsilon, and not of its square
as with Gaussian noise. Few sums of few numbers are where that is worth while. docs/privacy.md has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tacit.errors import ConfigError
from tacit.privacy.accounting import PrivacyEvent
from tacit.privacy.dp import RESERVE, ContributionSpec, DifferentialPrivacy, DPConfig
from tacit.privacy.draft import Draft
from tacit.privacy.noise import NoiseSource, estimate_counts, laplace_steps, sum_random_bits
from tacit.random import Key
from tacit.updates import PlannedRows, Ring, Total, UpdatePlan

MOST_DRAWS = 2**32  # numbers that a simulation draws for the messages of one round
LARGEST_PER_BIT = 20.0  # epsilon of one bit: 64 random bits decide whether it is flipped


def build_guarantee(config: DPConfig, of: ContributionSpec, ring: Ring, n_clients: int) -> DifferentialPrivacy:
    """Return the stage of the mechanism that was chosen."""
    kinds = {"laplace": LaplacePrivacy, "randomised-response": RandomisedResponse}
    return kinds.get(str(config.mechanism), DifferentialPrivacy).build(config, of, ring, n_clients)


@dataclass(frozen=True)
class LaplacePrivacy(DifferentialPrivacy):
    """The stage with Laplace noise: central, or on every message."""

    @classmethod
    def find_bound(cls, config: DPConfig, of: ContributionSpec) -> float:
        """Return the largest sum of magnitudes: a Euclidean bound of the method's own says nothing of it."""
        if config.bound is None:
            raise ConfigError(
                "Laplace noise needs a bound on the sum of the magnitudes of all that a client adds to a sum.",
                "Set privacy.bound to it, or use privacy.mechanism=gaussian.",
            )
        return config.bound

    @classmethod
    def find_mu(cls, epsilon: float, delta: float, bound: float) -> float:
        """Noise of scale S / epsilon has the standard deviation sqrt(2) S / epsilon."""
        return epsilon / math.sqrt(2.0)

    def shape(self, draft: Draft, key: Key) -> None:
        """Bound the sum of magnitudes of what each client adds."""
        draft.bound_magnitudes(self.bound, self.count_units, self.ring)

    def std(self, share: float) -> float:
        """Return the standard deviation of the noise of a message, or of a sum: it falls with the share itself."""
        return self.bound / (self.mu * share)

    def event(self, share: float, label: str, n_asked: int, shapes: Mapping[str, tuple[int, ...]]) -> PrivacyEvent:
        """Return what a round with this share costs every client in it."""
        scale = self.std(share) / math.sqrt(2.0)
        return PrivacyEvent(
            "laplace", noise_multiplier=scale / self.bound, dimension=self.n_numbers(shapes), label=label
        )

    def draw_whole(self, source: NoiseSource, size: int, share: float, n_asked: int, n_summed: int) -> np.ndarray:
        """Draw the noise of a sum: once, or once for each message, because sums of Laplace numbers are none."""
        scale = self.std(share) / math.sqrt(2.0) * float(self.ring.scale)
        times = 1 if self.config.mode == "central" else n_summed
        _refuse_too_many(times * size)
        drawn = np.zeros(size, np.int64)
        for _ in range(times):
            drawn += laplace_steps(source, size, scale)
        return drawn


@dataclass(frozen=True)
class RandomisedResponse(DifferentialPrivacy):
    """The stage that flips bits: a message says which items a client has, and each of its bits may be flipped."""

    @classmethod
    def find_bound(cls, config: DPConfig, of: ContributionSpec) -> float:
        """Return the most items that a client reports."""
        if not of.tells_items:
            raise ConfigError(
                "Randomised response flips bits, and messages of this method are no bits.",
                "Use a method that tells items and nothing else, such as dp-popular, or another privacy.mechanism.",
            )
        if config.bound is None or config.bound != int(config.bound):
            raise ConfigError(
                "Randomised response needs to know how many items a client tells at most.",
                "Set privacy.bound to a whole number.",
            )
        return config.bound

    @classmethod
    def find_mu(cls, epsilon: float, delta: float, bound: float) -> float:
        """The noise of one bit, in units of the bound; shares of the budget are shares of epsilon."""
        if epsilon / bound > LARGEST_PER_BIT:
            raise ConfigError(
                f"An epsilon of {epsilon / bound:.3g} for each item leaves nothing to flip.",
                "Lower privacy.epsilon, or raise privacy.bound.",
            )
        return bound / _std_of_bit(epsilon / bound)

    def narrow(self, plan: UpdatePlan, key: Key) -> UpdatePlan:
        """Keep at most as many items of each client as it may report, drawn at random."""
        return replace(plan, parts=tuple(self._narrow_part(plan, part, key) for part in plan.parts))

    def _narrow_part(self, plan: UpdatePlan, part: PlannedRows, key: Key) -> PlannedRows:
        kept = np.ones(part.n_rows, np.uint8) if part.kept is None else part.kept.copy()
        for at in np.flatnonzero(part.kept_sizes() > self.bound):
            rows = np.arange(part.ptr[at], part.ptr[at + 1])[kept[part.ptr[at] : part.ptr[at + 1]] > 0]
            drawn = key.uniform(plan.clients[at : at + 1], len(rows))[0]
            kept[rows[np.argsort(drawn, kind="stable")[int(self.bound) :]]] = 0
        return replace(part, kept=kept)

    def shape(self, draft: Draft, key: Key) -> None:
        """Send ones, whatever was learnt."""
        draft.replace_by_bits()

    def std(self, share: float) -> float:
        """Return the standard deviation of what one bit says, read without bias."""
        return _std_of_bit(self._epsilon(share) / self.bound)

    def event(self, share: float, label: str, n_asked: int, shapes: Mapping[str, tuple[int, ...]]) -> PrivacyEvent:
        """Return what a round with this share costs every client in it, all its bits together."""
        return PrivacyEvent("randomised-response", epsilon=self._epsilon(share), label=label)

    def add_noise(self, total: Total, share: float, n_asked: int, source: NoiseSource) -> Total:
        """Flip the bits of all clients, add them up, and correct the sum for what flips add on average."""
        per_bit = self._epsilon(share) / self.bound
        sums = {}
        for name, array in total.sums.items():
            _refuse_too_many(array.size * total.n_clients)
            true = array.ravel() // int(self.ring.scale)
            answers = sum_random_bits(source, true, total.n_clients, per_bit)
            counts = estimate_counts(answers, total.n_clients, per_bit)
            sums[name] = np.rint(counts * float(self.ring.scale)).astype(np.int64).reshape(array.shape)
        return replace(total, sums=sums)

    def _epsilon(self, share: float) -> float:
        return self.config.epsilon * RESERVE * share


def _std_of_bit(epsilon: float) -> float:
    """Return the standard deviation of a bit that is flipped with probability 1 / (1 + e^epsilon), read without bias.

    >>> round(_std_of_bit(math.log(3)), 6)  # flipped with probability 1/4: sqrt(1/4 3/4) / (1 - 2/4)
    0.866025
    """
    return 0.5 / math.sinh(epsilon / 2.0)


def _refuse_too_many(n_draws: int) -> None:
    if n_draws > MOST_DRAWS:
        raise ConfigError(
            f"A simulation would draw {n_draws:,} numbers for the messages of one round.",
            "Use fewer items, clients or factors, or privacy.mechanism=gaussian, whose sums are drawn at once.",
        )
