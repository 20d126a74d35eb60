"""Fifty devices over real sockets with TLS, a tenth of them lost in every round; beside the bare engine.

`peer` is Flower alone doing the same exchange: the same bytes down and up between as many nodes, with no learning, no
file, no ledger and no check behind them, and LOOKS looks for messages per answer. `ours` adds to it the processor time
that a device spends on its own work for an answer (checking, learning, sealing, writing) and the coordinator on its own
(reading, adding, applying, its journal).

Everything is processor time, and of each part the best round counts: how often idle nodes look for messages while a
busy machine makes them wait is counted, priced by itself and taken out, and put back as a fixed number.
"""

from __future__ import annotations

import json
import resource
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from tacit.data import DataConfig, load
from tacit.field.carriers.superlink import SuperLink
from tacit.field.carriers.supernode import SuperNode
from tacit.field.certificates import make_certificates
from tacit.field.coordinator import Coordinator, CoordinatorJournal, RoundRules
from tacit.field.device import Device, ScryptCost, Sharing
from tacit.field.device.history import HistoryEntry
from tacit.field.exchange import MessageKind
from tacit.field.invitations import Invitation, accept
from tacit.random import Key
from tacit.reasons import ReasonCode
from tacit.types import Catalog
from tacit.wire.federation import Federation
from tacit.wire.messages import read_request

PEOPLE, ROUNDS, LOST, POLL, WORD = 50, 10, 0.1, 0.5, "a benchmark"
LOOKS = 10  # per answer: a round of ten seconds, looked for once a second


class Looking(SuperNode):
    """Counts how often nodes look for messages."""

    looks: ClassVar[int] = 0

    def _goes_on(self, stop: threading.Event) -> bool:
        Looking.looks += 1
        return super()._goes_on(stop)


class Losing(Looking):
    """Stays silent in a tenth of the rounds; counts what its own work costs."""

    seed = 0
    own: ClassVar[list[tuple[int, float]]] = []  # round, and processor seconds of an answer, its sending left out

    def _respond(self, content: bytes, send: Callable[[bytes], None]) -> MessageKind:
        member = self.device.membership
        assert member is not None
        request = read_request(member.federation, content)
        if request.learn and Key(1).child(request.round).uniform(np.array([self.seed]), 1)[0, 0] < LOST:
            return "request"
        sending = 0.0

        def timed(answer: bytes) -> None:
            nonlocal sending
            before = time.thread_time()
            send(answer)
            sending = time.thread_time() - before

        started = time.thread_time()
        try:
            return super()._respond(content, timed)
        finally:
            self.own.append((request.round, time.thread_time() - started - sending))


