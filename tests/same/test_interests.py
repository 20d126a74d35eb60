"""A user without a history: chosen interests stand in for it, on the device alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.loopback_federation import Field
from tacit.errors import DeviceError, MethodError
from tacit.field.device import Device

HISTORY_METHODS = ["fed-svd", "fed-ease"]


def newcomer(field: Field) -> Device:
    """The first device, with an empty history."""
    device = field.people()[0]
    for entry in device.history.list():
        device.history.remove(entry.item, device.catalog)
    assert len(device.history) == 0
    return device


def kind_of(field: Field) -> str:
    """A category that another user's history has."""
    assert field.catalog.categories is not None
    return field.catalog.categories.of(int(field.clients.of(1)[0]))[0]


@pytest.mark.slow
@pytest.mark.parametrize("method", [*HISTORY_METHODS, "fpl"])
def test_suggestions_begin_with_interests_and_end_with_a_history(method: str, tmp_path: Path) -> None:
    field = Field(tmp_path, method)
    device, kind = newcomer(field), kind_of(field)
    field.run(rounds=2, secure=None)
    with pytest.raises(MethodError):
        device.recommend(5)
    title = field.catalog.title(7)
    device.preferences.choose_interests([kind, title])
    assert device.preferences.interests.categories == (kind,)
    found = device.recommend(8)
    assert len(found) == 8
    assert field.catalog.item_ids[7] not in [one.item for one in found]
    assert {one.why for one in found} <= {f"because you chose “{name}”" for name in (kind, title)}
    assert device.catalog.categories is not None
    if method == "fed-svd":  # its directions keep items of a kind together; in fed-ease none predicts itself
        first = device.catalog.item_ids.index(found[0].item)
        assert kind in device.catalog.categories.of(first)
    device.preferences.choose_interests([])
    with pytest.raises(MethodError):
        device.recommend(5)


@pytest.mark.slow
@pytest.mark.parametrize("method", HISTORY_METHODS)
def test_interests_never_leave_and_nothing_is_learnt_from_them(method: str, tmp_path: Path) -> None:
    left = []
    for chosen in (False, True):
        field = Field(tmp_path / str(chosen), method)
        device = newcomer(field)
        if chosen:
            device.preferences.choose_interests([kind_of(field)])
        coordinator = field.run(rounds=2, secure=None)
        assert not device.ledger.list()
        left.append(coordinator.shared)
    assert all(np.array_equal(left[0][name], left[1][name]) for name in left[0])


def test_interests_survive_a_restart_and_are_in_the_users_own_copy(tmp_path: Path) -> None:
    field = Field(tmp_path, "fed-svd")
    kind = kind_of(field)
    field.people()[0].preferences.choose_interests([kind])
    field.restart(0)
    device = field.people()[0]
    assert device.preferences.interests.categories == (kind,)
    assert [*device.readable()["interests"]["categories"]] == [kind]


def test_an_unknown_interest_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    field = Field(tmp_path, "fed-svd")
    device, kind = field.people()[0], kind_of(field)
    device.preferences.choose_interests([kind])
    with pytest.raises(DeviceError, match="no item or category 'Submarines'"):
        device.preferences.choose_interests([kind, "Submarines"])
    assert device.preferences.interests.categories == (kind,)


def test_what_a_history_says_comes_first(tmp_path: Path) -> None:
    field = Field(tmp_path, "fed-svd")
    field.run(rounds=2, secure=None)
    device = field.people()[0]
    before = device.recommend(5)
    device.preferences.choose_interests([kind_of(field)])
    assert device.recommend(5) == before
