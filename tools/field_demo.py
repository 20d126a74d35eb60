"""The tour of the field: a coordinator and five devices as processes on this machine, with TLS, for a few rounds."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tacit.data import DataConfig, load

PEOPLE, ROUNDS, SECONDS = 5, 4, 600
CONFIG = """
name: town
folder: {folder}/coordinator
catalog: town
method: {{name: fpl, factors: 8, local_steps: 20, learning_rate: 0.05}}
rounds: {{rounds: {rounds}, quorum: {people}, minimum: 3, deadline: 60, patience: 600}}
listen: 127.0.0.1:{port}
"""


def tacit(*words: str, person: Path | None = None) -> subprocess.Popen[str]:
    """Start a command, as a person in front of a shell would."""
    environment = {**os.environ, "TACIT_PASSPHRASE": "only for a demo", "OPENBLAS_NUM_THREADS": "1"}
    if person is not None:
        environment["TACIT_DEVICE"] = str(person / "device.db")
    command = [sys.executable, "-c", "from tacit.cli import main; main()", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def ended(process: subprocess.Popen[str]) -> str:
    """Wait for a command and return what it printed; if it failed, so does the tour."""
    out, err = process.communicate(timeout=SECONDS)
    if process.returncode:
        raise SystemExit(f"a command ended with {process.returncode}:\n{out}{err}")
    return out


def histories(folder: Path) -> None:
    """Give each of five people of the town what she did, as a table that she imports."""
    dataset = load(DataConfig(source="town"))
    log, catalog = dataset.interactions, dataset.catalog
    for person in range(PEOPLE):
        home = folder / f"person{person}"
        home.mkdir()
        items = np.unique(log.items[log.users == person])
        rows = "".join(f"{catalog.item_ids[int(item)]}\n" for item in items)
        (home / "history.csv").write_text("item\n" + rows)


def main() -> int:
    """Run the tour in a folder that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="tacit-field-"))
    running: list[subprocess.Popen[str]] = []
    started = time.monotonic()
    try:
        histories(folder)
        people = [folder / f"person{person}" for person in range(PEOPLE)]
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        config = folder / "field.yaml"
        config.write_text(CONFIG.format(folder=folder, rounds=ROUNDS, people=PEOPLE, port=port))
        print(f"A coordinator on 127.0.0.1:{port} with a certificate of its own, and {PEOPLE} people's devices.")
        invitations = [json.loads(ended(tacit("enroll", str(config), "--json")))["invitation"] for _ in people]
        print(f"An invitation is one line: {invitations[0][:60]}...")
        coordinator = tacit("serve", str(config), "--json")
        running.append(coordinator)
        together(people, ["device", "init"])
        joined(people, invitations, coordinator)
        for home, process in [
            (h, tacit("device", "history", "import", str(h / "history.csv"), person=h)) for h in people
        ]:
            print(f"  {home.name}: {ended(process).strip()}")
        ended(tacit("device", "share", "--pi", "0.3", "--never", "Bakery", person=people[0]))
        print(f"The first person shares with pi = 0.3, and never bakeries. {ROUNDS} rounds:")
        devices = [tacit("device", "run", "--poll", "0.2", "--json", person=home) for home in people]
        running += devices
        rounds = json.loads(ended(coordinator))["rounds"]
        for happened in rounds:
            print(
                f"  round {happened['number']}: {happened['answered']} of {happened['asked']} answered, "
                f"{happened['bytes_up']:,} bytes up, {happened['seconds']:.1f} s"
            )
        seen = "Answers were under masks" if rounds[-1]["masked"] else "Each answer could be read by the coordinator"
        print(f"{seen}. {rounds[-1]['why']}")
        answered = [json.loads(ended(device))["answered"] for device in devices]
        print(f"Rounds answered by each device: {answered}. What each would recommend now, offline:")
        for home, process in [(h, tacit("device", "recommend", "-k", "3", "--json", person=h)) for h in people]:
            found = json.loads(ended(process))["recommendations"]
            print(f"  {home.name}: {', '.join(one['title'] for one in found)}")
        print("The ledger of the first person:")
        print(ended(tacit("device", "ledger", person=people[0])))
        print(f"Done in {time.monotonic() - started:.0f} s; everything is cleaned up.")
        return 0
    finally:
        for process in running:
            if process.poll() is None:
                process.terminate()
                process.wait(10)
        shutil.rmtree(folder, ignore_errors=True)


def together(people: Sequence[Path], words: Sequence[str]) -> None:
    """Let everybody do the same."""
    for process in [tacit(*words, person=home) for home in people]:
        ended(process)


def joined(people: Sequence[Path], invitations: Sequence[str], coordinator: subprocess.Popen[str]) -> None:
    """Join, as soon as the coordinator listens."""
    for home, line in zip(people, invitations, strict=True):
        until = time.monotonic() + 60
        while True:
            process = tacit("device", "join", line, person=home)
            out, err = process.communicate(timeout=SECONDS)
            if not process.returncode:
                break
            if coordinator.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"joining failed:\n{out}{err}")
            time.sleep(0.5)


if __name__ == "__main__":
    sys.exit(main())
