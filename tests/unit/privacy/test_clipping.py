"""Lengths of what leaves, worked by hand and for every federated method."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tacit.privacy.outbound import seal

from tacit.config import Experiment
from tacit.errors import ConfigError
from tacit.experiments import run
from tacit.privacy.clipping import Clipping, ClippingConfig
from tacit.random import Key
from tacit.updates import Ring, Rows, Update

KEY = Key(1)


def update() -> Update:
    """Person 7 sends rows of lengths 5 and 10, and 12 in another table; person 9 one of length 1."""
    items = Rows(np.array([0, 2, 3]), np.array([1, 4, 0], np.int32), np.array([[3, 4], [6, 8], [0, 1]], np.float32))
    layers = Rows(np.array([0, 1, 1]), np.array([0], np.int32), np.array([[0, 12, 0]], np.float32))
    marks = {"items": np.array([True, False, True]), "layers": np.array([False])}
    return Update(np.array([7, 9]), {"items": items, "layers": layers}, marks)


def lengths(found: Update) -> dict[str, list[float]]:
    return {name: np.linalg.norm(rows.values, axis=1).round(5).tolist() for name, rows in found.tables.items()}


def test_rows_are_shortened_to_the_longest_allowed_and_keep_their_direction() -> None:
    found = Clipping(row=5.0).on_device(update(), KEY)
    assert lengths(found) == {"items": [5, 5, 1], "layers": [5]}
    np.testing.assert_allclose(found.tables["items"].values[1], [3, 4])
    assert found.sensitive.keys() == update().sensitive.keys()


def test_a_person_is_shortened_as_a_whole() -> None:
    whole = np.sqrt(25 + 100 + 144)
    found = Clipping(person=whole / 2).on_device(update(), KEY)
    assert lengths(found) == {"items": [2.5, 5, 1], "layers": [6]}


def test_both_bounds_hold_rows_first() -> None:
    found = Clipping(row=5.0, person=np.sqrt(75.0) / 5).on_device(update(), KEY)
    assert lengths(found) == {"items": [1, 1, 1], "layers": [1]}


def test_what_is_short_enough_and_what_is_zero_stays_as_it_is() -> None:
    found = Clipping(row=12.0, person=100.0).on_device(update(), KEY)
    for name, rows in update().tables.items():
        assert np.array_equal(found.tables[name].values, rows.values)
    nothing = Update(
        np.array([7]), {"items": Rows(np.array([0, 1]), np.array([0], np.int32), np.zeros((1, 2), np.float32))}
    )
    assert not Clipping(row=1.0, person=1.0).on_device(nothing, KEY).tables["items"].values.any()


def test_rows_that_are_made_anew_are_shortened_again() -> None:
    made = update()
    again = Update(made.clients, made.tables, made.sensitive, remake=lambda rest: rest)
    clipped = Clipping(row=5.0).on_device(again, KEY)
    assert clipped.remake is not None
    assert lengths(clipped.remake(made)) == {"items": [5, 5, 1], "layers": [5]}


def test_clip_without_a_bound_is_refused() -> None:
    with pytest.raises(ConfigError, match="row"):
        ClippingConfig.checked({}, "privacy")
    with pytest.raises(ConfigError, match="row"):
        ClippingConfig.checked({"row": 0}, "privacy")


def test_sealed_rows_are_no_longer_than_allowed_up_to_the_grid() -> None:
    ring = Ring()
    sent = seal(update(), [Clipping(row=0.3)], ring, KEY)
    for _, _, numbers in sent.tables.values():
        assert (np.linalg.norm(ring.decode(numbers), axis=1) <= 0.3 + 2e-6).all()


@pytest.mark.parametrize("name", ["fpl", "fed-gmf", "fed-svd"])
def test_an_experiment_clips_any_federated_method(name: str) -> None:
    given: dict[str, Any] = {
        "data": {"source": "town", "people": 60, "places": 80, "visits": 20},
        "method": {"name": name, "epochs": 2},
        "evaluation": {"twin_people": 0},
    }
    clip = [{"name": "disclose", "pi": 0.5}, {"name": "clip", "row": 1e-3}]
    plain, clipped = (run(Experiment.checked({**given, "privacy": stages}, "test")) for stages in (clip[:1], clip))
    models = [result.recommender.model for result in (plain, clipped)]
    table = {"fed-svd": "basis"}.get(name, "items")
    assert not np.array_equal(models[0].shared[table], models[1].shared[table])
    assert np.isfinite(models[1].shared[table]).all()
