"""Accounting: from what was released to the epsilon that it costs one client.

A ledger holds `PrivacyEvent`s: which mechanism ran with how much noise, how often. `account` turns them into a
`Guarantee` with two numbers, because two readers know different things:

    epsilon_server   the server knows who took part: no amplification by sampling, the client's own participations
    epsilon_others   all others do not: amplification where clients were drawn at random

Both are for one client with everything it did; adding or removing it means that its message is replaced by zeros.
Definitions, and the proofs of what is not taken from a library, are in docs/privacy.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from tacit.errors import PrivacyError, nearest
from tacit.privacy.gaussian import (
    compose_gdp,
    compose_parallel,
    compose_sequential,
    compose_zcdp,
    delta_of_gdp,
    epsilon_of_gdp,
    epsilon_of_zcdp,
    mu_for,
    mu_of_rho,
    require,
    rho_of_gaussian,
    rho_of_mu,
)
from tacit.privacy.lattice import LAPLACE_ERROR, LatticeCost, find_lattice_cost, lattice_delta

__all__ = [
    "ADJACENCY",
    "MECHANISMS",
    "Guarantee",
    "PrivacyEvent",
    "account",
    "amplify_pure",
    "compose_gdp",
    "compose_parallel",
    "compose_sequential",
    "compose_zcdp",
    "delta_of_gdp",
    "epsilon_of_gdp",
    "epsilon_of_zcdp",
    "lattice_delta",
    "mu_for",
    "mu_of_rho",
    "rho_of_gaussian",
    "rho_of_mu",
]

ADJACENCY = "add or remove one client (its message replaced by zeros)"
GAUSSIAN_LIKE = ("gaussian", "skellam")
BY_NOISE = (*GAUSSIAN_LIKE, "laplace")
MECHANISMS = (*BY_NOISE, "exponential", "randomised-response")
INTERVAL = 1e-4  # width of dp-accounting's cells of privacy loss; they round up
MOST_CELLS = 1e6


@dataclass(frozen=True)
class PrivacyEvent:
    """One kind of release, as one client sees it.

    `noise_multiplier` is the standard deviation of the noise over the Euclidean sensitivity; for `laplace` it is the
    scale over the L1 sensitivity. `exponential` and `randomised-response` have an `epsilon` instead. Where noise was
    drawn in whole steps by many devices, `std_in_steps`, `dimension` and `shares` say how wide it is, in how many cells
    and in how many parts. The difference to a Gaussian is then accounted; `skellam` needs them. `laplace` has a
    `dimension` only: what its sampler leaves open, in every cell. Where `sampling` is the probability with which each
    client was drawn, on its own and in secret, `draws` is the number of rounds in which it could have been drawn, and
    `count` the number in which it was.
    """

    mechanism: str
    noise_multiplier: float | None = None
    epsilon: float | None = None
    sampling: float | None = None  # none: all clients were asked, or those asked were not drawn at random
    count: int = 1  # how often it happened to one client
    draws: int | None = None
    std_in_steps: float | None = None  # of the whole noise in one cell of the sum, without dropouts' parts
    dimension: int | None = None
    shares: int | None = None  # none: one
    label: str = ""  # which release

    def __post_init__(self) -> None:
        where = f"of the event '{self.label or self.mechanism}'"
        if self.mechanism not in MECHANISMS:
            raise PrivacyError(f"There is no mechanism '{self.mechanism}'.", nearest(str(self.mechanism), MECHANISMS))
        wanted, other = "noise_multiplier", "epsilon"
        if self.mechanism not in BY_NOISE:
            wanted, other = other, wanted
        require(getattr(self, wanted), f"{wanted} {where}", above=0)
        if getattr(self, other) is not None:
            raise PrivacyError(f"{other} {where} has no meaning for '{self.mechanism}'.", f"Give {wanted} only.")
        for name in ("count", "dimension", "shares"):
            number = getattr(self, name)
            is_whole = isinstance(number, int) and not isinstance(number, bool) and number >= 1
            if not is_whole and (number is not None or name == "count"):
                raise PrivacyError(f"{name} {where} is {number!r}.", "Give a whole number of at least 1.")
        self._check_sampling(where)
        given = [name for name in ("std_in_steps", "dimension", "shares") if getattr(self, name) is not None]
        known = {"laplace": ("dimension",)}.get(self.mechanism, ()) if self.mechanism not in GAUSSIAN_LIKE else given
        if idle := [name for name in given if name not in known]:
            raise PrivacyError(f"{idle[0]} {where} has no meaning for '{self.mechanism}'.", "Leave it out.")
        needs_steps = self.mechanism == "skellam" or (given and self.mechanism in GAUSSIAN_LIKE)
        if needs_steps and not {"std_in_steps", "dimension"} <= set(given):
            raise PrivacyError(f"std_in_steps and dimension {where} are missing.", "Give both.")
        self.find_lattice_cost()  # refuses noise that is too coarse

    def _check_sampling(self, where: str) -> None:
        if self.sampling is None:
            if self.draws is not None:
                raise PrivacyError(f"draws {where} has no meaning without sampling.", "Leave it out.")
            return
        require(self.sampling, f"sampling {where}", above=0, most=1)
        if isinstance(self.draws, bool) or not isinstance(self.draws, int) or self.draws < self.count:
            raise PrivacyError(
                f"draws {where} is {self.draws!r}, its count {self.count}.",
                "With sampling, give the number of rounds in which the client could have been drawn.",
            )

    def find_lattice_cost(self) -> LatticeCost:
        """Return what noise in whole steps costs beyond the noise that is accounted."""
        if self.mechanism == "laplace":
            return LatticeCost(0.0, min(1.0, (self.dimension or 0) * LAPLACE_ERROR))
        if self.std_in_steps is None or self.dimension is None:
            return LatticeCost(0.0, 0.0)
        return find_lattice_cost(self.mechanism, self.std_in_steps, self.dimension, self.shares or 1)

    def to_dict(self) -> dict[str, Any]:
        """Return the event for JSON; what is not set is left out."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> PrivacyEvent:
        """Read an event; unknown fields are refused."""
        known = [field.name for field in fields(cls)]
        if unknown := [name for name in given if name not in known]:
            raise PrivacyError(f"A privacy event has no field '{unknown[0]}'.", nearest(str(unknown[0]), known))
        if "mechanism" not in given:
            raise PrivacyError("A privacy event has no mechanism.", f"Known: {', '.join(MECHANISMS)}.")
        return cls(**given)


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta)-differential privacy of one client, against two readers."""

    epsilon_server: float
    epsilon_others: float
    delta: float
    mu: float | None = None  # against the server, if every event is Gaussian or Skellam
    adjacency: str = ADJACENCY

    def to_dict(self) -> dict[str, Any]:
        """Return the guarantee for JSON."""
        return asdict(self)


def account(events: Iterable[PrivacyEvent], delta: float) -> Guarantee:
    """Return what all events together guarantee one client at `delta`."""
    listed = list(events)
    if not all(isinstance(event, PrivacyEvent) for event in listed):
        raise PrivacyError("Something that is not a PrivacyEvent cannot be accounted.", "Use PrivacyEvent.from_dict.")
    require(delta, "delta", above=0, below=1)
    is_gaussian = all(event.mechanism in GAUSSIAN_LIKE for event in listed)
    epsilon_server = _epsilon(listed, delta, amplified=False)
    has_sampling = any(event.sampling is not None for event in listed)
    # being drawn in secret never costs more than taking part each time, but it may be counted over more rounds
    epsilon_others = min(epsilon_server, _epsilon(listed, delta, amplified=True)) if has_sampling else epsilon_server
    return Guarantee(epsilon_server, epsilon_others, float(delta), _mu(listed) if is_gaussian else None)


def _mu(events: list[PrivacyEvent]) -> float:
    return compose_gdp(math.sqrt(event.count) / _noise(event) for event in events)


def _noise(event: PrivacyEvent) -> float:
    assert event.noise_multiplier is not None  # checked when the event was made
    return float(event.noise_multiplier)


def _times(event: PrivacyEvent, amplified: bool) -> int:
    return event.draws if amplified and event.draws is not None else event.count


def _epsilon(events: list[PrivacyEvent], delta: float, amplified: bool) -> float:
    if not events:
        return 0.0
    costs = [(_times(event, amplified), event.find_lattice_cost()) for event in events]
    lattice = LatticeCost(
        math.fsum(times * cost.epsilon for times, cost in costs), math.fsum(times * cost.delta for times, cost in costs)
    )
    plain = not amplified or all(event.sampling is None for event in events)
    if plain and all(event.mechanism in GAUSSIAN_LIKE for event in events):
        mu = _mu(events)
        return _spend(lambda allowed: epsilon_of_gdp(mu, allowed), delta, lattice)
    composed = _compose(events, amplified)
    most = math.fsum(_times(event, amplified) * _pure_epsilon(event, amplified) for event in events)
    return _spend(lambda allowed: min(most, float(composed.get_epsilon_for_delta(allowed))), delta, lattice)


def _pure_epsilon(event: PrivacyEvent, amplified: bool) -> float:
    """Return the epsilon that holds without any delta; infinite where none does."""
    if event.mechanism in GAUSSIAN_LIKE:
        return math.inf
    epsilon = 1.0 / _noise(event) if event.mechanism == "laplace" else float(event.epsilon or 0.0)
    return amplify_pure(epsilon, event.sampling if amplified and event.sampling is not None else 1.0)


def _spend(epsilon_at: Callable[[float], float], delta: float, lattice: LatticeCost) -> float:
    """Return the least epsilon that holds at delta, with what noise in whole steps costs on top.

    If the noise that was added and the one that is accounted are (h, b)-close, delta(epsilon) of the latter becomes
    e^h delta(epsilon) + (1 + e^(epsilon + h)) b at epsilon + 2 h. Each step below starts from an epsilon that is too
    small and moves up, so the first fixed point is the least one.
    """
    epsilon = epsilon_at(delta)
    for _ in range(100):
        extra = (1 + math.exp(min(epsilon + lattice.epsilon, 700.0))) * lattice.delta if lattice.delta else 0.0
        rest = (delta - extra) * math.exp(-lattice.epsilon)
        found = epsilon_at(rest) if rest > 0 else math.inf
        if not math.isfinite(found):
            break
        if found <= epsilon:
            return found + 2 * lattice.epsilon
        epsilon = found * (1 + 1e-10)
    why = ": the steps of the noise are too coarse" if lattice.delta or lattice.epsilon else ""
    raise PrivacyError(
        f"No epsilon holds at delta {delta:.3g}{why}.",
        "Use finer steps (more fraction bits), more noise, or a larger delta.",
    )


def _compose(events: list[PrivacyEvent], amplified: bool) -> Any:
    """Return dp-accounting's privacy loss distribution of all events."""
    from dp_accounting.pld import privacy_loss_distribution as pld
    from dp_accounting.pld.common import DifferentialPrivacyParameters

    range_of_loss = sum(_rough_loss(event, _times(event, amplified)) for event in events)
    interval = max(INTERVAL, range_of_loss / MOST_CELLS)
    whole: Any = None
    for event in events:
        share = event.sampling if amplified and event.sampling is not None else 1.0
        if event.mechanism in GAUSSIAN_LIKE:
            one = pld.from_gaussian_mechanism(
                _noise(event), value_discretization_interval=interval, sampling_prob=share
            )
        elif event.mechanism == "laplace":
            one = pld.from_laplace_mechanism(_noise(event), value_discretization_interval=interval, sampling_prob=share)
        else:
            assert event.epsilon is not None
            epsilon = amplify_pure(event.epsilon, share)
            one = pld.from_privacy_parameters(DifferentialPrivacyParameters(epsilon, 0.0), interval)
        one = one.self_compose(_times(event, amplified))
        whole = one if whole is None else whole.compose(one)
    return whole


def _rough_loss(event: PrivacyEvent, times: int) -> float:
    if event.mechanism in GAUSSIAN_LIKE:
        return times / (2 * _noise(event) ** 2) + 10 * math.sqrt(times) / _noise(event)
    return times * (1 / _noise(event) if event.mechanism == "laplace" else event.epsilon or 0.0)


def amplify_pure(epsilon: float, sampling: float) -> float:
    """Return the epsilon of a pure mechanism whose clients are drawn with probability `sampling`.

    >>> round(amplify_pure(math.log(3), 0.5), 6) == round(math.log(2), 6)
    True
    """
    if sampling == 1.0:
        return float(epsilon)
    return math.log1p(sampling * math.expm1(epsilon)) if epsilon < 700 else epsilon + math.log(sampling)
