"""A coordinator by `tacit serve`, in a process of its own, and devices that joined it with an invitation."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from helpers.town_federation import CHEAP, OPTIONS, PASSPHRASE, PI, SEED, town
from helpers.waiting import LONG, wait_until
from tacit.field.device import Device, Sharing
from tacit.field.device.history import HistoryEntry
from tacit.field.invitations import Invitation, accept
from tacit.field.serve import ServeConfig, make_invitations, open_federation
from tacit.protocols.secure_aggregation import DevicePolicy
from tacit.reasons import ReasonCode

POLICY = DevicePolicy(n_min=3, k_min=2, cool_down=0, corrupted=0.0)  # in batches, as by default, of few devices
Round = tuple[int, str, int]  # number, state, answered


class ServedFederation:
    """One federation, its coordinator's process, and the files of its devices."""

    def __init__(self, folder: Path, rounds: int, people: int, method: str = "fed-svd", **rules: Any) -> None:
        self.folder, self.people = folder, people
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])
        given = {
            "name": "faults",
            "folder": str(folder / "coordinator"),
            "catalog": "town",
            "method": {"name": method, **OPTIONS.get(method, {})},
            "privacy": "none",
            "rounds": {"rounds": rounds, "deadline": 60, "device_policy": POLICY.model_dump(), **rules},
            "after": "end",
            "listen": f"127.0.0.1:{self.port}",
        }
        self.file = folder / "field.yaml"
        self.file.write_text(yaml.safe_dump(given))
        config = ServeConfig.from_options(given, "the test")
        journal = open_federation(config, seed=SEED)
        self._lines = make_invitations(config, journal, 1.0, people)
        journal.close()
        self.process: subprocess.Popen[bytes] | None = None

    def path(self, person: int) -> Path:
        """The file of a device."""
        return self.folder / f"{person}.db"

    def start(self) -> None:
        """Start the coordinator, and wait until it listens."""
        command = [sys.executable, "-c", "from tacit.cli import main; main()", "serve", str(self.file)]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        with (self.folder / "serve.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        wait_until(self._listens, LONG, "the coordinator listens")

    def _listens(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "serve.log").read_text()[-2000:]
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def join_all(self) -> None:
        """Let every device join."""
        clients, _ = town(self.people)
        for person, line in enumerate(self._lines):
            with Device.create(self.path(person), PASSPHRASE, cost=CHEAP) as device:
                accept(device, Invitation.parse(line), accepts={ReasonCode.NO_GUARANTEE})
                device.share(Sharing(pi=PI, masked_only=True, device_policy=POLICY))
                assert device.catalog is not None
                ids = device.catalog.item_ids
                device.history.add([HistoryEntry(ids[int(item)]) for item in clients.of(person)], device.catalog)

    def kill(self) -> None:
        """End the coordinator by kill -9."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(LONG)

    def rounds(self) -> list[Round]:
        """All rounds so far, read beside the coordinator; reading rolls back what one that was killed has left."""
        connection = sqlite3.connect(self.folder / "coordinator" / "journal.db", timeout=30)
        try:
            return connection.execute("SELECT number, state, answered FROM rounds ORDER BY number").fetchall()
        finally:
            connection.close()

    def n_finished(self) -> int:
        """How many rounds have finished."""
        return sum(state == "finished" for _, state, _ in self.rounds())

    def check_devices(self) -> None:
        """Check that no device sent more than the two vectors of a sum in any round, and nothing readable."""
        for person in range(self.people):
            with Device.open(self.path(person), PASSPHRASE) as device:
                entries = device.ledger.list()
            assert all(entry.masked for entry in entries)
            for number in {entry.round for entry in entries}:
                assert sum(entry.round == number for entry in entries) <= 2
