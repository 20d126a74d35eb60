"""What releases cost: closed forms by hand, two accountants beside each other, events that are refused."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import PrivacyError
from tacit.privacy.accounting import (
    ADJACENCY,
    PrivacyEvent,
    account,
    compose_gdp,
    compose_parallel,
    compose_sequential,
    compose_zcdp,
    delta_of_gdp,
    epsilon_of_gdp,
    epsilon_of_zcdp,
    mu_for,
    mu_of_rho,
    rho_of_gaussian,
    rho_of_mu,
)

SAMPLED = {  # probability of being drawn, noise multiplier, rounds, delta -> epsilon
    (120 / 6040, 1.0, 400, 1e-5): 2.4828,
    (50 / 943, 1.0, 400, 1e-4): 6.1305,
    (120 / 943, 2.0, 400, 1e-4): 5.6359,
    (120 / 943, 5.0, 400, 1e-4): 1.7765,
}
STEPS = {"std_in_steps": 3e6, "dimension": 3706 * 33, "shares": 6040}


def test_the_closed_form_by_hand() -> None:
    # epsilon 0: 2 Phi(mu / 2) - 1; Phi(1/2) = .6914625
    assert delta_of_gdp(1.0, 0.0) == pytest.approx(2 * 0.6914624613 - 1, abs=1e-9)
    # mu 2, epsilon 2: Phi(0) - e^2 Phi(-2) = .5 - 7.3890561 x .0227501
    assert delta_of_gdp(2.0, 2.0) == pytest.approx(0.5 - 7.38905610 * 0.02275013, abs=1e-7)
    assert epsilon_of_gdp(1.0, 1e-5) == pytest.approx(4.37718, abs=5e-6)
    assert epsilon_of_gdp(0.1, 0.05) == 0.0  # 2 Phi(.05) - 1 = .0399 is allowed at epsilon 0
    assert compose_gdp([1.0, 2.0, 2.0]) == 3.0
    assert compose_gdp([]) == 0.0


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (943, (0.171, 0.315, 0.579, 1.047, 1.847)),
        (6040, (0.147, 0.277, 0.516, 0.948, 1.700)),
        (10**6, (0.111, 0.214, 0.408, 0.771, 1.424)),
    ],
)
def test_mu_for_usual_epsilons(n: int, expected: tuple[float, ...]) -> None:
    assert [mu_for(e, 1 / (10 * n)) for e in (0.5, 1, 2, 4, 8)] == pytest.approx(expected, abs=5e-4)


@settings(max_examples=60)
@given(st.floats(0.01, 20), st.floats(1e-12, 0.3))
def test_epsilon_and_mu_are_inverse(epsilon: float, delta: float) -> None:
    mu = mu_for(epsilon, delta)
    assert epsilon_of_gdp(mu, delta) == pytest.approx(epsilon, rel=1e-7, abs=1e-9)
    assert delta_of_gdp(mu, epsilon) == pytest.approx(delta, rel=1e-6)
    assert epsilon_of_zcdp(rho_of_mu(mu), delta) >= epsilon - 1e-9  # zCDP knows less than GDP, so it says no less


def test_zero_concentrated_privacy_by_hand() -> None:
    assert rho_of_gaussian(1.0) == 0.5
    assert mu_of_rho(rho_of_gaussian(4.0)) == 0.25
    assert compose_zcdp([0.5, 0.25]) == 0.75
    assert epsilon_of_zcdp(0.5, 1e-5) == pytest.approx(4.729, abs=1e-3)
    assert epsilon_of_zcdp(0.5, 1e-5) < 0.5 + 2 * math.sqrt(0.5 * math.log(1e5))  # Bun and Steinke's simpler bound
    assert epsilon_of_zcdp(0.0, 1e-5) == 0.0


def test_examples_of_the_thesis() -> None:
    # Example 3.1: a count that one user changes by 1, Laplace noise of scale 1 / 0.5: epsilon 0.5, without delta
    assert account([PrivacyEvent("laplace", 2.0)], 1e-9).epsilon_server == pytest.approx(0.5, abs=1e-3)
    # Example 3.2: a user who changes the count by 5 under the same noise: 5 x 0.5; five times the noise: 0.5 again
    assert account([PrivacyEvent("laplace", 2.0 / 5)], 1e-9).epsilon_server == pytest.approx(2.5, abs=1e-3)
    assert account([PrivacyEvent("laplace", 5 * 2.0 / 5)], 1e-9).epsilon_server == pytest.approx(0.5, abs=1e-3)
    # Theorem 3.2 and the m counts before it: m answers cost m epsilon; disjoint clients cost the largest
    assert compose_sequential([0.5] * 4) == 2.0
    assert compose_parallel([0.5, 1.5, 1.0]) == 1.5


@pytest.mark.parametrize("setting", SAMPLED, ids=str)
def test_regression_values_with_sampling(setting: tuple[float, float, int, float]) -> None:
    sampling, noise, rounds, delta = setting
    own = max(1, round(rounds * sampling))
    found = account([PrivacyEvent("gaussian", noise, sampling=sampling, count=own, draws=rounds)], delta)
    assert found.epsilon_others == pytest.approx(SAMPLED[setting], abs=1e-4)
    assert found.epsilon_server == epsilon_of_gdp(math.sqrt(own) / noise, delta)  # who took part is known to the server
    assert found.epsilon_server > found.epsilon_others


@pytest.mark.parametrize("setting", SAMPLED, ids=str)
def test_a_second_accountant_says_no_less(setting: tuple[float, float, int, float]) -> None:
    from dp_accounting import dp_event
    from dp_accounting.rdp import RdpAccountant

    sampling, noise, rounds, delta = setting
    event = dp_event.PoissonSampledDpEvent(sampling, dp_event.GaussianDpEvent(noise))
    by_moments = RdpAccountant().compose(event, rounds).get_epsilon(delta)
    assert SAMPLED[setting] < by_moments < 1.2 * SAMPLED[setting]


@pytest.mark.slow
@pytest.mark.parametrize("setting", SAMPLED, ids=str)
def test_a_third_accountant_agrees(setting: tuple[float, float, int, float]) -> None:
    accountants = pytest.importorskip("prv_accountant", reason="prv-accountant is not installed")
    sampling, noise, rounds, delta = setting
    mechanism = accountants.PoissonSubsampledGaussianMechanism(noise_multiplier=noise, sampling_probability=sampling)
    other = accountants.PRVAccountant(
        prvs=[mechanism], max_self_compositions=[rounds], eps_error=0.05, delta_error=delta / 1000
    )
    low, middle, high = other.compute_epsilon(delta=delta, num_self_compositions=[rounds])
    assert low < SAMPLED[setting] < high
    assert middle == pytest.approx(SAMPLED[setting], abs=2e-3)


@pytest.mark.parametrize(("count", "noise", "expected"), [(8, 2.0, 6.6), (19, 5.0, 3.7), (50, 10.0, 2.9)])
def test_own_participations_against_the_server(count: int, noise: float, expected: float) -> None:
    found = account([PrivacyEvent("gaussian", noise, count=count)], 1e-5)
    assert found.epsilon_server == pytest.approx(expected, abs=0.06)
    assert found.epsilon_others == found.epsilon_server
    assert found.mu == pytest.approx(math.sqrt(count) / noise)
    assert found.adjacency == ADJACENCY


@pytest.mark.slow
@pytest.mark.parametrize("noises", [(1.0,), (2.0, 3.0, 5.0), (20.0,) * 4])
def test_the_closed_form_is_that_of_loss_distributions(noises: tuple[float, ...]) -> None:
    gaussians = [PrivacyEvent("gaussian", noise, count=3) for noise in noises]
    exact = account(gaussians, 1e-6).epsilon_server
    nothing = PrivacyEvent("randomised-response", epsilon=1e-9)  # which has no closed form together with the others
    assert account([*gaussians, nothing], 1e-6).epsilon_server == pytest.approx(exact, abs=1e-3)


def test_mechanisms_together_cost_less_than_their_sum_and_more_than_each() -> None:
    events = [
        PrivacyEvent("laplace", 2.0, count=3),
        PrivacyEvent("exponential", epsilon=0.5),
        PrivacyEvent("gaussian", 3.0),
        PrivacyEvent("randomised-response", epsilon=0.25),
    ]
    together = account(events, 1e-6)
    alone = [account([event], 1e-6).epsilon_server for event in events]
    assert max(alone) < together.epsilon_server < sum(alone)
    assert together.mu is None


def test_pure_mechanisms_compose_as_randomised_response() -> None:
    assert account([PrivacyEvent("exponential", epsilon=0.7)], 1e-9).epsilon_server == pytest.approx(0.7, abs=1e-3)
    assert account([PrivacyEvent("randomised-response", epsilon=math.log(3))], 1e-9).epsilon_server == pytest.approx(
        math.log(3), abs=1e-3
    )
    sampled = PrivacyEvent("exponential", epsilon=math.log(3), sampling=0.5, draws=1)
    assert account([sampled], 1e-9).epsilon_others == pytest.approx(math.log(2), abs=1e-3)
    assert account([sampled], 1e-9).epsilon_server == pytest.approx(math.log(3), abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("parts", [(0.1, 0.9), (0.5, 0.5), (0.2, 0.3, 0.5)])
def test_laplace_noise_on_a_vector_costs_no_more_than_on_one_number(parts: tuple[float, ...]) -> None:
    whole = PrivacyEvent("laplace", 0.5)  # one number that moves by twice the scale
    split = [PrivacyEvent("laplace", 0.5 / part) for part in parts]  # several that together move as far
    for delta in (1e-9, 1e-3, 0.1, 0.3):
        assert account(split, delta).epsilon_server <= account([whole], delta).epsilon_server + 1e-3


def test_skellam_costs_a_gaussian_and_a_little() -> None:
    mu = mu_for(1.0, 1 / 60400)
    found = account([PrivacyEvent("skellam", 1 / mu, **STEPS)], 1 / 60400)  # type: ignore[arg-type]
    assert 1.0 < found.epsilon_server < 1.00001
    assert found.mu == pytest.approx(mu)
    coarse = {**STEPS, "std_in_steps": 1e4}
    assert 1.0001 < account([PrivacyEvent("skellam", 1 / mu, **coarse)], 1 / 60400).epsilon_server < 1.1  # type: ignore[arg-type]


def test_rounded_shares_cost_a_gaussian() -> None:
    found = account([PrivacyEvent("gaussian", 2.0, **STEPS)], 1e-6)  # type: ignore[arg-type]
    assert found.epsilon_server == pytest.approx(epsilon_of_gdp(0.5, 1e-6), abs=1e-9)
    with pytest.raises(PrivacyError):  # shares of a fifth of a step: most are rounded to 0
        account([PrivacyEvent("gaussian", 2.0, std_in_steps=15.0, dimension=10, shares=6040)], 1e-6)


def test_nothing_costs_nothing() -> None:
    found = account([], 1e-6)
    assert (found.epsilon_server, found.epsilon_others, found.mu) == (0.0, 0.0, 0.0)


@pytest.mark.slow
def test_a_great_loss_needs_no_great_memory() -> None:
    found = account([PrivacyEvent("gaussian", 0.01), PrivacyEvent("exponential", epsilon=0.1)], 1e-6)
    assert found.epsilon_server == pytest.approx(epsilon_of_gdp(100.0, 1e-6), rel=0.01)


def test_events_go_through_json() -> None:
    for event in (
        PrivacyEvent("gaussian", 2.5, sampling=0.1, count=3, draws=30, label="counts"),
        PrivacyEvent("skellam", 2.5, **STEPS, label="sum 1"),  # type: ignore[arg-type]
        PrivacyEvent("randomised-response", epsilon=1.0),
    ):
        assert PrivacyEvent.from_dict(json.loads(json.dumps(event.to_dict()))) == event
    assert json.loads(json.dumps(account([PrivacyEvent("gaussian", 1.0)], 1e-5).to_dict()))["delta"] == 1e-5


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"mechanism": "gausian", "noise_multiplier": 1.0},
        {"mechanism": "gaussian"},
        {"mechanism": "gaussian", "noise_multiplier": 1.0, "sigma": 2.0},
        {"mechanism": "gaussian", "noise_multiplier": 0.0},
        {"mechanism": "gaussian", "noise_multiplier": math.nan},
        {"mechanism": "gaussian", "noise_multiplier": math.inf},
        {"mechanism": "gaussian", "noise_multiplier": "1"},
        {"mechanism": "gaussian", "noise_multiplier": True},
        {"mechanism": "gaussian", "noise_multiplier": 1.0, "epsilon": 1.0},
        {"mechanism": "gaussian", "noise_multiplier": 1.0, "count": 0},
        {"mechanism": "gaussian", "noise_multiplier": 1.0, "count": 1.5},
        {"mechanism": "gaussian", "noise_multiplier": 1.0, "sampling": 0.5},
        {"mechanism": "gaussian", "noise_multiplier": 1.0, "sampling": 0.5, "count": 3, "draws": 2},
        {"mechanism": "gaussian", "noise_multiplier": 1.0, "sampling": 1.5, "draws": 2},
        {"mechanism": "gaussian", "noise_multiplier": 1.0, "draws": 2},
        {"mechanism": "gaussian", "noise_multiplier": 1.0, "dimension": 2},
        {"mechanism": "gaussian", "noise_multiplier": 1.0, "std_in_steps": 9.0, "dimension": 2.5},
        {"mechanism": "gaussian", "noise_multiplier": 1.0, "std_in_steps": 9.0, "dimension": 2, "shares": 0},
        {"mechanism": "gaussian", "noise_multiplier": np.array([1.0, 2.0])},
        {"mechanism": "skellam", "noise_multiplier": 1.0},
        {"mechanism": "skellam", "noise_multiplier": 1.0, "std_in_steps": 5.0, "dimension": 2},
        {"mechanism": "laplace", "noise_multiplier": 1.0, "std_in_steps": 50.0, "dimension": 2},
        {"mechanism": "exponential", "noise_multiplier": 1.0},
        {"mechanism": "exponential", "epsilon": -1.0},
    ],
    ids=str,
)
def test_an_event_that_is_not_understood_is_an_error_not_a_zero(given: dict[str, object]) -> None:
    with pytest.raises(PrivacyError):
        PrivacyEvent.from_dict(given)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan, math.inf, None])
def test_a_wrong_delta_is_refused(delta: float) -> None:
    for call in (
        lambda: account([PrivacyEvent("gaussian", 1.0)], delta),
        lambda: epsilon_of_gdp(1.0, delta),
        lambda: mu_for(1.0, delta),
        lambda: epsilon_of_zcdp(1.0, delta),
    ):
        with pytest.raises(PrivacyError):
            call()


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
def test_a_wrong_epsilon_is_refused(epsilon: float) -> None:
    with pytest.raises(PrivacyError):
        mu_for(epsilon, 1e-5)


def test_what_is_not_an_event_is_refused() -> None:
    with pytest.raises(PrivacyError):
        account([{"mechanism": "gaussian", "noise_multiplier": 1.0}], 1e-5)  # type: ignore[list-item]


def test_numbers_of_numpy_are_numbers() -> None:
    assert account(
        [PrivacyEvent("gaussian", float(np.float64(2.0)))], np.float64(1e-5)
    ).epsilon_server == pytest.approx(epsilon_of_gdp(0.5, 1e-5))