class Bare(Looking):
    """Answers with as many bytes, and does nothing else."""

    size = 0

    def _respond(self, content: bytes, send: Callable[[bytes], None]) -> MessageKind:
        send(bytes(self.size))
        return "request"


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="tacit-bench-"))
    dataset = load(DataConfig(source="town"))
    log, whole = dataset.interactions, dataset.catalog
    catalog = Catalog(whole.item_ids, whole.titles, whole.categories)
    options = {"factors": 12, "local_steps": 40, "learning_rate": 0.02}
    federation = Federation.create("ef" * 16, "bench", "fpl", options, catalog)
    journal = CoordinatorJournal.create(folder / "journal.db", federation, catalog, seed=1)
    tls = make_certificates(folder / "tls", "127.0.0.1")
    link = SuperLink(journal, "127.0.0.1", 0, tls.certificate, tls.key)
    devices = []
    for person in range(PEOPLE):
        device = Device.create(folder / f"{person}.db", WORD, cost=ScryptCost(log_n=10))
        word = journal.invitations.make(int(time.time()) + 3600)
        accept(device, Invitation(f"127.0.0.1:{link.port}", word, tls.roots), accepts={ReasonCode.NO_GUARANTEE})
        device.share(Sharing(pi=1.0, masked_only=False))
        items = np.unique(log.items[log.users == person])
        device.history.add([HistoryEntry(catalog.item_ids[int(item)]) for item in items], catalog)
        devices.append(device)

    def together(nodes: Sequence[SuperNode], work: Callable[[], None]) -> None:
        """Do some work while nodes are there."""
        stop = threading.Event()
        threads = [threading.Thread(target=node.run, args=(stop,), daemon=True) for node in nodes]
        for thread in threads:
            thread.start()
        while len(link.present()) < len(nodes):
            time.sleep(0.1)
        work()
        stop.set()
        for thread in threads:
            thread.join(30)
        while link.present():
            time.sleep(0.1)

    rules = RoundRules(
        rounds=ROUNDS,
        clients_per_round=40,
        over_selection=0.25,
        minimum=30,
        quorum=PEOPLE,
        deadline=120,
        secure=None,
        readable=True,
    )
    coordinator = Coordinator(journal, rules, link)
    nodes: list[SuperNode] = [Losing(device, POLL) for device in devices]
    for at, node in enumerate(nodes):
        node.seed = at  # type: ignore[attr-defined]

    coordinating: list[float] = []  # processor seconds per answer

    def learn() -> None:
        while journal.rounds.next_number < ROUNDS:
            started = time.thread_time()
            happened = coordinator.round()
            coordinating.append((time.thread_time() - started) / max(1, happened.answered))

    together(nodes, learn)
    rounds = journal.rounds.records()
    request = coordinator._model.write_requests(99, journal.members.devices()[:1], learn=True)[1]
    Bare.size = int(np.mean([happened.bytes_up / max(1, happened.answered) for happened in rounds]))

    exchanging: list[tuple[float, int]] = []  # processor seconds and looks of all, per answer
    carrying: list[float] = []  # of those, the coordinator's thread

    def exchange() -> None:
        for number in range(ROUNDS):
            posted = {n: request + bytes([number]) for n in range(1, PEOPLE + 1)}
            started, own, looks = time.process_time(), time.thread_time(), Looking.looks
            for _ in link.ask(posted, 600):
                pass
            exchanging.append(((time.process_time() - started) / PEOPLE, Looking.looks - looks))
            carrying.append((time.thread_time() - own) / PEOPLE)

    prices: list[float] = []  # processor seconds of a look, the coordinator's part included

    def idle() -> None:
        for _ in range(5):
            started, looks = time.process_time(), Looking.looks
            while Looking.looks < looks + 4 * PEOPLE:
                time.sleep(POLL)
            prices.append((time.process_time() - started) / (Looking.looks - looks))

    bare_nodes = [Bare(device, POLL) for device in devices]
    together(bare_nodes, exchange)
    together(bare_nodes, idle)
    look = min(prices)
    message = min(seconds - looks / PEOPLE * look for seconds, looks in exchanging)
    working = min(float(np.mean([cost for at, cost in Losing.own if at == number])) for number in range(ROUNDS))
    adding = max(0.0, min(coordinating) - min(carrying))
    bare = message + LOOKS * look
    ours = bare + working + adding
    link.close()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    seconds = [happened.seconds for happened in rounds]
    print(
        json.dumps(
            {
                "bench": "field",
                "data": f"town, {PEOPLE} devices, {ROUNDS} rounds, {LOST:.0%} lost",
                "threads": 1,
                "ours": round(1000 * ours, 1),
                "peer": round(1000 * bare, 1),
                "peer_name": "the same exchange over Flower alone",
                "ratio": round(bare / ours, 2),
                "unit": "CPU milliseconds per answer",
                "parts": {
                    "message over Flower": round(1000 * message, 1),
                    "look for messages": round(1000 * look, 2),
                    "looks": LOOKS,
                    "device's own work": round(1000 * working, 1),
                    "coordinator's own work": round(1000 * adding, 1),
                },
                "overhead": round(ours / bare - 1, 3),
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                "commit": commit,
                "finished": sum(happened.state == "finished" for happened in rounds),
                "wall_seconds_per_round": round(float(np.median(seconds)), 2),
                "bytes_up_per_device": Bare.size,
            }
        )
    )


if __name__ == "__main__":
    main()
