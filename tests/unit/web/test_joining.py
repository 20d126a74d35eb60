"""Joining by an invitation: the page waits calmly, goes on by itself, and says in words what went wrong."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.browser import barriers, opened
from helpers.page_visitor import Visitor
from helpers.small_federation import CATALOG, CHEAP, PASSPHRASE, founded
from helpers.waiting import LONG, wait_until
from tacit.errors import FieldError
from tacit.field.coordinator import CoordinatorJournal
from tacit.field.device import Device
from tacit.web.device_view import DeviceView
from tacit.web.guard import PageAddress
from tacit.web.own import build_user_page
from tacit.web.server import serving
from tacit.wire.federation import Federation
from tacit.wire.messages import write_welcome

pytest.importorskip("flwr")
from tacit.field.bounded_answers import read_whole
from tacit.field.carriers.superlink import SuperLink
from tacit.field.certificates import make_certificates
from tacit.field.invitations import Invitation
from tacit.reasons import ReasonCode

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # Flower and its servers warn of their own doings
]
FAR_AWAY = 2**33  # unix seconds


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[tuple[Device, PageAddress]]:
    """A device without a federation, and its page."""
    with (
        Device.create(tmp_path / "device.db", PASSPHRASE, cost=CHEAP) as device,
        serving(build_user_page(DeviceView(device))) as address,
    ):
        yield device, address


@pytest.fixture
def silence() -> Iterator[socket.socket]:
    """A machine that takes calls and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(LONG)
        yield listener


def line_to(listener: socket.socket) -> str:
    return Invitation(f"127.0.0.1:{listener.getsockname()[1]}", "a word", "").line()


def until_over(visitor: Visitor) -> None:
    state = "/mine/joining/state"
    wait_until(lambda: b"waiting" not in visitor.get(state).body, LONG, "joining has worked or failed")


def changed(**terms: Any) -> bytes:
    """The welcome of the small field with other terms."""
    given = {name: getattr(founded(), name) for name in Federation.model_fields}
    return write_welcome(Federation.model_validate(given | terms), CATALOG)


def test_an_invitation_is_accepted_behind_the_page(alone: tuple[Device, PageAddress], tmp_path: Path) -> None:
    device, address = alone
    journal = CoordinatorJournal.create(tmp_path / "journal.db", founded(), CATALOG)
    tls = make_certificates(tmp_path / "tls", "127.0.0.1")
    link = SuperLink(journal, "127.0.0.1", 0, tls.certificate, tls.key)
    try:
        line = Invitation(f"127.0.0.1:{link.port}", journal.invitations.make(FAR_AWAY), tls.roots).line()
        visitor = Visitor(address)
        answer = visitor.post("/mine/join", {"line": line})
        assert (answer.status, answer.headers["location"]) == (303, "/mine/joining")
        until_over(visitor)
        assert device.membership is None, "there is no guarantee, and the user is asked first"
        assert visitor.agree_to_join().headers["location"] == "/"
        assert visitor.get("/mine/joining").headers["location"] == "/"
        assert "You are a member of the small field" in visitor.get("/").text
        assert device.membership is not None
        assert len(journal.members.devices()) == 1
    finally:
        link.close()
        journal.close()


def test_the_page_answers_while_it_waits_and_says_in_words_what_went_wrong(
    alone: tuple[Device, PageAddress], silence: socket.socket
) -> None:
    device, address = alone
    visitor = Visitor(address)
    assert visitor.post("/mine/join", {"line": line_to(silence)}).status == 303
    called, _ = silence.accept()
    waiting = visitor.get("/mine/joining")
    assert "Waiting for 127.0.0.1" in waiting.text
    assert '<noscript><meta http-equiv="refresh"' in waiting.html, "it goes on without scripts too"
    assert visitor.get("/history").status == 200
    assert visitor.post("/mine/join", {"line": line_to(silence)}).headers["location"] == "/mine/joining"
    called.close()
    until_over(visitor)
    over = visitor.get("/mine/joining")
    assert "Joining did not work" in over.text
    assert "cannot be reached, or has another certificate" in over.text
    assert "Check the network and the address" in over.text
    assert "refresh" not in over.html
    assert device.membership is None


def test_a_user_can_stop_waiting(alone: tuple[Device, PageAddress], silence: socket.socket) -> None:
    device, address = alone
    visitor = Visitor(address)
    visitor.post("/mine/join", {"line": line_to(silence)})
    called, _ = silence.accept()
    visitor.post("/mine/joining/stop")
    called.close()
    assert visitor.get("/mine/joining").headers["location"] == "/mine"
    assert "You have not joined" in visitor.get("/mine").text
    assert device.membership is None


def test_what_is_no_invitation_is_reported_at_once(alone: tuple[Device, PageAddress]) -> None:
    answer = Visitor(alone[1]).post("/mine/join", {"line": "tacit1:nonsense"})
    assert answer.status == 400
    assert "This is not an invitation" in answer.text


DAMAGED = {
    "address": (Invitation("[::1:9", "a word", ""), "address in the invitation is damaged"),
    "roots": (Invitation("127.0.0.1:9", "a word", "Zürich"), "certificate in the invitation is damaged"),
}


