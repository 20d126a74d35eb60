"""`tacit device run` tells a person what happens, and ends by itself when there is nothing left to wait for."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.commands import run_command
from helpers.page_visitor import Visitor
from helpers.refusals import refused
from helpers.small_federation import CATALOG, CHEAP, PASSPHRASE, founded, request
from helpers.waiting import LONG, wait_for_thread, wait_until
from tacit.errors import ConsentError
from tacit.field.coordinator import Coordinator, CoordinatorJournal, RoundRules
from tacit.field.device import Device, Sharing
from tacit.field.device.directory import TRUST
from tacit.field.device.history import HistoryEntry
from tacit.reasons import ReasonCode, RoundReason, describe_reason
from tacit.web.device_view import DeviceView
from tacit.web.own import build_user_page
from tacit.web.server import serving

pytest.importorskip("flwr", reason="the field needs Flower")
from tacit.cli.device_run import EventMessages
from tacit.field.carriers.fleet_node import DeviceEvent
from tacit.field.carriers.superlink import SuperLink
from tacit.field.carriers.supernode import SuperNode
from tacit.field.certificates import make_certificates
from tacit.field.invitations import Invitation, accept
from tacit.wire.status import CoordinatorStatus

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # Flower and its servers warn of their own doings
]


class Place:
    """A coordinator that listens, and one device that has joined."""

    def __init__(self, folder: Path) -> None:
        self.journal = CoordinatorJournal.create(folder / "journal.db", founded(), CATALOG, seed=1)
        tls = make_certificates(folder / "tls", "127.0.0.1")
        self.link = SuperLink(self.journal, "127.0.0.1", 0, tls.certificate, tls.key)
        self.file = folder / "device.db"
        line = Invitation(
            f"127.0.0.1:{self.link.port}", self.journal.invitations.make(int(time.time()) + 600), tls.roots
        )
        with Device.create(self.file, PASSPHRASE, cost=CHEAP, seed=3) as device:
            accept(device, line, accepts={ReasonCode.NO_GUARANTEE})
            device.change(lambda before: before.model_copy(update={"masked_only": False}))
            device.history.add([HistoryEntry(CATALOG.item_ids[item]) for item in (1, 4, 7)], CATALOG)

    def opened(self) -> Device:
        return Device.open(self.file, PASSPHRASE)

    def rounds(self, rounds: int) -> threading.Thread:
        """Run rounds in a thread of their own."""

        def work() -> None:
            journal = CoordinatorJournal.open(self.journal.path)
            Coordinator(
                journal, RoundRules(rounds=rounds, patience=LONG, deadline=LONG, readable=True), self.link
            ).run()
            journal.close()

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        return thread


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("TACIT_DEVICE", str(tmp_path / "device.db"))
    monkeypatch.setenv("TACIT_PASSPHRASE", PASSPHRASE)
    made = Place(tmp_path)
    yield made
    made.link.close()
    made.journal.close()


def run(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Run the command to its end, which is a good one; return what it printed."""
    code, out, err = run_command(capsys, "device", "run", "--poll", "0.05", *words)
    assert code == 0, err
    return out


def test_the_user_sees_what_left_and_the_program_ends_with_the_rounds(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    thread = place.rounds(2)
    printed = run(capsys)
    wait_for_thread(thread)
    lines = [line for line in printed.splitlines() if "devices are connected" not in line]  # who came first is open
    assert lines.pop(1) == TRUST
    assert lines[0].startswith("Taking part in the small field (127.0.0.1:")
    assert lines[1] == "Connected; waiting for a round."
    with place.opened() as device:
        entries = device.ledger.list()
    for entry, line in zip(entries, lines[2:4], strict=True):
        things = len(set(entry.positives))
        told = f"Round {entry.round}: sent {len(entry.positives)} rows about {things} items of your history and "
        assert line.startswith(told)
        assert line.endswith(f"{entry.bytes:,} bytes. The coordinator can read them.")
    assert lines[4].startswith("The federation has finished its rounds")
    assert lines[5].startswith("You took part in 2 rounds")
    thread = place.rounds(3)
    told = json.loads(run(capsys, "--json"))
    assert (told["answered"], told["ended"]) == (1, "done")
    wait_for_thread(thread)


def test_it_does_not_begin_while_paused_or_after_leaving(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    with place.opened() as device:
        device.pause()
    assert "You are paused: nothing is sent." in run(capsys)
    with place.opened() as device:
        device.resume()
        node = SuperNode(device)
        device.leave()
        assert node.run(threading.Event()) == "left"
    assert not place.journal.rounds.records()


def test_a_pause_while_no_server_answers_ends_the_run(place: Place) -> None:
    place.link.close()
    events: list[DeviceEvent] = []
    with place.opened() as device:
        teller = EventMessages(device)

        def told(news: DeviceEvent) -> None:
            events.append(news)
            if len(events) == 3:
                device.pause()

        assert SuperNode(device, poll=0.05).run(threading.Event(), told) == "paused"
        assert [news.what for news in events] == ["away"] * 3
        waits = [news.again_in for news in events]
        assert waits[0] < 0.07
        assert waits[2] > 0.15, "ever more slowly"
        (sentence,) = teller.sentences(events[0])
        assert "cannot be reached" in sentence
        assert sentence.endswith("Next try in 0 seconds."), "there is no model yet to recommend from"


def test_what_the_user_forbids_is_reported_with_what_to_do(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    with place.opened() as device:
        device.share(Sharing(masked_only=True))

    def ask() -> None:
        wait_until(lambda: bool(place.link.present()), LONG, "the device is there")
        place.link.tell({1: request(founded(), 0)}, LONG)
        place.link.announce(CoordinatorStatus("finished"))
        place.link.tell({1: request(founded(), 1, learn=False)}, LONG)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    printed = run(capsys)
    wait_for_thread(thread)
    assert str(describe_reason(RoundReason(ReasonCode.MASKED_ONLY))) in printed
    assert "You took part in 0 rounds" in printed


def test_a_coordinator_that_reads_an_answer_and_fails_the_transfer_may_have_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flwr.superlink.routers.fleet import router

    taken, stop = list[bytes](), threading.Event()

    def take(request: Any, *more: Any, **others: Any) -> None:
        taken.append(request.object_content)
        stop.set()
        raise RuntimeError("it was read, and the transfer fails")

    monkeypatch.setattr(router.fleet_handlers, "push_object", take)
    thread = threading.Thread(target=lambda: [*place.link.ask({1: request(founded(), 0)}, 5.0, 2**20)], daemon=True)
    with place.opened() as device:
        node = threading.Thread(target=lambda: SuperNode(device, poll=0.05).run(stop), daemon=True)
        node.start()
        wait_until(lambda: bool(place.link.present()), LONG, "the device is there")
        thread.start()
        wait_for_thread(node)
        (entry,) = device.ledger.list()
    wait_for_thread(thread)
    assert taken
    assert entry.state == "may have left"


def test_another_invitation_does_not_take_a_members_line_away(place: Place) -> None:
    other = Invitation("127.0.0.1:9", "a word", "")
    with place.opened() as device:
        before = device.connection
        with refused(ConsentError, ReasonCode.ALREADY_A_MEMBER):
            accept(device, other)
        assert device.connection == before
        with serving(build_user_page(DeviceView(device))) as address:
            answer = Visitor(address).post("/mine/join", {"line": other.line()})
        assert "already a member" in answer.text
        assert device.connection == before
