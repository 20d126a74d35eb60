"""Secure sums in a simulation: with every message really made, or with the sum alone, the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from laws.test_federated import FEDERATED as EVERY
from laws.test_federated import KEY, RING, World, assert_same, final, quick
from tacit.config import Experiment
from tacit.errors import ConfigError
from tacit.lab.experiments import run
from tacit.lab.secure_rounds import SecureRoundsConfig
from tacit.lab.simulation import SimulationOptions, simulate
from tacit.lab.traffic import Traffic
from tacit.methods.base import build_federated, entry
from tacit.protocols.federated import UpdatePath
from tacit.protocols.robust import RobustConfig
from tacit.protocols.rounds import RoundsConfig
from tacit.types import Model
from tacit.updates import Ring

pytestmark = pytest.mark.slow

FEDERATED = [name for name in EVERY if not build_federated(name).spec.client_tables]  # these cannot be masked

FEW = 12  # people: a secure sum of them takes a tenth of a second


def brief(name: str) -> Any:
    """Return a method that makes two rounds with all clients."""
    fields = entry(name).config.model_fields
    wanted = {"epochs": 2, "clients_per_round": 0, "share": 1.0}
    return quick(name, **{option: value for option, value in wanted.items() if option in fields})


def secured(
    name: str, world: World, *, dropout: float = 0.0, ring: Ring = RING, robust: Any = None, **given: Any
) -> tuple[Model, Traffic]:
    clients, catalog = world[0].take(np.arange(FEW)), world[1]
    config = SecureRoundsConfig(**{"n_min": 3, "k_min": 2, **given})
    traffic = Traffic.none(FEW)
    rounds = RoundsConfig(dropout=dropout, robust=robust)
    method = brief(name)
    models = simulate(UpdatePath(method, (), ring), clients, catalog, KEY, traffic, SimulationOptions(rounds, config))
    return final(models).copy(), traffic


@pytest.mark.parametrize("two_stage", [True, False], ids=["two stages", "one stage"])
@pytest.mark.parametrize("name", FEDERATED)
def test_masks_and_recovery_change_no_bit(name: str, two_stage: bool, tastes: World) -> None:
    """In each round some people drop out, in any phase; rows of too few people do not count."""
    exact, sent = secured(name, tastes, dropout=0.15, two_stage=two_stage)
    protocol, really = secured(name, tastes, dropout=0.15, two_stage=two_stage, mode="protocol")
    assert_same(exact.shared, protocol.shared)
    assert_same(exact.private, protocol.private)
    assert np.array_equal(sent.rounds, really.rounds)
    assert np.array_equal(sent.masked, sent.rounds)
    assert np.array_equal(sent.lost, really.lost)
    assert sent.lost.sum() > 0


@pytest.mark.parametrize("name", FEDERATED)
def test_a_secure_sum_in_one_stage_is_the_plain_sum(name: str, tastes: World) -> None:
    clients, catalog = tastes[0].take(np.arange(FEW)), tastes[1]
    method = brief(name)
    plain = final(simulate(UpdatePath(method, (), RING), clients, catalog, KEY)).copy()
    assert_same(secured(name, tastes, two_stage=False)[0].shared, plain.shared)
    assert_same(secured(name, tastes, k_min=1)[0].shared, plain.shared)
    for coordinators in (2, 3):  # each has a secure sum of its own clients, and the totals add up to the same bits
        assert_same(secured(name, tastes, two_stage=False, coordinators=coordinators)[0].shared, plain.shared)


@pytest.mark.parametrize("name", ["fpl", "fed-gmf", "fed-mlp", "fed-neumf"])
def test_thirty_two_bits_and_groups_agree_too(name: str, tastes: World) -> None:
    for given in ({"ring": Ring(bits=32, fraction=16)}, {"robust": RobustConfig(groups=3, rule="median")}):
        exact, _ = secured(name, tastes, **given)
        protocol, _ = secured(name, tastes, mode="protocol", **given)
        assert_same(exact.shared, protocol.shared)


@pytest.mark.parametrize("coordinators", [1, 2, 3, 4])
def test_masked_totals_of_coordinators_add_up_to_the_bits_of_one(coordinators: int, tastes: World) -> None:
    plain, _ = secured("fed-gmf", tastes, two_stage=False)
    masked, _ = secured("fed-gmf", tastes, two_stage=False, coordinators=coordinators, mode="protocol")
    assert_same(plain.shared, masked.shared)


def test_a_coordinator_that_too_few_answer_stops_no_other(tastes: World) -> None:
    exact, sent = secured("fpl", tastes, dropout=0.4, coordinators=3)
    protocol, really = secured("fpl", tastes, dropout=0.4, coordinators=3, mode="protocol")
    assert_same(exact.shared, protocol.shared)
    assert np.array_equal(sent.rounds, really.rounds)
    assert 0 < sent.rounds.sum() < 2 * FEW
    assert np.array_equal(sent.rounds + sent.lost, np.full(FEW, 2)), "whoever was asked is counted, or lost"
    with pytest.raises(ConfigError):
        secured("fpl", tastes, coordinators=2, robust=RobustConfig(groups=3, rule="median"))
    with pytest.raises(ConfigError):
        secured("fpl", tastes, coordinators=5)  # fewer than three each


@pytest.mark.parametrize("two_stage", [True, False], ids=["two stages", "one stage"])
def test_devices_that_check_the_draw_change_no_bit(two_stage: bool, tastes: World) -> None:
    """Tickets draw about half of the people for each round; every device knows who has enrolled and looks."""

    def run_with(mode: str) -> tuple[Model, Traffic]:
        people, catalog = tastes[0].take(np.arange(24)), tastes[1]
        config = SecureRoundsConfig(mode=mode, n_min=3, k_min=2, two_stage=two_stage, draw=True)  # type: ignore[arg-type]
        traffic, method = Traffic.none(24), quick("fed-gmf", epochs=3, clients_per_round=12)
        rounds = RoundsConfig(dropout=0.1)
        models = simulate(
            UpdatePath(method, (), RING), people, catalog, KEY, traffic, SimulationOptions(rounds, config)
        )
        return final(models).copy(), traffic

    (exact, sent), (protocol, really) = run_with("exact"), run_with("protocol")
    assert_same(exact.shared, protocol.shared)
    assert_same(exact.private, protocol.private)
    assert np.array_equal(sent.rounds + sent.lost, really.rounds + really.lost)
    assert len(set((sent.rounds + sent.lost).tolist())) > 1, "a lottery does not ask all clients equally often"


@pytest.mark.parametrize("draw", [True, False], ids=["drawn", "dealt"])
def test_cohorts_that_are_too_small_are_given_up_in_both_modes(draw: bool, tastes: World) -> None:
    """Draws of three on average, and groups of four that people leave, are often below the minimum."""
    found = []
    for mode in ("exact", "protocol"):
        people, catalog, traffic = tastes[0].take(np.arange(24)), tastes[1], Traffic.none(24)
        config = SecureRoundsConfig(mode=mode, n_min=3, k_min=2, draw=draw)  # type: ignore[arg-type]
        method = quick("fed-gmf", epochs=2, clients_per_round=3 if draw else 12)
        rounds = RoundsConfig() if draw else RoundsConfig(dropout=0.3, robust=RobustConfig(groups=3, rule="median"))
        models = simulate(
            UpdatePath(method, (), RING), people, catalog, KEY, traffic, SimulationOptions(rounds, config)
        )
        found.append((final(models).copy(), traffic))
    (exact, sent), (protocol, really) = found
    assert_same(exact.shared, protocol.shared)
    assert np.array_equal(sent.rounds, really.rounds)
    assert np.array_equal(sent.lost, really.lost)


def test_a_lottery_with_over_selection_or_groups_is_refused(tastes: World) -> None:
    config, groups = SecureRoundsConfig(n_min=3, draw=True), RobustConfig(groups=3, rule="median")
    for rounds, why in (
        (RoundsConfig(over_selection=0.5), "runtime.rounds.over_selection"),
        (RoundsConfig(robust=groups), "runtime.rounds.robust"),
    ):
        models = simulate(UpdatePath(brief("fed-gmf"), (), RING), *tastes, KEY, None, SimulationOptions(rounds, config))
        with pytest.raises(ConfigError, match=why):
            next(models)


@pytest.mark.parametrize("draw", [True, False], ids=["drawn", "dealt"])
@pytest.mark.parametrize("two_stage", [True, False], ids=["two stages", "one stage"])
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_bytes_are_those_that_the_protocol_sends_and_receives(
    dropout: float, two_stage: bool, draw: bool, tastes: World
) -> None:
    """To the byte: all participants are neighbours here, so dropouts change the messages of all alike."""
    _, exact = secured("fed-gmf", tastes, dropout=dropout, two_stage=two_stage, draw=draw)
    _, protocol = secured("fed-gmf", tastes, dropout=dropout, two_stage=two_stage, draw=draw, mode="protocol")
    assert np.array_equal(exact.bytes_up, protocol.bytes_up)
    assert np.array_equal(exact.bytes_down, protocol.bytes_down)


def test_rows_of_few_people_stay_as_they_were(tastes: World) -> None:
    clients, catalog = tastes[0].take(np.arange(FEW)), tastes[1]
    method = quick("fed-gmf", epochs=1, clients_per_round=0)
    start = method.init(clients, catalog, KEY.child("init"))
    plan = method.plan(start, clients, KEY.child("learn", 0))
    rows = plan.parts[0]
    owner = np.repeat(np.arange(FEW), np.diff(rows.ptr))
    people = np.array([len(set(owner[rows.ids == item])) for item in range(catalog.n_items)])
    assert (people < 12).any()
    assert (people >= 12).any()
    config = SecureRoundsConfig(n_min=3, k_min=12)
    after = final(
        simulate(UpdatePath(method, (), RING), clients, catalog, KEY, None, SimulationOptions(secure=config))
    ).shared["items"]
    moved = (after != start.shared["items"]).any(axis=1)
    assert np.array_equal(moved, people >= 12)


def test_a_round_that_too_many_leave_moves_nothing(tastes: World) -> None:
    model, traffic = secured("fed-gmf", tastes, dropout=0.8, two_stage=False)
    assert traffic.rounds.sum() == traffic.masked.sum() == 0
    start = brief("fed-gmf").init(tastes[0].take(np.arange(FEW)), tastes[1], KEY.child("init"))
    assert_same(model.shared, start.shared)
    assert_same(model.private, start.private)


def test_rounds_of_too_few_people_are_refused_before_they_start(tastes: World) -> None:
    with pytest.raises(ConfigError, match="asks 12 clients, fewer than the 13"):
        secured("fed-gmf", tastes, n_min=13)
    experiment = Experiment.from_options({"method": "ease", "runtime": {"secure": {}}}, "here")
    with pytest.raises(ConfigError, match=r"runtime\.secure has no effect"):
        run(experiment)


@pytest.mark.parametrize("name", [name for name in EVERY if name not in FEDERATED])
def test_a_method_whose_server_reads_every_client_is_refused(name: str, tastes: World) -> None:
    with pytest.raises(ConfigError, match=brief(name).spec.client_tables[0]):
        secured(name, tastes)
