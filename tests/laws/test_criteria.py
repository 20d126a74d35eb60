"""What holds for every score, criterion and weighed federation (thesis, 5.4 to 5.7)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tacit.errors import ConfigError, MethodError
from tacit.lab.simulation import SimulationOptions, simulate
from tacit.lab.traffic import Traffic
from tacit.methods.base import build, entry, names, options
from tacit.protocols.criteria import CRITERIA, ClientFacts, CriteriaConfig, criterion, priority_score, weigh_clients
from tacit.protocols.federated import UpdatePath
from tacit.protocols.rounds import RoundsConfig
from tacit.protocols.weighing import WeightLog
from tacit.random import Key
from tacit.types import Catalog, Clients, Model
from tacit.updates import Ring

FEDERATED = names("federated")
UNIT = st.floats(0, 1)
COLUMNS = arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 6)), elements=UNIT)
World = tuple[Clients, Catalog]
KEY = Key(7).child("learn")


@pytest.mark.slow
@given(COLUMNS, st.data())
def test_5_6_a_higher_criterion_never_lowers_the_score(x: np.ndarray, data: Any) -> None:
    i = data.draw(st.integers(0, len(x) - 1))
    higher = x.copy()
    higher[i] += data.draw(UNIT) * (1 - x[i])
    assert (priority_score(higher) >= priority_score(x) - 1e-12).all()


@given(COLUMNS, st.data())
def test_5_7_an_unmet_criterion_cancels_all_after_it(x: np.ndarray, data: Any) -> None:
    j = data.draw(st.integers(0, len(x) - 1))
    x[j] = 0.0
    np.testing.assert_allclose(priority_score(x), priority_score(x[:j]) if j else 0.0)


@given(st.integers(1, 6))
def test_the_score_runs_from_zero_to_the_number_of_criteria(m: int) -> None:
    assert priority_score(np.zeros((m, 1)))[0] == 0
    assert priority_score(np.ones((m, 1)))[0] == m


@given(arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 9)), elements=st.floats(0, 1e4)))
@settings(max_examples=60)
def test_weights_are_shares_and_do_not_depend_on_the_order_of_clients(measured: np.ndarray) -> None:
    names = tuple("abcd"[: len(measured)])
    found = weigh_clients(names, measured)
    assert found.weights.sum() == pytest.approx(1.0)
    assert (found.weights >= 0).all()
    assert np.array_equal(weigh_clients(names, measured[:, ::-1]).weights, found.weights[::-1])


def test_where_no_client_meets_a_criterion_all_count_the_same() -> None:
    assert weigh_clients(("a", "b"), np.zeros((2, 4))).weights.tolist() == [0.25] * 4
    first_unmet = weigh_clients(("a", "b"), np.array([[0, 0, 0], [1, 2, 3]]))
    assert first_unmet.weights.tolist() == [1 / 3] * 3, "nothing can make up for the first criterion"


def test_relative_to_the_mean_the_order_matters_however_many_are_asked() -> None:
    rng = np.random.default_rng(0)
    measured = rng.random((2, 500)) + 0.01
    by_share, relative = (weigh_clients(("a", "b"), measured, scale=scale) for scale in ("share", "relative"))
    turned = [weigh_clients(("b", "a"), measured[::-1], scale=scale).weights for scale in ("share", "relative")]
    assert ((relative.criteria >= 0) & (relative.criteria <= 1)).all()
    np.testing.assert_allclose(by_share.factors, measured[0] / measured[0].mean(), rtol=0.01)  # b adds next to nothing
    second = relative.factors / (relative.criteria[0] / relative.criteria[0].mean())
    assert second.max() / second.min() > 1.5
    assert np.abs(turned[1] - relative.weights).max() > 0


@pytest.mark.parametrize("value", [np.nan, -1.0, np.inf])
def test_a_measure_that_is_none_is_refused_by_name(value: float) -> None:
    with pytest.raises(MethodError, match=f"criterion 'b' measured {value:g} for client 12"):
        weigh_clients(("a", "b"), np.array([[1.0, 1.0], [0.5, value]]), who=np.array([11, 12]))


def test_orders_name_criteria_that_exist_once() -> None:
    with pytest.raises(ConfigError, match=r"no criterion 'sise'.*Did you mean 'size'"):
        CriteriaConfig.from_options({"order": ["sise"]}, "rounds")
    with pytest.raises(ConfigError, match="occurs twice"):
        CriteriaConfig.from_options({"order": ["size", "size"]}, "rounds")


# --- in a federation -----------------------------------------------------------------------------------------------


def quick(name: str) -> Any:
    fields = entry(name).config.model_fields
    few = {"epochs": 2, "factors": 6, "learning_rate": 0.05, "clients_per_round": 12}
    return build(name, options(name, {k: v for k, v in few.items() if k in fields}))


def final(name: str, world: World, order: tuple[str, ...] | None, told: WeightLog | None = None, **given: Any) -> Model:
    rounds = RoundsConfig(criteria=None if order is None else CriteriaConfig(order=order), **given)
    path = UpdatePath(quick(name), (), Ring())
    for model in simulate(path, *world, KEY, None, SimulationOptions(rounds, weight_log=told)):
        last = model
    return last.copy()


@pytest.fixture
def alike() -> Any:
    """A criterion that all clients meet alike."""
    criterion("alike", "the same for all")(lambda seen: np.ones(len(seen.clients)))
    yield "alike"
    del CRITERIA["alike"]


@pytest.mark.parametrize("name", FEDERATED)
def test_a_criterion_that_all_meet_alike_changes_nothing(name: str, tastes: World, alike: str) -> None:
    plain, weighed = final(name, tastes, None), final(name, tastes, (alike,))
    for table in quick(name).spec.downloads:
        assert np.array_equal(plain.shared[table], weighed.shared[table])


@pytest.mark.parametrize("name", FEDERATED)
def test_criteria_change_what_every_method_learns(name: str, tastes: World) -> None:
    table = quick(name).spec.downloads[0]
    plain, weighed = final(name, tastes, None), final(name, tastes, ("diversity", "divergence"))
    assert np.isfinite(weighed.shared[table]).all()
    assert not np.array_equal(plain.shared[table], weighed.shared[table])


def test_whoever_meets_nothing_moves_nothing(tastes: World) -> None:
    criterion("first", "only the first person counts")(lambda seen: (seen.clients.ids == 0).astype(float))
    try:
        told = WeightLog()
        final("fpl", tastes, ("first",), told)
    finally:
        del CRITERIA["first"]
    frame = told.frame().filter(pl.col("round") == pl.col("round").max())
    there = frame.filter(pl.col("user") == 0)
    if there.height:
        assert there["weight"].to_list() == [1.0]
        assert frame.filter(pl.col("user") != 0)["weight"].sum() == 0.0


def test_weights_are_reported_with_their_reasons(tastes: World) -> None:
    told = WeightLog()
    final("fpl", tastes, ("size", "diversity"), told)
    frame = told.frame()
    reasons = ["size measured", "size", "diversity measured", "diversity"]
    assert frame.columns == ["round", "user", *reasons, "score", "weight", "factor"]
    sums = frame.group_by("round").agg(pl.col("weight", "size", "diversity").sum())
    for column in ("weight", "size", "diversity"):
        np.testing.assert_allclose(sums[column], 1.0)
    score = frame["size"] * (1 + frame["diversity"])
    np.testing.assert_allclose(frame["score"], score)


def test_what_criteria_cost_is_counted(tastes: World) -> None:
    clients, catalog = tastes
    bare, weighed = Traffic.none(len(clients)), Traffic.none(len(clients))
    for traffic, criteria in ((bare, None), (weighed, CriteriaConfig(order=("size", "diversity")))):
        path, how = UpdatePath(quick("fpl"), (), Ring()), SimulationOptions(RoundsConfig(criteria=criteria))
        for _ in simulate(path, clients, catalog, KEY, traffic, how):
            pass
    assert np.array_equal(weighed.bytes_up - bare.bytes_up, weighed.rounds * 3 * 8), "two criteria and a score"
    assert np.array_equal(weighed.bytes_down - bare.bytes_down, weighed.rounds * 3 * 8)


def test_what_cannot_be_measured_is_reported(tastes: World) -> None:
    tastes = replace(tastes[0], times=None), tastes[1]
    for name, words in (("freshness", "needs times"), ("liked", "need ratings"), ("balance", "need ratings")):
        with pytest.raises(MethodError, match=words):
            final("fpl", tastes, (name,))
    clients, catalog = tastes
    with pytest.raises(MethodError, match="counts categories"):
        final("fpl", (clients, Catalog(catalog.item_ids)), ("diversity",))


def test_every_criterion_measures_as_it_says() -> None:
    items, ptr = np.array([0, 1, 2, 0], np.int32), np.array([0, 3, 4])
    clients = Clients(np.arange(2), ptr, items, 3, np.array([5, 4, 1, 2], np.float32), np.array([0, 9, 5, 9]) * 86_400)
    seen = ClientFacts(clients, Catalog(clients.ids), 39 * 86_400, np.array([1, 0]), np.array([1, 3]))  # type: ignore[arg-type]
    expected = {"size": [3, 1], "balance": [0.5, 0.0], "liked": [2 / 3, 0.0], "reliability": [1.0, 0.25]}
    for name, values in expected.items():
        np.testing.assert_allclose(CRITERIA[name].measure(seen), values)
    np.testing.assert_allclose(CRITERIA["freshness"].measure(seen), [0.5, 0.5])
