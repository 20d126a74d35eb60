"""Fifty devices over real sockets with TLS, a tenth of them lost in every round; beside the bare engine.

`peer` is Flower alone doing the same exchange: the same bytes down and up between as many nodes, polling included, with
no learning, no file, no ledger and no check behind them. `ours` adds to it the processor time that a device spends on
its own work for an answer: checking, learning, sealing, writing. (Comparing two whole runs instead would compare how
often idle nodes poll while a busy machine makes them wait.)
"""

from __future__ import annotations

import json
import resource
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import numpy as np

from tacit.coordinator import Coordinator, Journal, RoundRules
from tacit.data import DataConfig, load
from tacit.device import Cost, Device, Sharing
from tacit.device.history import Entry
from tacit.field.certificates import own_certificates
from tacit.field.exchange import Kind
from tacit.field.invitations import Invitation, accept
from tacit.field.superlink import SuperLink
from tacit.field.supernode import SuperNode
from tacit.random import Key
from tacit.runtimes.federation import Federation
from tacit.runtimes.wire import read_request
from tacit.types import Catalog

PEOPLE, ROUNDS, LOST, POLL, WORD = 50, 10, 0.1, 0.5, "a benchmark"


class Losing(SuperNode):
    """Stays silent in a tenth of the rounds; counts what its own work costs."""

    seed = 0
    own: ClassVar[list[float]] = []  # processor seconds of each answer, its sending left out

    def _respond(self, content: bytes, send: Callable[[bytes], None]) -> Kind:
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
            self.own.append(time.thread_time() - started - sending)


class Bare(SuperNode):
    """Answers with as many bytes, and does nothing else."""

    size = 0

    def _respond(self, content: bytes, send: Callable[[bytes], None]) -> Kind:
        send(bytes(self.size))
        return "request"


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="tacit-bench-"))
    dataset = load(DataConfig(source="town"))
    log, whole = dataset.interactions, dataset.catalog
    catalog = Catalog(whole.item_ids, whole.titles, whole.categories)
    options = {"factors": 12, "local_steps": 40, "learning_rate": 0.02}
    federation = Federation.found("ef" * 16, "bench", "fpl", options, catalog)
    journal = Journal.create(folder / "journal.db", federation, catalog, seed=1)
    tls = own_certificates(folder / "tls", "127.0.0.1")
    link = SuperLink(journal, "127.0.0.1", 0, tls.certificate, tls.key)
    devices = []
    for person in range(PEOPLE):
        device = Device.create(folder / f"{person}.db", WORD, cost=Cost(log_n=10))
        accept(device, Invitation(f"127.0.0.1:{link.port}", journal.invite(int(time.time()) + 3600), tls.roots))
        device.share(Sharing(pi=1.0))
        items = np.unique(log.items[log.users == person])
        device.history.add([Entry(catalog.item_ids[int(item)]) for item in items], catalog)
        devices.append(device)

    def together(nodes: list[SuperNode], work: Callable[[], None]) -> float:
        """Return the processor's seconds that some work takes while nodes are there."""
        stop = threading.Event()
        threads = [threading.Thread(target=node.run, args=(stop,), daemon=True) for node in nodes]
        for thread in threads:
            thread.start()
        while len(link.present()) < len(nodes):
            time.sleep(0.1)
        started = time.process_time()
        work()
        spent = time.process_time() - started
        stop.set()
        for thread in threads:
            thread.join(30)
        while link.present():
            time.sleep(0.1)
        return spent

    rules = RoundRules(
        rounds=ROUNDS,
        clients_per_round=40,
        over_selection=0.25,
        minimum=30,
        quorum=PEOPLE,
        deadline=120,
        secure=None,
    )
    coordinator = Coordinator(journal, rules, link)
    nodes: list[SuperNode] = [Losing(device, POLL) for device in devices]
    for at, node in enumerate(nodes):
        node.seed = at  # type: ignore[attr-defined]

    def learn() -> None:
        while journal.next_round < ROUNDS:
            coordinator.round()

    together(nodes, learn)
    rounds = journal.rounds()
    request = coordinator._requests(99, journal.devices()[:1], learn=True)[1]
    Bare.size = int(np.mean([happened.bytes_up / max(1, happened.answered) for happened in rounds]))

    def exchange() -> None:
        for number in range(ROUNDS):
            posted = {n: request + bytes([number]) for n in range(1, PEOPLE + 1)}
            with closing(link.ask(posted, 60)) as arriving:
                for count, _ in enumerate(arriving, start=1):
                    if count == 40:
                        break

    bare = together([Bare(device, POLL) for device in devices], exchange) / ROUNDS / PEOPLE
    ours = bare + float(np.mean(Losing.own))
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
                "unit": "CPU milliseconds per device and round",
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
