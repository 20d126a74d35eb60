"""The tour of the field: a coordinator and five devices as processes on this machine, with TLS, for a few rounds.

    python tools/field_demo.py [METHOD]

Any federated method runs. At the end the coordinator's model is compared with the simulator's, bit for bit. For that
comparison the devices and the coordinator of this tour share a seed; real devices draw their own keys.
"""

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
from typing import Any

import numpy as np
import yaml

from tacit.data import DataConfig, load
from tacit.errors import TacitError
from tacit.field.coordinator import CoordinatorJournal
from tacit.field.device import Device, ScryptCost, Sharing
from tacit.field.serve import ServeConfig, open_federation
from tacit.lab.simulation import simulate
from tacit.methods.base import build_federated, options
from tacit.numerics import one_blas_thread
from tacit.protocols.federated import UpdatePath
from tacit.random import Key
from tacit.types import Clients, offsets
from tacit.wire.federation import Federation

PEOPLE, ROUNDS, SECONDS, SEED = 5, 4, 600, 42
PASSPHRASE = "only for a demo"
SHARING = Sharing(pi=0.3, never_categories=("Bakery",))
OPTIONS: dict[str, dict[str, Any]] = {"fpl": {"factors": 8, "local_steps": 20, "learning_rate": 0.05}}


def tacit(*words: str, person: Path | None = None) -> subprocess.Popen[str]:
    """Start a command, as a person in front of a shell would."""
    environment = {**os.environ, "TACIT_PASSPHRASE": PASSPHRASE, "OPENBLAS_NUM_THREADS": "1"}
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


def histories(folder: Path) -> Clients:
    """Give each of five users of the town a history, as a table that the device imports."""
    dataset = load(DataConfig(source="town"))
    log, catalog = dataset.interactions, dataset.catalog
    every = [np.unique(log.items[log.users == person]) for person in range(PEOPLE)]
    for person, items in enumerate(every):
        home = folder / f"person{person}"
        home.mkdir()
        rows = "".join(f"{catalog.item_ids[int(item)]}\n" for item in items)
        (home / "history.csv").write_text("item\n" + rows)
    ptr = offsets(np.array([len(items) for items in every]))
    return Clients(np.arange(PEOPLE), ptr, np.concatenate(every).astype(np.int32), catalog.n_items)


def found(folder: Path, method: str, port: int) -> tuple[Path, CoordinatorJournal]:
    """Found the federation as `tacit serve` does, with a known seed; return its file and its journal."""
    rounds: dict[str, Any] = {"rounds": ROUNDS, "quorum": PEOPLE, "minimum": 3, "deadline": 60, "patience": 600}
    if build_federated(method).spec.client_tables:
        rounds["secure"] = None
    given = {
        "name": "town",
        "folder": str(folder / "coordinator"),
        "catalog": "town",
        "method": {"name": method, **OPTIONS.get(method, {})},
        "rounds": rounds,
        "listen": f"127.0.0.1:{port}",
    }
    path = folder / "field.yaml"
    path.write_text(yaml.safe_dump(given))
    journal = open_federation(ServeConfig.from_options(given, "the tour"), seed=SEED)
    return path, journal


def simulated(federation: Federation, clients: Clients, journal: CoordinatorJournal) -> dict[str, Any]:
    """Return the shared arrays that the simulator makes of the same clients, rounds and seed."""
    fields = type(federation.config).model_fields
    wanted = {"clients_per_round": 0, "share": 1.0, "steps_per_epoch": 1, "epochs": ROUNDS, "rounds": ROUNDS}
    schedule = {name: value for name, value in wanted.items() if name in fields}
    method = build_federated(federation.method, options(federation.method, federation.options | schedule))
    path = UpdatePath(method, [SHARING.stage(PEOPLE - 1, journal.catalog)], federation.ring)
    with one_blas_thread():
        *_, model = simulate(path, clients, journal.catalog, Key(SEED).child("learn"))
    return dict(model.shared)


def main() -> int:
    """Run the tour in a folder that is gone afterwards."""
    method = sys.argv[1] if len(sys.argv) > 1 else "fpl"
    folder = Path(tempfile.mkdtemp(prefix="tacit-field-"))
    running: list[subprocess.Popen[str]] = []
    started = time.monotonic()
    try:
        clients = histories(folder)
        people = [folder / f"person{person}" for person in range(PEOPLE)]
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        config, journal = found(folder, method, port)
        print(f"{method}: a coordinator on 127.0.0.1:{port} with its own certificate, and {PEOPLE} devices.")
        invitations = [json.loads(ended(tacit("enroll", str(config), "--json")))["invitation"] for _ in people]
        print(f"An invitation is one line: {invitations[0][:60]}...")
        coordinator = tacit("serve", str(config), "--json")
        running.append(coordinator)
        for person, home in enumerate(people):
            Device.create(home / "device.db", PASSPHRASE, cost=ScryptCost(log_n=12), seed=SEED, lane=person).close()
        joined(people, invitations, coordinator)
        for home, process in [
            (h, tacit("device", "history", "import", str(h / "history.csv"), person=h)) for h in people
        ]:
            print(f"  {home.name}: {ended(process).strip()}")
        together(people, ["device", "share", "--pi", "0.3", "--never", "Bakery"])
        print(f"Everybody shares with pi = 0.3, and never bakeries. {ROUNDS} rounds:")
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
            listed = json.loads(ended(process))["recommendations"]
            print(f"  {home.name}: {', '.join(one['title'] for one in listed)}")
        print("The ledger of the first user:")
        print(ended(tacit("device", "ledger", person=people[0])))
        same = compare(journal, clients)
        print(f"Done in {time.monotonic() - started:.0f} s; everything is cleaned up.")
        return 0 if same else 1
    except TacitError as error:
        print(f"{error.message} {error.hint}", file=sys.stderr)
        return 1
    finally:
        for process in running:
            if process.poll() is None:
                process.terminate()
                process.wait(10)
        shutil.rmtree(folder, ignore_errors=True)


def compare(journal: CoordinatorJournal, clients: Clients) -> bool:
    """Say whether the coordinator's model is the simulator's, bit for bit."""
    expected, model = simulated(journal.federation, clients, journal), journal.model() or {}
    differs = [name for name, array in model.items() if not np.array_equal(array, expected[name])]
    if differs:
        print(f"The model is NOT the simulator's: {', '.join(differs)} differ.")
    else:
        print(f"The model equals the simulator's, bit for bit: {', '.join(sorted(model))}.")
    return not differs


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
