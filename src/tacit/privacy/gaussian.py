"""Closed forms for Gaussian noise: Gaussian differential privacy (GDP), zero-concentrated privacy (zCDP), composition.

Gaussian noise of standard deviation sigma on a sum that one client moves by at most 1 is exactly mu-GDP, mu = 1/sigma
(Dong, Roth and Su 2022), and (1 / 2 sigma^2)-zCDP (Bun and Steinke 2016). docs/privacy.md has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Real

from tacit.errors import PrivacyError


def require(
    value: float | None,
    what: str,
    above: float = -math.inf,
    least: float = -math.inf,
    below: float = math.inf,
    most: float = math.inf,
) -> float:
    """Return a finite number within bounds, or refuse it."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if value is not None and is_number and math.isfinite(value) and above < value < below and least <= value <= most:
        return float(value)
    bounds = [f"above {above:g}" if above > -math.inf else "", f"at least {least:g}" if least > -math.inf else ""]
    bounds += [f"below {below:g}" if below < math.inf else "", f"at most {most:g}" if most < math.inf else ""]
    wanted = " and ".join(bound for bound in bounds if bound)
    raise PrivacyError(f"{what} is {value!r}.", f"Give a number {wanted}.".replace("number .", "number."))


def delta_of_gdp(mu: float, epsilon: float) -> float:
    """Return the least delta for which a mu-GDP mechanism is (epsilon, delta)-DP.

    >>> round(delta_of_gdp(1.0, 0.0), 6)  # 2 Phi(1/2) - 1
    0.382925
    """
    require(mu, "mu", least=0)
    require(epsilon, "epsilon", least=0)
    if mu == 0:
        return 0.0
    from scipy.special import log_ndtr

    first, second = float(log_ndtr(-epsilon / mu + mu / 2)), float(log_ndtr(-epsilon / mu - mu / 2))
    return math.exp(first) * max(0.0, -math.expm1(epsilon + second - first))


def epsilon_of_gdp(mu: float, delta: float) -> float:
    """Return the least epsilon for which a mu-GDP mechanism is (epsilon, delta)-DP.

    >>> round(epsilon_of_gdp(1.0, 1e-5), 5)
    4.37718
    """
    from scipy.optimize import brentq

    require(mu, "mu", least=0)
    require(delta, "delta", above=0, below=1)
    if mu == 0 or delta_of_gdp(mu, 0.0) <= delta:
        return 0.0
    most = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta))  # the bound of zCDP
    return float(brentq(lambda epsilon: delta_of_gdp(mu, epsilon) - delta, 0.0, most, xtol=1e-13, rtol=1e-14))


def mu_for(epsilon: float, delta: float) -> float:
    """Return the largest mu for which every mu-GDP mechanism is (epsilon, delta)-DP.

    >>> round(mu_for(1.0, 1 / 60400), 3)
    0.277
    """
    from scipy.optimize import brentq

    require(epsilon, "epsilon", above=0)
    require(delta, "delta", above=0, below=1)
    most = 1.0
    while delta_of_gdp(most, epsilon) < delta:
        most *= 2
    least = most / 2
    while delta_of_gdp(least, epsilon) > delta:
        least /= 2
    return float(brentq(lambda mu: delta_of_gdp(mu, epsilon) - delta, least, most, xtol=1e-15, rtol=1e-14))


def compose_gdp(mus: Iterable[float]) -> float:
    """Return the mu of several GDP mechanisms together, chosen adaptively or not.

    >>> compose_gdp([3.0, 4.0])
    5.0
    """
    return math.sqrt(math.fsum(require(mu, "mu", least=0) ** 2 for mu in mus))


def rho_of_gaussian(noise_multiplier: float) -> float:
    """Return the rho of zCDP of Gaussian noise: 1 / (2 noise_multiplier^2).

    >>> rho_of_gaussian(2.0)
    0.125
    """
    return 1 / (2 * require(noise_multiplier, "noise_multiplier", above=0) ** 2)


def mu_of_rho(rho: float) -> float:
    """Return the mu of the Gaussian mechanism that has this rho. Other mechanisms with it need not be mu-GDP.

    >>> mu_of_rho(0.125)
    0.5
    """
    return math.sqrt(2 * require(rho, "rho", least=0))


def rho_of_mu(mu: float) -> float:
    """Return the rho of zCDP that follows from mu-GDP: mu^2 / 2.

    >>> rho_of_mu(0.5)
    0.125
    """
    return require(mu, "mu", least=0) ** 2 / 2


def compose_zcdp(rhos: Iterable[float]) -> float:
    """Return the rho of several mechanisms together: their sum."""
    return math.fsum(require(rho, "rho", least=0) for rho in rhos)


def epsilon_of_zcdp(rho: float, delta: float) -> float:
    """Return an epsilon for which every rho-zCDP mechanism is (epsilon, delta)-DP (Canonne, Kamath and Steinke 2020).

    The least over orders a > 1 of a rho + log(1 / (a delta)) / (a - 1) + log(1 - 1/a); every order is valid.
    """
    from scipy.optimize import minimize_scalar

    require(rho, "rho", least=0)
    require(delta, "delta", above=0, below=1)
    if rho == 0:
        return 0.0

    def at(log_order: float) -> float:
        over = math.exp(log_order)  # a - 1
        order = 1 + over
        return order * rho - math.log(order * delta) / over + math.log(over / order)

    best = minimize_scalar(at, bounds=(-12.0, 25.0), method="bounded", options={"xatol": 1e-10})
    return max(0.0, float(best.fun))


def compose_sequential(epsilons: Iterable[float]) -> float:
    """Return the epsilon of pure mechanisms that all read the same client: the sum.

    >>> compose_sequential([0.5, 0.25])
    0.75
    """
    return math.fsum(require(epsilon, "epsilon", least=0) for epsilon in epsilons)


def compose_parallel(epsilons: Iterable[float]) -> float:
    """Return the epsilon of pure mechanisms that read disjoint sets of clients: the largest.

    >>> compose_parallel([0.5, 0.25])
    0.5
    """
    return max((require(epsilon, "epsilon", least=0) for epsilon in epsilons), default=0.0)
