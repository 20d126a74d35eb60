"""A witness in a process of its own, over TLS on this machine: it is killed, comes back, and signs one list only."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.town_federation import founded, journal_of, town
from helpers.waiting import LONG, wait_until
from tacit.field.carriers.superlink import SuperLink
from tacit.field.certificates import make_certificates
from tacit.field.coordinator.config import WitnessRules
from tacit.field.witness import Witness, WitnessLine
from tacit.protocols.secure_aggregation import Identity

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # Flower and its servers warn of their own doings
]


def command(folder: Path, *arguments: str) -> list[str]:
    return [
        sys.executable,
        "-c",
        "from tacit.cli import main; main()",
        "witness",
        *arguments,
        "--folder",
        str(folder / "witness"),
    ]


def test_a_killed_witness_comes_back_and_never_signs_a_fork(tmp_path: Path) -> None:
    environment = {**os.environ, "TACIT_HOME": str(tmp_path)}
    catalog = town()[1]
    federation = founded("fpl", catalog)
    journal = journal_of(tmp_path, federation, catalog)
    for number in range(3):
        journal.members.add(bytes([number]), Identity.fresh().public)
    shown = subprocess.run(
        command(tmp_path, "key", "--json"), capture_output=True, text=True, timeout=LONG, env=environment, check=True
    )
    rules = WitnessRules(key=json.loads(shown.stdout)["key"], settled_hours=0)
    tls = make_certificates(tmp_path / "tls", "127.0.0.1")
    link = SuperLink(journal, "127.0.0.1", 0, tls.certificate, tls.key, rules)
    line = WitnessLine(f"127.0.0.1:{link.port}", tls.roots, federation.id, "same").line()
    started = command(tmp_path, "run", line, "--every", "0.05")
    try:
        for size in (3, 4, 5):  # killed each time; every restart goes on with the list that is on disk
            running = subprocess.Popen(started, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
            try:
                wait_until(
                    lambda size=size: [one.size for one in journal.directory.checkpoints()][-1:] == [size],  # type: ignore[misc]
                    LONG,
                    f"the witness signs {size} members",
                )
                journal.members.add(bytes([10 + size]), Identity.fresh().public)
            finally:
                running.send_signal(signal.SIGKILL)
                running.wait(LONG)
    finally:
        link.close()
    other = journal_of(tmp_path / "fork", federation, catalog)  # the same federation, with other members
    for number in range(9):
        other.members.add(bytes([number]), Identity.fresh().public)
    link = SuperLink(other, "127.0.0.1", 0, tls.certificate, tls.key, rules)
    try:
        fork = WitnessLine(f"127.0.0.1:{link.port}", tls.roots, federation.id, "same").line()
        ended = subprocess.run(
            command(tmp_path, "run", fork, "--once", "--json"),
            capture_output=True,
            text=True,
            timeout=LONG,
            env=environment,
            check=False,
        )
        assert (ended.returncode, json.loads(ended.stdout)["error"]["code"]) == (15, "directory-forked")
        assert not other.directory.checkpoints()
        other = command(tmp_path / "other", "run", fork, "--once", "--json")
        refused = subprocess.run(other, capture_output=True, text=True, timeout=LONG, env=environment, check=False)
        assert refused.returncode == 15, "whoever is not the witness does not get the list"
    finally:
        link.close()
    held = Witness(tmp_path / "witness").sign_held(federation.id)
    assert held.size in (5, 6)