@pytest.mark.parametrize("which", DAMAGED)
def test_a_damaged_invitation_is_reported_and_forgotten_after_joining_otherwise(
    alone: tuple[Device, PageAddress], which: str
) -> None:
    device, address = alone
    visitor, (invitation, why) = Visitor(address), DAMAGED[which]
    visitor.post("/mine/join", {"line": invitation.line()})
    until_over(visitor)
    assert why in visitor.get("/mine/joining").text
    device.join(write_welcome(founded(), CATALOG), accepts={ReasonCode.NO_GUARANTEE})
    assert visitor.get("/mine/joining").headers["location"] == "/"


def test_an_unexpected_error_is_reported_too(
    alone: tuple[Device, PageAddress], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*what: object) -> bytes:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr("tacit.field.invitations.enrol", broken)
    visitor = Visitor(alone[1])
    visitor.post("/mine/join", {"line": Invitation("127.0.0.1:9", "a word", "").line()})
    until_over(visitor)
    assert "ZeroDivisionError" in visitor.get("/mine/joining").text


def test_a_welcome_that_comes_drop_by_drop_or_has_no_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_whole([b"a", b"b"]) == b"ab"
    with monkeypatch.context() as patched:
        patched.setattr("tacit.field.bounded_answers.WHOLE_SECONDS", -1.0)
        with pytest.raises(FieldError, match="answers too slowly"):
            read_whole(itertools.repeat(b""))
    monkeypatch.setattr("tacit.field.bounded_answers.MOST_BYTES", 10)
    with pytest.raises(FieldError, match="too large"):
        read_whole(itertools.repeat(b"drop"))


QUESTIONS = {
    "no-guarantee": (changed(), "This group gives no guarantee"),
    "trial": (changed(trial=5), "This group is a test"),
}


@pytest.mark.parametrize("which", QUESTIONS)
def test_a_file_of_a_group_without_a_guarantee_asks_one_question(alone: tuple[Device, PageAddress], which: str) -> None:
    device, address = alone
    visitor, (content, title) = Visitor(address), QUESTIONS[which]
    assert visitor.upload("/mine/join", "welcome", content).headers["location"] == "/mine/joining"
    page = visitor.get("/mine/joining")
    assert title in page.text
    assert "Nothing bounds how much" in page.text
    assert device.membership is None
    visitor.post("/mine/joining/stop")
    assert visitor.get("/mine/joining").headers["location"] == "/mine"
    visitor.upload("/mine/join", "welcome", content)
    assert visitor.agree_to_join().headers["location"] == "/"
    assert device.membership is not None
    assert "You are a member of the small field" in visitor.get("/").text


def test_a_yes_is_to_the_group_that_the_page_showed(alone: tuple[Device, PageAddress]) -> None:
    device, address = alone
    visitor = Visitor(address)
    for nothing_asked in ({}, {"terms": ""}, {"terms": founded().digest.hex()}):
        assert visitor.post("/mine/joining/agree", nothing_asked).headers["location"] == "/mine/joining"
    visitor.upload("/mine/join", "welcome", changed())
    visitor.upload("/mine/join", "welcome", changed(trial=5))
    for stale in ({}, {"terms": ""}, {"terms": founded().digest.hex()}):
        assert visitor.post("/mine/joining/agree", stale).headers["location"] == "/mine/joining"
        assert device.membership is None
    assert "This group is a test" in visitor.get("/mine/joining").text
    visitor.agree_to_join()
    assert device.membership is not None
    assert device.membership.federation.trial == 5


@pytest.mark.parametrize("is_masked", [True, False])
def test_the_question_says_who_reads_what_the_device_sends(alone: tuple[Device, PageAddress], is_masked: bool) -> None:
    device, address = alone
    device.change(lambda before: before.model_copy(update={"masked_only": is_masked}))
    visitor = Visitor(address)
    visitor.upload("/mine/join", "welcome", changed())
    asked = visitor.get("/mine/joining").text
    assert ("only sums" in asked, "read single messages" in asked) == (is_masked, not is_masked)
    german = visitor.get("/mine/joining", Accept_Language="de").text
    assert "Diese Gruppe gibt keine Garantie" in german
    assert "Ja, beitreten" in german


def test_a_yes_in_a_browser(browser: Any, alone: tuple[Device, PageAddress], tmp_path: Path) -> None:
    device, address = alone
    (tmp_path / "group.tacit").write_bytes(changed())
    page = opened(browser, address)
    page.goto(f"http://{address.hosts[0]}{address.base}/mine")
    page.locator("input[type=file][name=file]").first.set_input_files(tmp_path / "group.tacit")
    page.get_by_role("button", name="Join").click()
    page.get_by_text("This group gives no guarantee").wait_for(timeout=60_000)
    assert barriers(browser, address, ["/mine/joining"]) == []
    page.get_by_role("button", name="Yes, join").click()
    page.get_by_text("You are a member of the small field").wait_for(timeout=60_000)
    assert device.membership is not None
    assert page.complaints == []
    page.context.close()


def test_the_waiting_page_in_a_browser(browser: Any, alone: tuple[Device, PageAddress], silence: socket.socket) -> None:
    page = opened(browser, alone[1])
    page.goto(f"http://{alone[1].hosts[0]}{alone[1].base}/mine")
    page.get_by_label("Invitation").fill(line_to(silence))
    page.get_by_role("button", name="Join").click()
    page.get_by_text("Waiting for 127.0.0.1").wait_for(timeout=60_000)
    called, _ = silence.accept()
    assert barriers(browser, alone[1], ["/mine/joining"]) == []
    called.close()
    page.get_by_text("Joining did not work").wait_for(timeout=60_000)
    assert barriers(browser, alone[1], ["/mine/joining"]) == []
    assert page.complaints == []
    page.context.close()
