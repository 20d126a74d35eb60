"""Lengths of what leaves, worked by hand and for every federated method."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.config import Experiment
from tacit.errors import ConfigError
from tacit.lab.experiments import run
from tacit.privacy.clipping import Clipping, ClippingConfig
from tacit.privacy.update_sink import Limits, UpdateSink
from tacit.random import Key
from tacit.types import Floats
from tacit.updates import PlannedRows, Ring, Total, Update, UpdatePlan

KEY, SHAPES = Key(1), {"items": (5, 2), "layers": (1, 3)}
ITEMS = np.array([[3, 4], [6, 8], [0, 1]], np.float32)
LAYERS = np.array([[0, 12, 0]], np.float32)


def planned() -> UpdatePlan:
    """Client 7 sends two rows of items and the one of the layers, client 9 one of items."""
    marks = np.array([True, False, True])
    items = PlannedRows("items", np.array([0, 2, 3]), np.array([1, 4, 0], np.int32), marks)
    layers = PlannedRows("layers", np.array([0, 1, 1]), np.array([0], np.int32), False)
    return UpdatePlan(np.array([7, 9]), (items, layers))


def sent(stage: Clipping, items: Floats = ITEMS, layers: Floats = LAYERS, plan: UpdatePlan | None = None) -> Update:
    """Return what leaves: by itself client 7 sends rows of lengths 5 and 10, and 12 in another table; client 9 one."""
    sink = UpdateSink(plan or planned(), [(stage, KEY)], Ring(), SHAPES)
    sink.put(0, items)
    sink.put(1, layers)
    message, _, is_fit = sink.finish()
    assert message is not None
    assert is_fit.all()
    return message.read(Ring())


def lengths(found: Update) -> dict[str, list[float]]:
    return {name: np.linalg.norm(rows.values, axis=1).round(5).tolist() for name, rows in found.tables.items()}


def test_rows_are_shortened_to_the_longest_allowed_and_keep_their_direction() -> None:
    found = sent(Clipping(row=5.0))
    assert lengths(found) == {"items": [5, 5, 1], "layers": [5]}
    np.testing.assert_allclose(found.tables["items"].values[1], [3, 4])
    assert found.sensitive["items"].tolist() == [True, False, True]
    assert found.sensitive["layers"].tolist() == [False]


def test_a_person_is_shortened_as_a_whole() -> None:
    whole = np.sqrt(25 + 100 + 144)
    found = sent(Clipping(person=whole / 2))
    assert lengths(found) == {"items": [2.5, 5, 1], "layers": [6]}


def test_both_bounds_hold_rows_first() -> None:
    found = sent(Clipping(row=5.0, person=np.sqrt(75.0) / 5))
    assert lengths(found) == {"items": [1, 1, 1], "layers": [1]}


def test_what_is_short_enough_and_what_is_zero_stays_as_it_is() -> None:
    found = sent(Clipping(row=12.0, person=100.0))
    assert np.array_equal(found.tables["items"].values, ITEMS)
    assert np.array_equal(found.tables["layers"].values, LAYERS)
    nothing = sent(Clipping(row=1.0, person=1.0), np.zeros_like(ITEMS), np.zeros_like(LAYERS))
    assert not nothing.tables["items"].values.any()


def test_rows_that_do_not_leave_are_not_measured() -> None:
    plan = planned()
    narrow = replace(plan, parts=(replace(plan.parts[0], kept=np.array([1, 0, 1], np.uint8)), plan.parts[1]))
    found = sent(Clipping(person=6.5), plan=narrow)  # half of |(5, 12)|
    assert lengths(found) == {"items": [2.5, 1], "layers": [6]}


def test_rows_that_meet_in_a_sum_are_counted_together() -> None:
    """Two rows of item 1, of length 5 and 10, can add up to 15; another table stays apart."""
    plan = planned()
    ids = np.array([1, 1, 0], np.int32)
    twice = replace(plan, parts=(replace(plan.parts[0], ids=ids), plan.parts[1]))
    whole = np.sqrt(15**2 + 12**2)
    found = sent(Clipping(person=whole / 3, in_sum=True), plan=twice)
    np.testing.assert_allclose(lengths(found)["items"], [5 / 3, 10 / 3, 1], atol=1e-5)
    np.testing.assert_allclose(lengths(found)["layers"], [4], atol=1e-5)
    apart = sent(Clipping(person=1.0, in_sum=True)), sent(Clipping(person=1.0))
    for name, rows in apart[0].tables.items():  # rows that do not repeat are counted as they are
        np.testing.assert_allclose(rows.values, apart[1].tables[name].values, atol=2e-6)


@settings(max_examples=80)
@given(data=st.data(), row=st.sampled_from([0.5, np.inf]), person=st.floats(0.01, 8.0), is_outer=st.booleans())
def test_no_client_moves_a_sum_by_more_than_its_bound(
    data: st.DataObject, row: float, person: float, is_outer: bool
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    n_clients, width = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    planned_rows, values = [], []
    for _ in range(data.draw(st.integers(1, 3))):  # parts of one table: rows repeat within a part and between them
        ptr = np.append(0, np.cumsum(rng.integers(0, 6, n_clients)))
        kept = rng.integers(0, 2, ptr[-1]).astype(np.uint8) if rng.random() < 0.5 else None
        planned_rows.append(PlannedRows("items", ptr, rng.integers(0, 3, ptr[-1]).astype(np.int32), False, kept=kept))
        values.append(rng.normal(0, 3, (n_clients if is_outer else ptr[-1], width)).astype(np.float32))
    plan = UpdatePlan(np.arange(n_clients), tuple(planned_rows))
    sink = UpdateSink(plan, [(Clipping(row, person, in_sum=True), KEY)], Ring(), {"items": (3, width)})
    for part, rows in enumerate(values):
        if is_outer:
            sink.put_outer(part, rows)
        else:
            sink.put(part, rows)
    message, _, is_fit = sink.finish()
    assert message is not None
    assert is_fit.all()
    rows = message.read(Ring()).tables["items"]
    for c in range(n_clients):
        own = slice(rows.ptr[c], rows.ptr[c + 1])
        moved = np.zeros((3, width))
        np.add.at(moved, rows.ids[own], rows.values[own])
        rounding = 0.5 * np.sqrt(width) * len(rows.ids[own]) * 2.0**-20
        assert np.linalg.norm(moved) <= person * (1 + 1e-6) + rounding


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_no_clipping_makes_a_number_of_what_is_none(value: float) -> None:
    items, total = ITEMS.copy(), Total.zero(SHAPES)
    items[1, 0] = value
    sink = UpdateSink(planned(), [(Clipping(row=5.0, person=5.0), KEY)], Ring(), SHAPES, total)
    sink.put(0, items)
    sink.put(1, LAYERS)
    _, release, is_fit = sink.finish()
    assert is_fit.tolist() == [False, True]
    assert len(release.bytes) == total.n_clients == 1
    assert total.counts["items"].tolist() == [1, 0, 0, 0, 0]
    assert not total.sums["layers"].any()


def test_what_is_written_is_read_again_and_terms_without_in_sum_keep_their_form() -> None:
    plain, in_sum = ClippingConfig(person=2.0), ClippingConfig(person=2.0, in_sum=True)
    assert plain.model_dump(mode="json") == {"name": "clip", "row": None, "person": 2.0}
    for config in (plain, in_sum):
        assert ClippingConfig.from_options(config.model_dump(mode="json"), "privacy") == config


def test_clip_without_a_bound_is_refused() -> None:
    with pytest.raises(ConfigError, match="row"):
        ClippingConfig.from_options({}, "privacy")
    with pytest.raises(ConfigError, match="row"):
        ClippingConfig.from_options({"row": 0}, "privacy")
    with pytest.raises(ConfigError, match="person"):
        ClippingConfig.from_options({"row": 1, "in_sum": True}, "privacy")
    assert Clipping.build(ClippingConfig(person=2.0, in_sum=True)).limits == Limits(np.inf, 2.0, in_sum=True)


def test_rows_that_leave_are_no_longer_than_allowed_up_to_the_grid() -> None:
    for rows in sent(Clipping(row=0.3)).tables.values():
        assert (np.linalg.norm(rows.values, axis=1) <= 0.3 + 2e-6).all()


@pytest.mark.parametrize("name", ["fpl", "fed-gmf", "fed-svd"])
def test_an_experiment_clips_any_federated_method(name: str) -> None:
    given: dict[str, Any] = {
        "data": {"source": "town", "users": 60, "places": 80, "visits": 20},
        "method": {"name": name, "epochs": 2},
        "evaluation": {"local_only_users": 0},
    }
    clip = [{"name": "disclose", "pi": 0.5}, {"name": "clip", "row": 1e-3}]
    plain, clipped = (run(Experiment.from_options({**given, "privacy": stages}, "test")) for stages in (clip[:1], clip))
    models = [result.recommender.model for result in (plain, clipped)]
    table = {"fed-svd": "basis"}.get(name, "items")
    assert not np.array_equal(models[0].shared[table], models[1].shared[table])
    assert np.isfinite(models[1].shared[table]).all()
