"""One small federation three times: simulated, in one process, and over a network. What they share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tacit.coordinator import Journal
from tacit.data import DataConfig, load
from tacit.device import Cost, Device, Sharing
from tacit.device.history import Entry
from tacit.methods.base import Schedule
from tacit.privacy.secure import Guards
from tacit.protocols.rounds import RoundsConfig, attendance
from tacit.random import Key
from tacit.runtimes.federation import Federation
from tacit.runtimes.secure import SecureConfig
from tacit.runtimes.simulation import simulate
from tacit.testing import make_clients
from tacit.types import Catalog, Clients, Model
from tacit.updates import Ring

SEED, PASSPHRASE, PI = 42, "a field of five", 0.7
CHEAP = Cost(log_n=10)
BOLD = Guards(n_min=3, k_min=1, d_min=0, cool_down=0)
OPTIONS: dict[str, dict[str, Any]] = {
    "fpl": {"factors": 5, "local_steps": 7, "learning_rate": 0.05},
    "fed-gmf": {"factors": 5, "learning_rate": 0.02, "clients_per_round": 0, "server_momentum": 0.5},
}


def town(people: int = 5) -> tuple[Clients, Catalog]:
    """Some people of the built-in town, each with what she did."""
    dataset = load(DataConfig(source="town", people=people, places=60))
    log, known = dataset.interactions, dataset.catalog
    catalog = Catalog(known.item_ids, known.titles, known.categories)
    histories = [np.unique(log.items[log.users == person]) for person in range(people)]
    return make_clients(histories, catalog.n_items), catalog


def founded(method: str, catalog: Catalog, ring: Ring | None = None) -> Federation:
    return Federation.found("cd" * 16, "same", method, OPTIONS[method], catalog, ring=ring)


def simulated(
    federation: Federation,
    clients: Clients,
    catalog: Catalog,
    rounds: int,
    rules: RoundsConfig | None = None,
    secure: SecureConfig | None = None,
) -> Model:
    """The simulator's model after some rounds; everybody discloses with the same pi."""
    length = {"rounds": rounds} if federation.method == "fpl" else {"epochs": rounds}
    method = federation.model_copy(update={"options": federation.options | length}).model_copy()
    built = Federation(**method.model_dump()).built
    stages = [Sharing(pi=PI).stage(len(clients) - 1, catalog)]
    where = stages, federation.ring, clients, catalog, Key(SEED).child("learn")
    return list(simulate(built, *where, rounds=rules, secure=secure, plainly=True))[-1]


def who_answers(clients: Clients, rules: RoundsConfig, number: int) -> set[int]:
    """The people whose answers the simulator counts in a round."""
    schedule = Schedule(1, 1, len(clients))
    return set(attendance(schedule, rules, Key(SEED).child("learn"), number, len(clients)).answered.tolist())


def device_of(folder: Path, clients: Clients, person: int, catalog: Catalog, welcome: bytes) -> Device:
    """The device of one person, made as the simulator makes her."""
    device = Device.create(folder / f"{person}.db", PASSPHRASE, cost=CHEAP, seed=SEED, lane=person)
    device.join(welcome)
    device.share(Sharing(pi=PI))
    device.history.add([Entry(catalog.item_ids[int(item)]) for item in clients.of(person)], catalog)
    return device


def journal_of(folder: Path, federation: Federation, catalog: Catalog) -> Journal:
    return Journal.create(folder / "journal.db", federation, catalog, seed=SEED)


def assert_same(model: Model, shared: dict[str, Any], devices: dict[int, Device]) -> None:
    """Bit for bit: the shared model, and everybody's private part."""
    assert model.shared.keys() == shared.keys()
    for name, array in model.shared.items():
        assert np.array_equal(array, shared[name]), f"'{name}' differs"
    for person, device in devices.items():
        assert device.membership is not None
        private = device.membership.private()
        if private is None:  # never asked
            continue
        for name, array in model.private.items():
            assert np.array_equal(array[[person]], private[name]), f"'{name}' of person {person} differs"
