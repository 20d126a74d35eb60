"""The tour of the field: a coordinator and fourteen devices as processes on this machine, under masks, with TLS.

    python tools/field_demo.py [METHOD]

Any federated method runs. At the end the coordinator's model is compared with the simulator's, bit for bit. For that
comparison the devices and the coordinator of this tour share a seed; real devices draw their own keys. So that a few
rounds take a minute, devices have no cool-down here, and sums have one stage, which shows rows of single users too: the
defaults are more careful. A method whose server reads each answer runs in the clear, with five devices.

A method that was made for differential privacy (dp-svd) runs with a guarantee: noise comes from the operating system,
so that no simulator can repeat it, and what each device has spent of its privacy budget is printed instead.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tacit.config import read_config
from tacit.data import DataConfig, load
from tacit.errors import TacitError
from tacit.field.carriers.fleet_node import DeviceEvent
from tacit.field.carriers.supernode import SuperNode
from tacit.field.coordinator import CoordinatorJournal
from tacit.field.device import Device, ScryptCost, Sharing
from tacit.field.device.history import HistoryEntry
from tacit.field.invitations import Invitation, accept
from tacit.field.serve import ServeConfig, make_invitation, open_federation
from tacit.lab.simulation import simulate
from tacit.methods.base import Federated, build_federated, options
from tacit.numerics import one_blas_thread
from tacit.protocols.federated import UpdatePath
from tacit.protocols.secure_aggregation import DevicePolicy
from tacit.random import Key
from tacit.reasons import ReasonCode
from tacit.types import Clients, offsets
from tacit.wire.federation import Federation

ROUNDS, SECONDS, SEED = 3, 600, 42
MOST_ROUNDS = 9  # a method with a plan for its budget ends before
GUARANTEE: dict[str, Any] = {"epsilon": 4.0, "delta": 0.01}  # fourteen devices: far below one in fourteen
MASKED, READABLE = 14, 5  # devices
PASSPHRASE = "only for a demo"
POLICY = DevicePolicy(k_min=1, d_min=0, cool_down=0)
SHARING = Sharing(pi=0.3, coin="row", never_categories=("Bakery",), device_policy=POLICY)
CARE = {"two_stage": False, "n_min": POLICY.n_min, "corrupted": POLICY.corrupted}
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


def histories(folder: Path, n_devices: int) -> Clients:
    """Give some users of the town a history each, as a table that the device imports."""
    dataset = load(DataConfig(source="town"))
    log, catalog = dataset.interactions, dataset.catalog
    every = [np.unique(log.items[log.users == person]) for person in range(n_devices)]
    for person, items in enumerate(every):
        home = folder / f"person{person}"
        home.mkdir()
        rows = "".join(f"{catalog.item_ids[int(item)]}\n" for item in items)
        (home / "history.csv").write_text("item\n" + rows)
    ptr = offsets(np.array([len(items) for items in every]))
    return Clients(np.arange(n_devices), ptr, np.concatenate(every).astype(np.int32), catalog.n_items)


def is_private(method: str) -> bool:
    """Say whether the tour of a method is one with a guarantee: its contributions have a bound of their own."""
    return build_federated(method).spec.bound is not None


def found(folder: Path, method: str, port: int, n_devices: int) -> tuple[Path, CoordinatorJournal]:
    """Found the federation as `tacit serve` does, with a known seed; return its file and its journal."""
    rounds: dict[str, Any] = {"rounds": ROUNDS, "quorum": n_devices, "minimum": 3, "deadline": 120, "patience": 600}
    masks = {"secure": CARE, "device_policy": POLICY.model_dump()}
    rounds |= masks if n_devices == MASKED else {"secure": None, "readable": True}
    private = is_private(method)
    has_shares = type(build_federated(method)).budget_share is not Federated.budget_share
    if private and has_shares:
        rounds |= {"rounds": MOST_ROUNDS}
    guarantee = GUARANTEE if has_shares else {**GUARANTEE, "participations": ROUNDS}
    given = {
        "privacy": guarantee if private else "none",
        "name": "town",
        "folder": str(folder / "coordinator"),
        "catalog": "town",
        "method": {"name": method, **OPTIONS.get(method, {})},
        "rounds": rounds,
        "after": "end",
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
    path = UpdatePath(method, [SHARING.stage(len(clients) - 1, journal.catalog)], federation.ring)
    with one_blas_thread():
        *_, model = simulate(path, clients, journal.catalog, Key(SEED).child("learn"))
    return dict(model.shared)


def main() -> int:
    """Run the tour in a folder that is gone afterwards."""
    method = sys.argv[1] if len(sys.argv) > 1 else "fpl"
    folder = Path(tempfile.mkdtemp(prefix="tacit-field-"))
    running: list[subprocess.Popen[str]] = []
    devices: list[BaseProcess] = []
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - started:3.0f} s] {text}", flush=True)

    try:
        n_devices = READABLE if build_federated(method).spec.client_tables else MASKED
        clients = histories(folder, n_devices)
        homes = [folder / f"person{person}" for person in range(n_devices)]
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        config, journal = found(folder, method, port, n_devices)
        say(f"{method}: a coordinator on 127.0.0.1:{port} with its own certificate, and {n_devices} devices.")
        coordinator = tacit("serve", str(config))
        running.append(coordinator)
        first = json.loads(ended(tacit("enroll", str(config), "--json")))["invitation"]
        say(f"An invitation is one line: {first[:60]}...")
        served = read_config(ServeConfig, config)
        invitations = [first, *(make_invitation(served, journal, 1.0) for _ in homes[1:])]
        wait_for_port(port, coordinator)
        for person, home in enumerate(homes):
            join(home, person, invitations[person], n_devices == MASKED)
        say("All devices have joined and imported a history. They share with pi = 0.3, and never bakeries.")
        context = multiprocessing.get_context("fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn")
        for home in homes:
            devices.append(context.Process(target=take_part, args=(home,), daemon=True))
            devices[-1].start()
        say(
            "All devices run; rounds until the plan is done:"
            if is_private(method)
            else f"All devices run; {ROUNDS} rounds:"
        )
        for line in coordinator.stdout or ():
            if line.startswith("Round "):
                say(line.strip())
        ended(coordinator)
        for device in devices:
            device.join(SECONDS)
        say("Every device has the model. What some would recommend now, offline:")
        for home in homes[:3]:
            listed = json.loads(ended(tacit("device", "recommend", "-k", "3", "--json", person=home)))
            print(f"  {home.name}: {'; '.join(one['title'] for one in listed['recommendations'])}")
        say("The ledger of the first user:")
        print(ended(tacit("device", "ledger", person=homes[0])))
        same = tell_budgets(homes, journal) if is_private(method) else compare(journal, clients)
        say("Done; everything is cleaned up.")
        return 0 if same else 1
    except TacitError as error:
        print(f"{error.message} {error.hint}", file=sys.stderr)
        return 1
    finally:
        for device in devices:
            device.kill()
        for process in running:
            if process.poll() is None:
                process.terminate()
                process.wait(10)
        shutil.rmtree(folder, ignore_errors=True)


def join(home: Path, person: int, line: str, masked: bool) -> None:
    """Make a device, join, import a history and decide what may leave, as `tacit device` does."""
    with Device.create(home / "device.db", PASSPHRASE, cost=ScryptCost(log_n=12), seed=SEED, lane=person) as device:
        accept(device, Invitation.parse(line), accepts={ReasonCode.NO_GUARANTEE})
        device.share(SHARING.model_copy(update={"masked_only": masked}))
        items = (home / "history.csv").read_text().split()[1:]
        device.history.add([HistoryEntry(item) for item in items], device.catalog)


def take_part(home: Path) -> None:
    """Take part as `tacit device run` does, until the rounds are done."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    stop = threading.Event()
    with Device.open(home / "device.db", PASSPHRASE) as device:
        node = SuperNode(device, poll=0.2)

        def listen(news: DeviceEvent) -> None:
            if news.what == "model" and node.status is not None and node.status.phase == "finished":
                stop.set()

        node.run(stop, listen)


