"""A device changes the key of its line: its identity signs the hand-over, and a crash in between costs nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from helpers.waiting import LONG, wait_until
from tacit.errors import FieldError

pytest.importorskip("flwr", reason="the field needs Flower")

from helpers.flower_federation import Field
from tacit.field.carriers.fleet_node import UnknownDeviceError
from tacit.field.carriers.supernode import SuperNode
from tacit.field.device import Device
from tacit.field.device.device_file import NEXT_KEY
from tacit.field.invitations import draw_key, public_half
from tacit.field.key_rotation import change_key
from tacit.protocols.secure_aggregation import Identity
from tacit.wire.enrolment import hand_over_statement

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # Flower and its servers warn of their own doings
]


@pytest.fixture
def field(tmp_path: Path) -> Iterator[Field]:
    made = Field(tmp_path, "fpl", people=2)
    yield made
    made.close()


@pytest.fixture
def device(field: Field) -> Iterator[Device]:
    people = field.people()
    yield people[0]
    for one in people.values():
        one.close()


def test_the_new_key_connects_and_the_old_one_does_not(field: Field, device: Device) -> None:
    before, identity = device.connection, device.identity
    change_key(device)
    assert device.connection["key"] != before["key"]
    assert NEXT_KEY not in device.connection
    known = {one.number: (one.key, one.identity) for one in field.journal.devices()}
    assert known[1] == (public_half(device.connection["key"]), identity)
    stop = threading.Event()
    node = threading.Thread(target=lambda: SuperNode(device, poll=0.05).run(stop), daemon=True)
    node.start()
    try:
        wait_until(lambda: 1 in field.link.present(), LONG, "the device is there with its new key")
    finally:
        stop.set()
        node.join(LONG)
    device.keep_connection(before)
    with pytest.raises(UnknownDeviceError):
        SuperNode(device).session(threading.Event())


def test_an_answer_that_is_lost_is_asked_for_again(
    field: Field, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, old = httpx.post, device.connection["key"]

    def losing(*given: Any, **named: Any) -> httpx.Response:
        real(*given, **named)
        raise httpx.ReadError("the line broke")

    monkeypatch.setattr(httpx, "post", losing)
    with pytest.raises(FieldError) as lost:
        change_key(device)
    assert "tacit device new-key" in lost.value.hint, "which key holds is not known"
    assert device.connection["key"] == old
    new, node = device.connection[NEXT_KEY], SuperNode(device)
    with pytest.raises(FieldError) as again:
        node.session(threading.Event())
    assert not isinstance(again.value, UnknownDeviceError), "it was not revoked"
    assert device.connection["key"] == old, "it is still not known which key holds"
    monkeypatch.setattr(httpx, "post", real)
    stop = threading.Event()
    taking_part = threading.Thread(target=lambda: node.run(stop), daemon=True)
    taking_part.start()
    try:
        wait_until(lambda: 1 in field.link.present(), LONG, "it finds out by itself, and is there with its new key")
    finally:
        stop.set()
        taking_part.join(LONG)
    assert device.connection["key"] == new
    assert NEXT_KEY not in device.connection


def test_nobody_else_changes_a_key(field: Field, device: Device) -> None:
    old, other = (one.key for one in field.journal.devices())
    new = public_half(draw_key())
    stranger = Identity.fresh().sign(hand_over_statement(old, new))
    assert not field.journal.hand_over(old, new, stranger)
    assert not field.journal.hand_over(old, new, b"")
    right = device.sign_hand_over(old, new)
    assert not field.journal.hand_over(other, new, right), "signed for another key"
    assert not field.journal.hand_over(old, other, device.sign_hand_over(old, other)), "the key of another device"
    assert field.journal.hand_over(old, new, right)
    assert field.journal.hand_over(old, new, right), "twice is fine"
    assert {one.key for one in field.journal.devices()} == {new, other}
    assert not field.journal.hand_over(new, old, device.sign_hand_over(new, old)), "no way back to a former key"
    word = field.journal.invite(2**40)
    assert field.journal.enrol(word, old, 0) is None, "nor is it enrolled again by whoever has it"
    field.journal.revoke(1)
    newer = public_half(draw_key())
    assert not field.journal.hand_over(new, newer, device.sign_hand_over(new, newer)), "it was revoked"
