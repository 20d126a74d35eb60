"""Laplace noise on sums and randomised response on items: bounds, probabilities, what they cost, what they refuse."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tacit.errors import ConfigError, PrivacyError
from tacit.lab.guarantee import PrivacyLog, build_privacy
from tacit.lab.simulation import SimulationOptions, simulate
from tacit.methods.base import build_federated, options
from tacit.privacy.accounting import PrivacyEvent, account
from tacit.privacy.dp import ContributionSpec, DifferentialPrivacy, DPConfig
from tacit.privacy.draft import Draft, DraftRows
from tacit.privacy.lattice import LAPLACE_ERROR
from tacit.privacy.noise import SimulatedNoise, sum_random_bits
from tacit.privacy.pure import LaplacePrivacy, RandomisedResponse, build_guarantee
from tacit.protocols.federated import UpdatePath
from tacit.protocols.rounds import RoundsConfig
from tacit.random import Key
from tacit.types import Catalog, Clients, Vocabulary
from tacit.updates import PlannedRows, Ring, Total, UpdatePlan

LAPLACE = {"epsilon": 2.0, "mechanism": "laplace", "mode": "central", "bound": 3.0}
RESPONSE = {"epsilon": 2.0, "mechanism": "randomised-response", "mode": "local", "bound": 4}
OF = ContributionSpec((), None, False, 4, tells_items=True)


def stage_of(given: dict[str, Any], n_clients: int = 1_000, **changes: Any) -> DifferentialPrivacy:
    return build_guarantee(DPConfig(**{**given, **changes}), OF, Ring(), n_clients)


def world(n_clients: int = 400, n_items: int = 20) -> tuple[Clients, Catalog]:
    """Client c has the first 1 + c % n_items items."""
    sizes = 1 + np.arange(n_clients) % n_items
    items = np.concatenate([np.arange(n) for n in sizes]).astype(np.int32)
    clients = Clients(np.arange(n_clients), np.concatenate([[0], np.cumsum(sizes)]), items, n_items)
    return clients, Catalog(Vocabulary(np.arange(n_items)))


def test_laplace_noise_has_the_scale_of_its_share() -> None:
    """By hand: S 3 and a quarter of epsilon 2: scale 6, standard deviation 6 sqrt 2; a thousandth is kept back."""
    stage = stage_of(LAPLACE)
    assert isinstance(stage, LaplacePrivacy)
    assert stage.std(0.25) == pytest.approx(6 * math.sqrt(2) / 0.999)
    event = stage.event(0.25, "a sum", 10, {"t": (5, 2)})
    assert event.to_dict() == {
        "mechanism": "laplace",
        "noise_multiplier": pytest.approx(2 / 0.999),
        "count": 1,
        "dimension": 10,
        "label": "a sum",
    }
    drawn = stage.draw_whole(SimulatedNoise(Key(1)), 200_000, 0.25, 10, 10) / float(stage.ring.scale)
    assert np.abs(drawn).mean() == pytest.approx(6 / 0.999, rel=0.01)  # of a Laplace number: its scale


def test_local_laplace_noise_is_that_of_every_message() -> None:
    stage = stage_of(LAPLACE, mode="local")
    drawn = stage.draw_whole(SimulatedNoise(Key(2)), 20_000, 1.0, 30, 30) / float(stage.ring.scale)
    assert drawn.var() == pytest.approx(stage.variance(1.0, 30, 30), rel=0.04)
    assert stage.variance(1.0, 30, 30) == pytest.approx(30 * stage.std(1.0) ** 2)


def test_pure_events_add_up_and_never_cost_more_than_their_sum() -> None:
    one = PrivacyEvent("laplace", noise_multiplier=4.0, count=4)  # 4 x 1/4
    assert account([one], 1e-9).epsilon_server <= 1.0
    mixed = [PrivacyEvent("exponential", epsilon=0.5), PrivacyEvent("randomised-response", epsilon=0.25, count=2)]
    assert account([one, *mixed], 1e-9).epsilon_server <= 2.0
    assert account(mixed, 1e-12).epsilon_server == pytest.approx(1.0, rel=1e-6)
    many = PrivacyEvent("laplace", noise_multiplier=100.0, count=400)
    assert account([many], 1e-5).epsilon_server < 1.0 < 4.0  # composed, at a delta


def test_what_the_sampler_leaves_open_is_part_of_delta() -> None:
    wide = PrivacyEvent("laplace", noise_multiplier=1.0, dimension=2**30)
    cost = wide.find_lattice_cost()
    assert (cost.epsilon, cost.delta) == (0.0, 2**30 * LAPLACE_ERROR)
    assert account([wide], 1e-3).epsilon_server >= account([PrivacyEvent("laplace", 1.0)], 1e-3).epsilon_server
    with pytest.raises(PrivacyError):
        account([wide], 1e-6)
    with pytest.raises(PrivacyError):
        PrivacyEvent("laplace", noise_multiplier=1.0, shares=3)


@pytest.mark.parametrize("is_outer", [False, True])
def test_magnitudes_are_bounded_as_whole_numbers(is_outer: bool) -> None:
    rng, n_clients, width = np.random.default_rng(3), 6, 5
    ptr = np.arange(n_clients + 1) * 4
    ids = rng.integers(0, 3, 24).astype(np.int32)  # rows repeat
    kept = (rng.random(24) < 0.7).astype(np.uint8)
    planned = PlannedRows("t", ptr, ids, True, None, kept)
    values = rng.normal(size=(n_clients if is_outer else 24, width)).astype(np.float32)
    weights = rng.normal(size=24).astype(np.float32) if is_outer else None
    values[0] *= 1e-4  # a client within its bound is left as it is
    part = DraftRows(planned, values, weights, is_outer=is_outer)
    draft = Draft(np.arange(n_clients), [part])
    ring, unit = Ring(fraction=10), 0.3
    draft.bound_magnitudes(2.0, {"t": unit}, ring)
    dense = part.dense()
    rows = dense.values if is_outer else dense.values * part.factors[:, None]
    for client in range(n_clients):
        at = [r for r in range(ptr[client], ptr[client + 1]) if kept[r]]
        numbers = np.abs(np.rint(rows[at] * ring.scale)).sum() + np.rint(part.factors[at] * unit * ring.scale).sum()
        assert numbers <= 2.0 * float(ring.scale)
        if client > 0:
            assert numbers > 1.9 * float(ring.scale)


def test_numbers_that_are_none_are_zeros() -> None:
    values = np.array([[np.inf], [1.0]], np.float32)
    draft = Draft(np.arange(2), [DraftRows(PlannedRows("t", np.arange(3), np.zeros(2, np.int32), True), values)])
    draft.bound_magnitudes(1.0, {}, Ring())
    assert draft.fits(Ring()).tolist() == [False, True]


def test_a_client_reports_at_most_so_many_items() -> None:
    stage = stage_of(RESPONSE)
    assert isinstance(stage, RandomisedResponse)
    clients, _ = world(40)
    planned = PlannedRows("t", clients.ptr, clients.items, True)
    narrowed = stage.narrow(UpdatePlan(clients.ids, (planned,)), Key(5)).parts[0]
    assert narrowed.kept_sizes().tolist() == np.minimum(clients.sizes, 4).tolist()
    alone = clients.take([19])
    own = stage.narrow(UpdatePlan(alone.ids, (PlannedRows("t", alone.ptr, alone.items, True),)), Key(5)).parts[0]
    assert own.kept is not None
    assert narrowed.kept is not None
    assert np.array_equal(own.kept, narrowed.kept[clients.ptr[19] : clients.ptr[20]]), "the same alone as among many"


def test_sums_of_flipped_bits_are_those_of_flipping_each() -> None:
    """By hand: epsilon ln 3 flips a quarter; 30 of 100 set: 30 x .75 + 70 x .25 = 40, variance 100 x 3/16."""
    drawn = [int(sum_random_bits(SimulatedNoise(Key(7).child(n)), [30], 100, math.log(3))[0]) for n in range(4_000)]
    assert np.mean(drawn) == pytest.approx(40, abs=0.35)
    assert np.var(drawn) == pytest.approx(18.75, rel=0.1)
    with pytest.raises(PrivacyError):
        sum_random_bits(SimulatedNoise(Key(1)), [101], 100, 1.0)


def test_randomised_response_is_unbiased_and_costs_epsilon() -> None:
    stage = stage_of(RESPONSE)
    event = stage.event(0.5, "a sum", 10, {"t": (5, 1)})
    assert (event.mechanism, event.epsilon) == ("randomised-response", pytest.approx(0.999))
    flip = 1 / (1 + math.exp(0.999 / 4))  # half of epsilon, four bits
    assert stage.std(0.5) == pytest.approx(math.sqrt(flip * (1 - flip)) / (1 - 2 * flip))
    n, n_rows = 1_000, 2_000
    total = Total({"t": np.full((n_rows, 1), 300 * int(stage.ring.scale))}, {"t": np.zeros(n_rows, np.int64)}, n)
    read = stage.add_noise(total, 0.5, n, SimulatedNoise(Key(3))).sums["t"] / float(stage.ring.scale)
    std = math.sqrt(stage.variance(0.5, n, n))
    assert read.mean() == pytest.approx(300, abs=4 * std / math.sqrt(n_rows))
    assert read.std() == pytest.approx(std, rel=0.07)


@pytest.mark.slow
@pytest.mark.parametrize("given", [LAPLACE, {**LAPLACE, "mode": "local"}, RESPONSE], ids=lambda given: given["mode"])
def test_a_run_learns_what_is_popular_within_its_epsilon(given: dict[str, Any]) -> None:
    clients, catalog = world()
    method, log = build_federated("dp-popular", options("dp-popular", {})), PrivacyLog()
    config = DPConfig(**{**given, "epsilon": 8.0})
    stage = build_privacy(config, method, clients, catalog, Key(1), Ring(), RoundsConfig())
    for model in simulate(
        UpdatePath(method, [stage], Ring()), clients, catalog, Key(1), None, SimulationOptions(privacy_log=log)
    ):
        counts = model.shared["counts"][:, 0]
    assert counts[:5].mean() > counts[-5:].mean()  # the first items are in every history, the last in few
    found = log.describe(stage, len(clients))
    assert found["epsilon_server"] == pytest.approx(8.0 * 0.999, rel=1e-3)
    assert [event["mechanism"] for event in found["events"]] == [given["mechanism"]]


@pytest.mark.parametrize(
    "given",
    [
        {"mechanism": "exponential"},
        {"mechanism": "laplace"},  # distributed
        {"mechanism": "randomised-response"},
        {"mechanism": "randomised-response", "mode": "central"},
        {"mode": "central", "dropped": 0.1},
        {"mode": "local", "corrupted": 0.1},
    ],
)
def test_options_that_bound_nothing_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        DPConfig.from_options({"epsilon": 1.0, **given}, "privacy")


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("dp-popular", {**LAPLACE, "bound": None}),
        ("dp-popular", {**RESPONSE, "bound": None}),
        ("dp-popular", {**RESPONSE, "bound": 2.5}),
        ("dp-popular", {**RESPONSE, "bound": 1, "epsilon": 30.0}),
        ("dp-svd", RESPONSE),
        ("fed-svd", RESPONSE),
        ("fed-als", RESPONSE),
    ],
)
def test_what_a_mechanism_cannot_bound_is_refused(name: str, given: dict[str, Any]) -> None:
    method = build_federated(name, options(name, {} if name == "dp-popular" else {"factors": 4}))
    with pytest.raises(ConfigError):
        build_privacy(DPConfig(**given), method, *world(), Key(1), Ring(), RoundsConfig())


def test_a_simulation_refuses_to_draw_for_ever() -> None:
    with pytest.raises(ConfigError):
        stage_of(LAPLACE, mode="local").draw_whole(SimulatedNoise(Key(1)), 10**6, 1.0, 10**5, 10**5)