def wait_for_port(port: int, coordinator: subprocess.Popen[str]) -> None:
    """Wait until the coordinator listens."""
    until = time.monotonic() + 120
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if coordinator.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"the coordinator does not listen:\n{coordinator.communicate()[1]}") from None
            time.sleep(0.5)


def compare(journal: CoordinatorJournal, clients: Clients) -> bool:
    """Say whether the coordinator's model is the simulator's, bit for bit."""
    expected, model = simulated(journal.federation, clients, journal), journal.model() or {}
    differs = [name for name, array in model.items() if not np.array_equal(array, expected[name])]
    if differs:
        print(f"The model is NOT the simulator's: {', '.join(differs)} differ.")
    else:
        print(f"The model equals the simulator's, bit for bit: {', '.join(sorted(model))}.")
    return not differs


def tell_budgets(homes: list[Path], journal: CoordinatorJournal) -> bool:
    """Print what each device has spent; say whether none has spent more than was agreed, and all as much as known."""
    known, is_right = sum(one.share for one in journal.sums.spendings()), True
    for home in homes:
        (budget,) = json.loads(ended(tacit("device", "privacy", "--json", person=home)))["budgets"]
        is_right &= budget["spent_epsilon"] <= budget["epsilon"] and abs(budget["spent"] - known) < 1e-9
        spent, agreed, n_sums = budget["spent_epsilon"], budget["epsilon"], len(budget["debits"])
        print(f"  {home.name}: epsilon {spent:.3f} of {agreed:g} in {n_sums} sums")
    print(ended(tacit("device", "privacy", person=homes[0])))
    print(
        "Noise came from the operating system: no simulator can repeat this model. Fourteen people are far too few to"
    )
    print("be heard above it; docs/privacy.md says how many it takes.")
    return is_right


if __name__ == "__main__":
    sys.exit(main())
