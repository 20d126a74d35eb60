"""A device changes the key of its line: its identity signs the hand-over, and a crash in between costs nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from helpers.waiting import LONG, wait_until
from tacit.errors import FieldError

pytest.importorskip("flwr", reason="the field needs Flower")

from helpers.flower_federation import Field
from tacit.field import bounded_answers
from tacit.field.carriers.fleet_node import DeviceEvent, UnknownDeviceError
from tacit.field.carriers.supernode import SuperNode
from tacit.field.device import Device
from tacit.field.device.device_file import NEXT_IDENTITY, NEXT_KEY, read_identity
from tacit.field.directory_notices import fetch_notices
from tacit.field.invitations import draw_key, public_half
from tacit.field.key_rotation import NEW_IDENTITY_KEY, change_key
from tacit.protocols.notices import Notice, NoticeKind, NoticeList
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


def wait_until_present(field: Field, device: Device) -> None:
    """Let the first device take part until the coordinator sees it."""
    stop = threading.Event()
    node = threading.Thread(target=lambda: SuperNode(device, poll=0.05).run(stop), daemon=True)
    node.start()
    try:
        wait_until(lambda: 1 in field.link.present(), LONG, "the device is there with its new key")
    finally:
        stop.set()
        node.join(LONG)


def test_the_new_key_connects_and_the_old_one_does_not(field: Field, device: Device) -> None:
    before, identity = device.connection, device.identity
    change_key(device)
    assert device.connection["key"] != before["key"]
    assert NEXT_KEY not in device.connection
    known = {one.number: (one.key, one.identity) for one in field.journal.members.devices()}
    assert known[1] == (public_half(device.connection["key"]), identity)
    wait_until_present(field, device)
    device.keep_connection(before)
    with pytest.raises(UnknownDeviceError):
        SuperNode(device).session(threading.Event())


def test_an_answer_that_is_lost_is_asked_for_again(
    field: Field, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, old = httpx.Client.send, device.connection["key"]

    def losing(client: httpx.Client, request: httpx.Request, **named: Any) -> httpx.Response:
        found = real(client, request, **named)
        if request.method == "POST":
            found.close()
            raise httpx.ReadError("the line broke")
        return found

    monkeypatch.setattr(httpx.Client, "send", losing)
    with pytest.raises(FieldError) as lost:
        change_key(device)
    assert "tacit device new-key" in lost.value.hint, "which key holds is not known"
    assert device.connection["key"] == old
    new, node = device.connection[NEXT_KEY], SuperNode(device)
    with pytest.raises(FieldError) as again:
        node.session(threading.Event())
    assert not isinstance(again.value, UnknownDeviceError), "it was not revoked"
    assert device.connection["key"] == old, "it is still not known which key holds"
    monkeypatch.setattr(httpx.Client, "send", real)
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


def test_a_key_of_the_identity_whose_answer_is_lost_is_finished_at_the_next_start(
    field: Field, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, posted, name = httpx.Client.send, list[str](), device.identity

    def losing(client: httpx.Client, request: httpx.Request, **named: Any) -> httpx.Response:
        found = real(client, request, **named)
        if request.method == "POST":
            posted.append(request.url.path)
        if request.url.path == NEW_IDENTITY_KEY:
            found.close()
            raise httpx.ReadError("the line broke")
        return found

    monkeypatch.setattr(httpx.Client, "send", losing)
    with pytest.raises(FieldError):
        change_key(device)
    assert len(posted) == 2
    assert NEXT_KEY not in device.connection, "the connection has its new key already"
    monkeypatch.setattr(httpx.Client, "send", real)
    wait_until_present(field, device)
    assert NEXT_IDENTITY not in device.connection
    own = read_identity(device.store)
    assert own.public == name, "the others know it by the same name"
    assert field.journal.notices.keys().key_of(name) == own.key != name
    change_key(device)
    assert len(field.journal.notices.list().notices) == 2, "its new key signs for the next one, and for the connection"


def test_a_key_that_was_taken_is_not_thrown_away_by_another_answer(
    field: Field, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is lost, and something between device and coordinator refuses the second try."""
    real, asked, name = httpx.Client.send, list[str](), device.identity

    def disturbed(client: httpx.Client, request: httpx.Request, **named: Any) -> httpx.Response:
        if request.url.path != NEW_IDENTITY_KEY:
            return real(client, request, **named)
        asked.append(request.url.path)
        if len(asked) > 1:
            return httpx.Response(403, request=request)
        real(client, request, **named).close()
        raise httpx.ReadError("the line broke")

    monkeypatch.setattr(httpx.Client, "send", disturbed)
    with pytest.raises(FieldError):
        change_key(device)
    change_key(device)
    assert len(asked) == 2
    assert NEXT_IDENTITY not in device.connection
    assert field.journal.notices.keys().key_of(name) == read_identity(device.store).key != name
    with pytest.raises(FieldError):  # refused, and not taken: the key that it has stays
        change_key(device)
    assert NEXT_IDENTITY not in device.connection
    assert field.journal.notices.keys().key_of(name) == read_identity(device.store).key


