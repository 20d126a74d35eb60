"""One small federation three times: simulated, in one process, and over a network. What they share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data import DataConfig, load
from tacit.field.coordinator import CoordinatorJournal
from tacit.field.device import Device, ScryptCost, Sharing
from tacit.field.device.history import HistoryEntry
from tacit.lab.secure_rounds import SecureRoundsConfig
from tacit.lab.simulation import SimulationOptions, simulate
from tacit.methods.base import Federated, Schedule, build_federated, options
from tacit.privacy.dp import AgreedPrivacyConfig
from tacit.privacy.noise import NoiseSource, SimulatedNoise
from tacit.protocols.federated import UpdatePath
from tacit.protocols.rounds import RoundsConfig, draw_attendance
from tacit.protocols.secure_aggregation import DevicePolicy
from tacit.random import Key
from tacit.reasons import ReasonCode
from tacit.testing import make_clients
from tacit.types import Catalog, Clients, Model
from tacit.updates import Ring
from tacit.wire.federation import Federation

SEED, PASSPHRASE, PI = 42, "a field of five", 0.7
CHEAP = ScryptCost(log_n=10)
BOLD = DevicePolicy(n_min=3, k_min=1, d_min=0, cool_down=0, most_cohorts=None)
OPTIONS: dict[str, dict[str, Any]] = {
    "fpl": {"factors": 5, "local_steps": 7, "learning_rate": 0.05},
    "fed-gmf": {"factors": 6, "learning_rate": 0.02, "server_momentum": 0.5},
    "fed-neumf": {"factors": 6, "layers": (8, 4)},
    "fed-svd": {"factors": 4},
    "fed-ease": {"sketch": 12},
    "fed-slist": {"factors": 5},
    "kgflex": {"factors": 4},
}  # others run with their defaults; lengths of vectors that other tests have too: kernels are compiled for each


def town(people: int = 5) -> tuple[Clients, Catalog]:
    """Some users of the built-in town, each with a history."""
    dataset = load(DataConfig(source="town", users=people, places=60))
    log, known = dataset.interactions, dataset.catalog
    catalog = Catalog(known.item_ids, known.titles, known.categories)
    assert log.times is not None
    newest_last = np.argsort(log.times, kind="stable")
    histories = [
        list(dict.fromkeys(log.items[newest_last][log.users[newest_last] == p].tolist())) for p in range(people)
    ]
    return make_clients(histories, catalog.n_items), catalog


def founded(
    method: str, catalog: Catalog, ring: Ring | None = None, privacy: AgreedPrivacyConfig | None = None
) -> Federation:
    given = OPTIONS.get(method, {})
    return Federation.create("cd" * 16, "same", method, given, catalog, ring=ring, privacy=privacy)


def noise_share(number: int, client: int) -> NoiseSource:
    """The noise of a client in a round, as often as it is asked for: in tests only."""
    return SimulatedNoise(Key(SEED).child("noise share", number, client))


def simulated(
    federation: Federation,
    clients: Clients,
    catalog: Catalog,
    rounds: int,
    rules: RoundsConfig | None = None,
    secure: SecureRoundsConfig | None = None,
) -> Model:
    """The simulator's model after some rounds; all clients disclose with the same pi."""
    method = every_round(federation, rounds, len(clients))
    path = UpdatePath(
        method, [Sharing(pi=PI, coin="row").stage(len(clients) - 1, catalog), *federation.stages], federation.ring
    )
    how = SimulationOptions(rules or RoundsConfig(), secure)
    if federation.privacy is not None:
        how = replace(how, reference=True, noise_shares=noise_share)
    return list(simulate(path, clients, catalog, Key(SEED).child("learn"), None, how))[-1]


def every_round(federation: Federation, rounds: int, n_clients: int) -> Federated:
    """The federation's method with a schedule of so many rounds, all clients asked in each."""
    fields = type(federation.config).model_fields
    wanted = {"clients_per_round": 0, "share": 1.0, "steps_per_epoch": 1, "epochs": rounds}
    wanted |= {"rounds": rounds} if "rounds" in fields else {}
    given = federation.options | {name: value for name, value in wanted.items() if name in fields}
    method = build_federated(federation.method, options(federation.method, given))
    if method.schedule(town(n_clients)[0]).rounds != rounds:  # one schedule only, or passes of several rounds
        vars(method)["schedule"] = lambda clients: Schedule(rounds, 1, len(clients))
    return method


def who_answers(clients: Clients, rules: RoundsConfig, number: int) -> set[int]:
    """The people whose answers the simulator counts in a round."""
    schedule = Schedule(1, 1, len(clients))
    return set(draw_attendance(schedule, rules, Key(SEED).child("learn"), number, len(clients)).answered.tolist())


def device_of(folder: Path, clients: Clients, person: int, catalog: Catalog, welcome: bytes) -> Device:
    """The device of one client, made as the simulator makes it."""
    device = Device.create(folder / f"{person}.db", PASSPHRASE, cost=CHEAP, seed=SEED, lane=person)
    device.join(welcome, accepts={ReasonCode.NO_GUARANTEE})
    device.share(Sharing(pi=PI, coin="row", masked_only=False, privacy="open"))
    own = clients.take([person])
    device.history.add([HistoryEntry(catalog.item_ids[int(item)]) for item in own.items[own.in_order]], catalog)
    device.close()
    return reopened(folder, person)


def reopened(folder: Path, person: int) -> Device:
    """The same device again, with noise that the simulator can draw too."""
    return Device.open(folder / f"{person}.db", PASSPHRASE, noise=lambda number: noise_share(number, person))


def journal_of(folder: Path, federation: Federation, catalog: Catalog) -> CoordinatorJournal:
    return CoordinatorJournal.create(folder / "journal.db", federation, catalog, seed=SEED)


def assert_same(model: Model, shared: dict[str, Any], devices: dict[int, Device]) -> None:
    """Bit for bit: the shared model, and all private parts."""
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
