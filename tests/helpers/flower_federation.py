"""A coordinator behind Flower's SuperLink in this process, and its devices in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from helpers.town_federation import BOLD, CHEAP, PASSPHRASE, PI, SEED, founded, journal_of, town
from helpers.waiting import LONG, read_line, wait_for_process
from tacit.field.carriers.superlink import SuperLink
from tacit.field.certificates import Certificates, make_certificates
from tacit.field.coordinator import Carrier, Coordinator, RoundRules
from tacit.field.device import Device, Sharing
from tacit.field.device.history import HistoryEntry
from tacit.field.invitations import Invitation, accept
from tacit.reasons import ReasonCode

MASKED = "fpl under masks"
STARTER = Path(__file__).parent / "device_starter.py"


class Nodes:
    """Devices in processes of their own."""

    def __init__(self) -> None:
        environment = {**os.environ, "TACIT_PASSPHRASE": PASSPHRASE, "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, str(STARTER)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.alive: set[int] = set()

    def _said(self, *words: object) -> int:
        assert self._process.stdin is not None
        print(*words, file=self._process.stdin, flush=True)
        said = read_line(self._process, f"an answer to '{' '.join(map(str, words))}'; a device does not end")
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
        wait_for_process(self._process, "the process that starts devices ends with its input")


class Field:
    """A coordinator in this process, devices in others."""

    def __init__(self, folder: Path, method: str, people: int = 4) -> None:
        self.folder, self.is_masked = folder, method == MASKED
        method = "fpl" if self.is_masked else method
        self.clients, self.catalog = town(people)
        self.federation = founded(method, self.catalog)
        self.journal = journal_of(folder, self.federation, self.catalog)
        self.tls: Certificates = make_certificates(folder / "tls", "127.0.0.1")
        self.link = SuperLink(self.journal, "127.0.0.1", 0, self.tls.certificate, self.tls.key)
        for person in range(people):
            self.enrol(person)

    def path(self, person: int) -> Path:
        return self.folder / f"{person}.db"

    def invitation(self, seconds: float = 600) -> Invitation:
        word = self.journal.invitations.make(int(time.time() + seconds))
        return Invitation(f"127.0.0.1:{self.link.port}", word, self.tls.roots)

    def enrol(self, person: int) -> None:
        with Device.create(self.path(person), PASSPHRASE, cost=CHEAP, seed=SEED, lane=person) as device:
            accept(device, Invitation.parse(self.invitation().line()), accepts={ReasonCode.NO_GUARANTEE})
            device.share(Sharing(pi=PI, coin="row", masked_only=self.is_masked, device_policy=BOLD))
            device.history.add(
                [HistoryEntry(self.catalog.item_ids[int(item)]) for item in self.clients.of(person)], self.catalog
            )

    def run(self, rounds: int, carrier: Carrier | None = None, **rules: object) -> Coordinator:
        secure = {"n_min": 3, "two_stage": False, "corrupted": 0.0} if self.is_masked else None
        given = {
            "rounds": rounds,
            "patience": LONG,
            "deadline": LONG,
            "secure": secure,
            "readable": not self.is_masked,
            "device_policy": BOLD.model_dump(),
            **rules,
        }
        coordinator = Coordinator(self.journal, RoundRules.from_options(given, "rules"), carrier or self.link)
        coordinator.run()
        return coordinator

    def people(self) -> dict[int, Device]:
        return {person: Device.open(self.path(person), PASSPHRASE) for person in range(len(self.clients))}

    def close(self) -> None:
        self.link.close()
