"""A message that was made and did not leave: it does not leave later either, once the user forbids what it holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.refusals import refused
from helpers.small_federation import CATALOG, KINDS, first_shared, founded, made, request
from tacit.errors import ConsentError
from tacit.field.device import Device, Sharing
from tacit.field.device.membership import Answer
from tacit.protocols.secure_aggregation import DevicePolicy
from tacit.reasons import ReasonCode

NARROWER: dict[str, dict[str, Any]] = {
    "masked only": {"masked_only": True},
    "nothing": {"pi": 0.0},
    "a little less": {"pi": 0.9},
    "never one item": {"never_items": (CATALOG.item_ids[1],)},
    "never a kind": {"never_categories": (KINDS[0],)},
    "one coin per item": {"coin": "item"},
    "stricter sums": {"device_policy": DevicePolicy(n_min=50)},
    "no measure": {"measure": False},
}
WIDER: dict[str, Callable[[Device], None]] = {
    "unchanged": lambda device: None,
    "paused and resumed": lambda device: (device.pause(), device.resume())[0],
    "more": lambda device: device.share(Sharing(pi=1.0, masked_only=False)),
    "there and back": lambda device: (
        device.share(Sharing(pi=0.0, masked_only=False)),
        device.share(Sharing(pi=0.95, masked_only=False)),
    )[0],
}


@pytest.fixture
def device(tmp_path: Path) -> Device:
    device = made(tmp_path / "device.db")
    device.share(Sharing(pi=0.95, masked_only=False))
    return device


@pytest.mark.parametrize("how", NARROWER)
def test_what_was_made_before_the_user_forbade_more_does_not_leave(device: Device, how: str) -> None:
    asked = request(founded(), 0)
    entry = device.learn(asked)  # and the line breaks, or the device dies
    device.share(device.sharing.model_copy(update=NARROWER[how]))
    code = ReasonCode.MASKED_ONLY if device.sharing.masked_only else ReasonCode.SETTINGS_NARROWED
    with refused(ConsentError, code):
        device.learn(asked)
    with refused(ConsentError, code):
        device.release(entry)
    assert [release.state for release in device.ledger.list()] == ["prepared"]
    device.share(Sharing(pi=0.95, masked_only=False))
    assert device.release(device.learn(asked)), "it was the settings and nothing else"


@pytest.mark.parametrize("how", WIDER)
def test_what_the_user_still_allows_is_repeated_as_it_is(device: Device, how: str) -> None:
    asked = request(founded(), 0)
    first = device.release(device.learn(asked))
    WIDER[how](device)
    assert device.release(device.learn(asked)) == first
    assert len(device.ledger.list()) == 1


def test_a_message_of_an_older_program_is_not_repeated_and_the_next_round_goes_on(device: Device) -> None:
    """Its file does not say under which settings the message was made."""
    asked = request(founded(), 0)
    entry = device.learn(asked)
    stored = device._store.get("outbox")
    assert stored is not None
    head, _, content = stored.partition(b"\n")
    old = {key: value for key, value in json.loads(head).items() if key != "under"}
    with device._store.transaction():
        device._store.put("outbox", json.dumps(old).encode() + b"\n" + content)
    assert device.membership is not None
    assert device.membership.answer() == Answer(entry, 0, old["request"], content)
    with refused(ConsentError, ReasonCode.SETTINGS_NARROWED):
        device.release(device.learn(asked))
    assert device.release(device.learn(request(founded(), 1, first_shared(founded()))))
