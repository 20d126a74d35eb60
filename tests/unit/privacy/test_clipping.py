"""Lengths of what leaves, worked by hand and for every federated method."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tacit.config import Experiment
from tacit.errors import ConfigError
from tacit.lab.experiments import run
from tacit.privacy.clipping import Clipping, ClippingConfig
from tacit.privacy.update_sink import UpdateSink
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


def test_clip_without_a_bound_is_refused() -> None:
    with pytest.raises(ConfigError, match="row"):
        ClippingConfig.from_options({}, "privacy")
    with pytest.raises(ConfigError, match="row"):
        ClippingConfig.from_options({"row": 0}, "privacy")


def test_rows_that_leave_are_no_longer_than_allowed_up_to_the_grid() -> None:
    for rows in sent(Clipping(row=0.3)).tables.values():
        assert (np.linalg.norm(rows.values, axis=1) <= 0.3 + 2e-6).all()


@pytest.mark.parametrize("name", ["fpl", "fed-gmf", "fed-svd"])
def test_an_experiment_clips_any_federated_method(name: str) -> None:
    given: dict[str, Any] = {
        "data": {"source": "town", "people": 60, "places": 80, "visits": 20},
        "method": {"name": name, "epochs": 2},
        "evaluation": {"local_only_people": 0},
    }
    clip = [{"name": "disclose", "pi": 0.5}, {"name": "clip", "row": 1e-3}]
    plain, clipped = (run(Experiment.from_options({**given, "privacy": stages}, "test")) for stages in (clip[:1], clip))
    models = [result.recommender.model for result in (plain, clipped)]
    table = {"fed-svd": "basis"}.get(name, "items")
    assert not np.array_equal(models[0].shared[table], models[1].shared[table])
    assert np.isfinite(models[1].shared[table]).all()
