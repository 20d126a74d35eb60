"""A real SuperLink and real SuperNode processes over TLS make what the simulator makes: bit for bit."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from patience import LONG, ended, until
from same_field import CHEAP, PASSPHRASE, PI, SEED, assert_same, founded, journal_of, simulated, town

from tacit.coordinator import Carrier, Coordinator, Journal, RoundRules
from tacit.device import Device, Sharing
from tacit.device.history import Entry
from tacit.errors import FieldError
from tacit.privacy.secure import Guards

pytest.importorskip("flwr", reason="the field needs Flower")
from tacit.field.certificates import Certificates, own_certificates
from tacit.field.exchange import Kind
from tacit.field.invitations import Invitation, accept
from tacit.field.metrics import MetricsServer
from tacit.field.superlink import SuperLink
from tacit.field.supernode import SuperNode

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # Flower and its servers warn of their own doings
]
ROUNDS = 3
MASKED = "fpl under masks"
BOLD = Guards(n_min=3, k_min=1, d_min=0, cool_down=0)
NODES = Path(__file__).parent / "nodes.py"


class Nodes:
    """Devices in processes of their own."""

    def __init__(self) -> None:
        environment = {**os.environ, "TACIT_PASSPHRASE": PASSPHRASE, "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, str(NODES)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.alive: set[int] = set()

    def _said(self, *words: object) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(*words, file=self._process.stdin, flush=True)
        if not select.select([self._process.stdout], [], [], LONG)[0]:  # one line is said at a time
            pytest.fail(f"No answer to '{' '.join(map(str, words))}' within {LONG:g} seconds: a device does not end.")
        said = self._process.stdout.readline()
        assert said, "the process that starts devices has died; see what it printed"
        return int(said)

    def start(self, path: Path) -> int:
        pid = self._said("start", path)
        self.alive.add(pid)
        return pid

    def wait(self, pid: int) -> int:
        status = self._said("wait", pid)
        self.alive.discard(pid)
        return status

    def close(self) -> None:
        for pid in self.alive:
            os.kill(pid, signal.SIGKILL)
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(LONG)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    made = Nodes()
    yield made
    made.close()


class Field:
    """A coordinator in this process, devices in others."""

    def __init__(self, folder: Path, method: str, people: int = 4) -> None:
        self.folder, self.is_masked = folder, method == MASKED
        method = "fpl" if self.is_masked else method
        self.clients, self.catalog = town(people)
        self.federation = founded(method, self.catalog)
        self.journal = journal_of(folder, self.federation, self.catalog)
        self.tls: Certificates = own_certificates(folder / "tls", "127.0.0.1")
        self.link = SuperLink(self.journal, "127.0.0.1", 0, self.tls.certificate, self.tls.key)
        for person in range(people):
            self.enrol(person)

    def path(self, person: int) -> Path:
        return self.folder / f"{person}.db"

    def invitation(self, seconds: float = 600) -> Invitation:
        word = self.journal.invite(int(time.time() + seconds))
        return Invitation(f"127.0.0.1:{self.link.port}", word, self.tls.roots)

    def enrol(self, person: int) -> None:
        with Device.create(self.path(person), PASSPHRASE, cost=CHEAP, seed=SEED, lane=person) as device:
            accept(device, Invitation.parsed(self.invitation().line()))
            device.share(Sharing(pi=PI, masked_only=self.is_masked, guards=BOLD))
            device.history.add(
                [Entry(self.catalog.item_ids[int(item)]) for item in self.clients.of(person)], self.catalog
            )

    def run(self, rounds: int, carrier: Carrier | None = None, **rules: object) -> Coordinator:
        secure = {"n_min": 3, "two_stage": False, "corrupted": 0.0} if self.is_masked else None
        given = {
            "rounds": rounds,
            "patience": LONG,
            "deadline": LONG,
            "secure": secure,
            "guards": BOLD.model_dump(),
            **rules,
        }
        coordinator = Coordinator(self.journal, RoundRules.checked(given, "rules"), carrier or self.link)
        coordinator.run()
        return coordinator

    def people(self) -> dict[int, Device]:
        return {person: Device.open(self.path(person), PASSPHRASE) for person in range(len(self.clients))}

    def close(self) -> None:
        self.link.close()


@pytest.fixture
def field(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Field]:
    made = Field(tmp_path, getattr(request, "param", "fpl"))
    yield made
    made.close()


@pytest.mark.parametrize("field", ["fpl", "fed-gmf", MASKED], indirect=True)
def test_processes_over_tls_make_what_the_simulator_makes(field: Field, nodes: Nodes) -> None:
    pids = [nodes.start(field.path(person)) for person in range(len(field.clients))]
    coordinator = field.run(ROUNDS, quorum=len(field.clients))
    assert [nodes.wait(pid) for pid in pids] == [0] * len(pids), "a device ends by itself when it has the model"
    people = field.people()
    expected = simulated(field.federation, field.clients, field.catalog, ROUNDS)
    assert_same(expected, coordinator.shared, people)
    for device in people.values():
        assert [entry.state for entry in device.ledger.list()] == ["sent"] * ROUNDS
        assert device.recommend(3)
        device.close()


def test_a_killed_device_and_a_killed_coordinator_come_back(field: Field, nodes: Nodes) -> None:
    everybody = range(len(field.clients))
    pids = [nodes.start(field.path(person)) for person in everybody]
    field.run(1, quorum=len(field.clients))  # ends with the model given out: the processes end
    assert [nodes.wait(pid) for pid in pids] == [0] * len(pids)
    field.link.close()  # the coordinator is gone, and comes back on the same address
    port, field.journal = field.link.port, Journal.open(field.journal.path)
    with socket.create_server(("127.0.0.1", port)) as nobody:  # they knock at a closed door, and wait
        pids = [nodes.start(field.path(person)) for person in everybody]
        nobody.settimeout(LONG)
        for _ in pids:
            nobody.accept()[0].close()
    field.link = SuperLink(field.journal, "127.0.0.1", port, field.tls.certificate, field.tls.key)
    until(lambda: len(field.link.present()) == len(pids), "all devices are there again")
    os.kill(pids[0], signal.SIGKILL)  # while the coordinator believes that it is there
    assert nodes.wait(pids[0]) == signal.SIGKILL
    pids[0] = nodes.start(field.path(0))
    coordinator = field.run(ROUNDS, quorum=len(field.clients))
    assert [nodes.wait(pid) for pid in pids] == [0] * len(pids)
    people = field.people()
    assert_same(simulated(field.federation, field.clients, field.catalog, ROUNDS), coordinator.shared, people)
    for device in people.values():
        assert [entry.round for entry in device.ledger.list()] == list(range(ROUNDS))
        device.close()


class Known:
    """The SuperLink, and knowledge of who will answer: the others are not waited for, once they have their message."""

    def __init__(self, link: SuperLink, answering: set[int], others: threading.Semaphore) -> None:
        self._link, self._answering, self._others = link, answering, others
        self.present = link.present

    def tell(self, messages: Mapping[int, bytes], seconds: float) -> None:
        for device, content in messages.items():
            self._link.tell({device: content}, seconds if device in self._answering else 0.1)
            for _ in self._link.ask({device: content} if device not in self._answering else {}, 0.1):
                pytest.fail("it has answered")

    def ask(self, requests: Mapping[int, bytes], seconds: float) -> Generator[tuple[int, bytes]]:
        left = set(self._answering)
        with closing(self._link.ask(requests, seconds)) as arriving:
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

        def _answer(self, client: object, node: object, message: object, tree: object) -> Kind:
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
            ended(thread)
    assert [(happened.answered, happened.lost, happened.state) for happened in field.journal.rounds()] == [
        (3, 1, "finished")
    ] * 2
    assert (numbers["tacit_answered_total"], numbers["tacit_lost_total"]) == (6, 2)
    assert numbers['tacit_devices{state="present"}'] == 4
    assert not people[3].ledger.list()
    for device in people.values():
        device.close()


def test_wrong_invitations_keys_and_bytes_are_refused_by_name(field: Field, tmp_path: Path) -> None:
    with Device.create(tmp_path / "new.db", PASSPHRASE, cost=CHEAP) as device:
        good = field.invitation()
        for wrong, said in (
            (Invitation(good.address, "x" * 32, good.roots), "used already, or has expired"),
            (field.invitation(seconds=-1), "used already, or has expired"),
            (Invitation(good.address, good.word, own_certificates(tmp_path / "other", "127.0.0.1").roots), "who the"),
            (Invitation("127.0.0.1:9", good.word, good.roots), "cannot be reached"),
        ):
            with pytest.raises(FieldError, match=said):
                accept(device, wrong)
            assert device.membership is None
        for line in ("", "tacit1:", "tacit1:%%%", good.line()[:-20], "tacit2:" + good.line()[7:]):
            with pytest.raises(FieldError, match="not an invitation"):
                Invitation.parsed(line)
        accept(device, good)
        assert field.journal.revoke(5)
        field.link.present()
        with pytest.raises(FieldError, match="does not know this device"):
            SuperNode(device, poll=0.05).session(threading.Event())
    context = ssl.create_default_context(cadata=field.tls.roots)
    for path, body, status in (
        ("/v1/tacit/enrol", b"{", 400),
        ("/v1/tacit/enrol", json.dumps({"word": "x", "key": "!"}).encode(), 400),
        ("/v1/fleet/pull-messages", b"junk", 400),
        ("/v1/fleet/pull-messages", b"", 401),  # nobody has signed it
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
        assert not plain.recv(100).startswith(b"HTTP"), "without TLS nobody is answered"
    with pytest.raises(FieldError, match="Cannot listen"):
        SuperLink(field.journal, "127.0.0.1", field.link.port, field.tls.certificate, field.tls.key)
