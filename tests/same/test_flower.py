"""A real SuperLink and real SuperNode processes over TLS make what the simulator makes: bit for bit."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.town_federation import CHEAP, PASSPHRASE, assert_same, simulated
from helpers.waiting import LONG, wait_for_thread, wait_until
from tacit.errors import FieldError
from tacit.field.coordinator import CoordinatorJournal
from tacit.field.device import Device

pytest.importorskip("flwr", reason="the field needs Flower")
from helpers.flower_federation import MASKED, Field, Nodes
from tacit.field.carriers.body_limit import PARTS_BYTES
from tacit.field.carriers.fleet_node import DeviceEvent
from tacit.field.carriers.superlink import SuperLink
from tacit.field.carriers.supernode import SuperNode
from tacit.field.certificates import make_certificates
from tacit.field.exchange import MessageKind
from tacit.field.invitations import Invitation, InvitationError, accept
from tacit.field.metrics import MetricsServer
from tacit.reasons import ReasonCode

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # Flower and its servers warn of their own doings
]
ROUNDS = 3


@pytest.fixture
def field(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Field]:
    made = Field(tmp_path, getattr(request, "param", "fpl"))
    yield made
    made.close()


@pytest.mark.parametrize("field", ["fpl", "fed-als", "fed-neumf", "kgflex", MASKED], indirect=True)
def test_processes_over_tls_make_what_the_simulator_makes(field: Field, models: Nodes) -> None:
    pids = [models.start(field.path(person)) for person in range(len(field.clients))]
    coordinator = field.run(ROUNDS, quorum=len(field.clients))
    assert [models.wait(pid) for pid in pids] == [0] * len(pids), "a device ends by itself when it has the model"
    people = field.people()
    expected = simulated(field.federation, field.clients, field.catalog, ROUNDS)
    assert_same(expected, coordinator.shared, people)
    for device in people.values():
        assert [entry.state for entry in device.ledger.list()] == ["sent"] * ROUNDS
        assert device.recommend(3)
        device.close()


def test_a_killed_device_and_a_killed_coordinator_come_back(field: Field, models: Nodes) -> None:
    all_numbers = range(len(field.clients))
    pids = [models.start(field.path(person)) for person in all_numbers]
    field.run(1, quorum=len(field.clients))  # ends with the model given out: the processes end
    assert [models.wait(pid) for pid in pids] == [0] * len(pids)
    field.link.close()  # the coordinator is gone, and comes back on the same address
    port, field.journal = field.link.port, CoordinatorJournal.open(field.journal.path)
    with socket.create_server(("127.0.0.1", port)) as listener:  # they cannot connect, and wait
        pids = [models.start(field.path(person)) for person in all_numbers]
        listener.settimeout(LONG)
        for _ in pids:
            listener.accept()[0].close()
    field.link = SuperLink(field.journal, "127.0.0.1", port, field.tls.certificate, field.tls.key)
    wait_until(lambda: len(field.link.present()) == len(pids), LONG, "all devices are there again")
    os.kill(pids[0], signal.SIGKILL)  # while the coordinator believes that it is there
    assert models.wait(pids[0]) == signal.SIGKILL
    pids[0] = models.start(field.path(0))
    coordinator = field.run(ROUNDS, quorum=len(field.clients))
    assert [models.wait(pid) for pid in pids] == [0] * len(pids)
    people = field.people()
    assert_same(simulated(field.federation, field.clients, field.catalog, ROUNDS), coordinator.shared, people)
    for device in people.values():
        assert [entry.round for entry in device.ledger.list()] == list(range(ROUNDS))
        device.close()


class Known:
    """The SuperLink, and knowledge of who will answer: the others are not waited for, once they have their message."""

    def __init__(self, link: SuperLink, answering: set[int], others: threading.Semaphore) -> None:
        self._link, self._answering, self._others = link, answering, others
        self.present, self.offer, self.announce = link.present, link.offer, link.announce

    def tell(self, messages: Mapping[int, bytes], seconds: float) -> None:
        for device, content in messages.items():
            self._link.tell({device: content}, seconds if device in self._answering else 0.1)
            for _ in self._link.ask({device: content} if device not in self._answering else {}, 0.1, 0):
                pytest.fail("it has answered")

    def ask(self, requests: Mapping[int, bytes], seconds: float, most_bytes: int) -> Generator[tuple[int, bytes]]:
        left = set(self._answering)
        with closing(self._link.ask(requests, seconds, most_bytes)) as arriving:
            for device, content in arriving:
                left.discard(device)
                yield device, content
                if not left:
                    assert self._others.acquire(timeout=LONG), "the silent device was never asked"
                    return


def test_a_device_that_never_answers_is_lost_and_the_round_goes_on(field: Field) -> None:
    stop = threading.Event()
    people, fetched = field.people(), threading.Semaphore(0)
    threads = [
        threading.Thread(target=SuperNode(people[person], poll=0.05).run, args=(stop,), daemon=True)
        for person in range(3)
    ]

    class Silent(SuperNode):
        """Fetches messages, and does nothing with them."""

        def _answer(self, client: object, node: object, message: object, tree: object) -> MessageKind:
            fetched.release()
            return "request"

    threads.append(threading.Thread(target=Silent(people[3], poll=0.05).run, args=(stop,), daemon=True))
    for thread in threads:
        thread.start()
    metrics = MetricsServer(field.journal.path, field.link, "127.0.0.1", 0)
    try:
        field.run(2, Known(field.link, {1, 2, 3}, fetched), quorum=4, minimum=3)
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics.port}/metrics", timeout=LONG) as answer:
            lines = [line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[0] != "#"]
            numbers = {name: float(value) for name, value in lines}
    finally:
        metrics.close()
        stop.set()
        for thread in threads:
            wait_for_thread(thread)
    assert [(happened.answered, happened.lost, happened.state) for happened in field.journal.rounds.records()] == [
        (3, 1, "finished")
    ] * 2
    assert (numbers["tacit_answered_total"], numbers["tacit_lost_total"]) == (6, 2)
    assert numbers['tacit_devices{state="present"}'] == 4
    assert not people[3].ledger.list()
    for device in people.values():
        device.close()


def test_a_message_that_is_withdrawn_before_its_parts_are_fetched_is_passed_over(field: Field) -> None:
    """A round was abandoned, or a device started its process for a round too late: there is nothing to refuse."""

    class LateNode(SuperNode):
        is_late = False

        def _poll(self, client: Any, node: Any) -> Any:
            found = super()._poll(client, node)
            if found.messages_list and not self.is_late:
                self.is_late = True
                field.link.tell({1: b"another"}, 0.0)  # the first one is withdrawn, and so is this
            return found

    stop, news = threading.Event(), list[DeviceEvent]()
    with Device.open(field.path(0), PASSPHRASE) as device:
        node = LateNode(device, poll=0.05)
        running = threading.Thread(target=node.run, args=(stop, news.append), daemon=True)
        running.start()
        wait_until(lambda: field.link.present() == {1}, LONG, "the device connects")
        field.link.offer({1: b"withdrawn"})
        wait_until(lambda: node.is_late, LONG, "the device looks")
        field.run(1, quorum=1, minimum=1)
        wait_until(lambda: any(one.what == "model" for one in news), LONG, "the device has the model")
        stop.set()
        wait_for_thread(running)
        assert [one for one in news if one.what == "refused"] == []


def test_wrong_invitations_keys_and_bytes_are_refused_by_name(field: Field, tmp_path: Path) -> None:
    with Device.create(tmp_path / "new.db", PASSPHRASE, cost=CHEAP) as device:
        good = field.invitation()
        for wrong, said in (
            (Invitation(good.address, "x" * 32, good.roots), "used already, or has expired"),
            (field.invitation(seconds=-1), "used already, or has expired"),
            (Invitation(good.address, good.word, make_certificates(tmp_path / "other", "127.0.0.1").roots), "another"),
            (Invitation("127.0.0.1:9", good.word, good.roots), "cannot be reached"),
        ):
            with pytest.raises(FieldError, match=said):
                accept(device, wrong)
            assert device.membership is None
        for line in ("", "tacit1:", "tacit1:%%%", good.line()[:-20], "tacit2:" + good.line()[7:]):
            with pytest.raises(FieldError, match="not an invitation"):
                Invitation.parse(line)
        accept(device, good, accepts={ReasonCode.NO_GUARANTEE})
        with Device.create(tmp_path / "second.db", PASSPHRASE, cost=CHEAP) as second:
            with pytest.raises(InvitationError):
                accept(second, good)
            assert (second.membership, second.connection) == (None, {}), "nothing is half done"
        assert [one.number for one in field.journal.members.devices() if not one.revoked][-1] == 5, (
            "the first is a member"
        )
        assert field.journal.members.revoke(5)
        field.link.present()
        with pytest.raises(FieldError, match="does not know this device"):
            SuperNode(device, poll=0.05).session(threading.Event())
    context = ssl.create_default_context(cadata=field.tls.roots)
    for path, body, status in (
        ("/v1/tacit/enrol", b"{", 400),
        ("/v1/tacit/enrol", json.dumps({"word": "x", "key": "!"}).encode(), 400),
        ("/v1/fleet/pull-messages", b"junk", 400),
        ("/v1/fleet/pull-messages", b"", 401),  # without a signature
        ("/v1/control/start-run", b"", 404),
        ("/docs", b"", 404),
    ):
        kind = {"Content-Type": "application/json" if "tacit" in path else "application/protobuf"}
        asked = urllib.request.Request(f"https://127.0.0.1:{field.link.port}{path}", body, kind, method="POST")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(asked, context=context, timeout=LONG)
        refused.value.close()
        assert refused.value.code == status, path
    with socket.create_connection(("127.0.0.1", field.link.port), timeout=LONG) as plain:
        plain.sendall(b"POST /v1/fleet/pull-messages HTTP/1.1\r\n\r\n")
        assert not plain.recv(100).startswith(b"HTTP"), "without TLS no request is answered"
    with pytest.raises(FieldError, match="Cannot listen"):
        SuperLink(field.journal, "127.0.0.1", field.link.port, field.tls.certificate, field.tls.key)


@pytest.mark.parametrize("too_much", [2**17, 2**25])
def test_an_answer_beyond_any_honest_one_is_refused_while_it_is_sent(field: Field, too_much: int) -> None:
    """The round does not wait for it, the device gets a strike, and the coordinator does not hold what it sent."""
    people, stop, held = field.people(), threading.Event(), list[int]()
    store = field.link._state.object_store
    plain = store.put

    def put(name: str, content: bytes) -> None:
        held.append(len(content))
        plain(name, content)

    class Heavy(SuperNode):
        """Sends more than anybody can have learnt."""

        def _respond(self, content: bytes, send: Callable[[bytes], None], has_begun: Callable[[], bool]) -> MessageKind:
            return super()._respond(content, lambda answer: send(answer + bytes(too_much)), has_begun)

    kinds = {person: Heavy if person == 3 else SuperNode for person in people}
    threads = [
        threading.Thread(target=kinds[person](device, poll=0.05).run, args=(stop,), daemon=True)
        for person, device in people.items()
    ]
    for thread in threads:
        thread.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "put", put)
            field.run(1, quorum=len(people), minimum=3)
    finally:
        stop.set()
        for thread in threads:
            wait_for_thread(thread)
    (happened,) = field.journal.rounds.records()
    assert (happened.state, happened.answered, happened.refused) == ("finished", 3, 1)
    assert happened.seconds < LONG / 2
    assert [(one.device, one.codes) for one in field.journal.strikes.by_device()] == [
        (4, (ReasonCode.MALFORMED_MESSAGE,))
    ]
    assert max(held) < PARTS_BYTES
    for device in people.values():
        device.close()


def test_devices_fetch_amendments_over_the_line(field: Field) -> None:
    """The catalogue changes while they are away; both answer in the next round, and their users are told."""
    people, events, stop = field.people(), list[str](), threading.Event()
    before = field.journal.catalog
    assert before.titles is not None
    renamed = replace(before, titles=["Renamed", *before.titles[1:]])
    field.journal.publish(renamed)
    threads = [
        threading.Thread(
            target=SuperNode(device, poll=0.05).run, args=(stop, lambda news: events.append(news.what)), daemon=True
        )
        for device in people.values()
    ]
    for thread in threads:
        thread.start()
    try:
        field.run(1, quorum=len(people))
    finally:
        stop.set()
        for thread in threads:
            wait_for_thread(thread)
    assert [(r.state, r.answered) for r in field.journal.rounds.records()] == [("finished", len(people))]
    assert events.count("amended") == len(people)
    assert {device.catalog.title(0) for device in people.values()} == {"Renamed"}
    for device in people.values():
        device.close()