def test_a_revoked_device_learns_it_from_the_list_of_members(field: Field, device: Device) -> None:
    """Also where the coordinator says nothing, and only asks others."""
    news, stop = list[DeviceEvent](), threading.Event()
    node = SuperNode(device, poll=0.05)

    def run(listen: Callable[[DeviceEvent], None]) -> None:
        taking_part = threading.Thread(target=lambda: node.run(stop, listen), daemon=True)
        taking_part.start()
        try:
            wait_until(lambda: any(one.is_revoked for one in news), LONG, "it knows that it was revoked")
        finally:
            stop.set()
            taking_part.join(LONG)

    shown = NoticeList((Notice(NoticeKind.REVOKED, device.identity),))
    with field.journal.file.transaction():  # the notice alone: the coordinator keeps the connection
        field.journal.file.connection.execute("INSERT INTO notices (kind, identity) VALUES (1, ?)", (device.identity,))
    assert field.journal.notices.list() == shown
    run(news.append)
    link = device.participation.link
    assert link is not None
    assert link.kind == "revoked"
    assert device.directory.notices == shown


def test_a_list_of_members_without_an_end_is_given_up(
    field: Field, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before all of it is in memory."""
    line, most = device.connection, NoticeList().encode()
    monkeypatch.setattr(bounded_answers, "MOST_BYTES", len(most))
    assert fetch_notices(line["address"], line["roots"].encode(), device.federation_id) == NoticeList()
    monkeypatch.setattr(bounded_answers, "MOST_BYTES", len(most) - 1)
    with pytest.raises(FieldError):
        fetch_notices(line["address"], line["roots"].encode(), device.federation_id)
    monkeypatch.undo()
    monkeypatch.setattr(bounded_answers, "WHOLE_SECONDS", -1.0)
    with pytest.raises(FieldError):  # it comes drop by drop
        fetch_notices(line["address"], line["roots"].encode(), device.federation_id)


def test_only_its_own_identity_changes_a_key(field: Field, device: Device) -> None:
    old, other = (one.key for one in field.journal.members.devices())
    new = public_half(draw_key())
    forged = Identity.fresh().sign(hand_over_statement(old, new))
    assert not field.journal.members.hand_over(old, new, forged)
    assert not field.journal.members.hand_over(old, new, b"")
    right = device.keys.sign_hand_over(old, new)
    assert not field.journal.members.hand_over(other, new, right), "signed for another key"
    assert not field.journal.members.hand_over(old, other, device.keys.sign_hand_over(old, other)), (
        "the key of another device"
    )
    assert field.journal.members.hand_over(old, new, right)
    assert field.journal.members.hand_over(old, new, right), "twice is fine"
    assert {one.key for one in field.journal.members.devices()} == {new, other}
    assert not field.journal.members.hand_over(new, old, device.keys.sign_hand_over(new, old)), (
        "no way back to a former key"
    )
    word = field.journal.invitations.make(2**40)
    assert field.journal.members.enrol(word, old, 0) is None, "nor is it enrolled again by whoever has it"
    field.journal.members.revoke(1)
    newer = public_half(draw_key())
    assert not field.journal.members.hand_over(new, newer, device.keys.sign_hand_over(new, newer)), "it was revoked"
