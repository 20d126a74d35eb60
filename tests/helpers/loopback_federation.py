"""A coordinator and its devices in one process, with readable rounds or masked ones."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from helpers.town_federation import BOLD, PI, device_of, founded, journal_of, reopened, town
from tacit.field.carriers.loopback import Loopback
from tacit.field.coordinator import Coordinator, CoordinatorJournal, RoundRules
from tacit.field.device import Device, Sharing
from tacit.privacy.dp import AgreedPrivacyConfig
from tacit.protocols.secure_aggregation import DevicePolicy
from tacit.updates import Ring
from tacit.wire.messages import read_secure_request

ROUNDS = 4
KNOWN = {"device_policy": BOLD.model_dump()}
CARE = {"n_min": 3, "k_min": 2, "spare": 0, "corrupted": 0.0, "dropped": 0.2}


class Field:
    """Five devices and a coordinator."""

    def __init__(
        self,
        folder: Path,
        method: str,
        ring: Ring | None = None,
        people: int = 5,
        privacy: AgreedPrivacyConfig | None = None,
    ) -> None:
        self.folder = folder
        self.clients, self.catalog = town(people)
        self.federation = founded(method, self.catalog, ring, privacy)
        self.journal = journal_of(folder, self.federation, self.catalog)
        self.devices: dict[int, Device] = {}
        for person in range(len(self.clients)):
            device = device_of(folder, self.clients, person, self.catalog, self.journal.welcome)
            number = self.journal.members.add(bytes([person]), device.identity)
            assert number == person + 1
            self.devices[number] = device

    def people(self) -> dict[int, Device]:
        return {number - 1: device for number, device in self.devices.items()}

    def reopen(self) -> None:
        """As after a restart of everything."""
        self.journal.close()
        self.journal = CoordinatorJournal.open(self.folder / "journal.db")
        for person in self.people():
            self.restart(person)

    def restart(self, person: int) -> None:
        self.devices[person + 1].close()
        self.devices[person + 1] = reopened(self.folder, person)

    def run(self, carrier: Loopback | None = None, **rules: object) -> Coordinator:
        coordinator = Coordinator(
            self.journal,
            RoundRules.from_options({"rounds": ROUNDS, "readable": True, **rules}, "rules"),
            carrier or Loopback(self.devices),
        )
        coordinator.run()
        return coordinator


def masked(folder: Path, method: str = "fpl", device_policy: DevicePolicy = BOLD, ring: Ring | None = None) -> Field:
    field = Field(folder, method, ring)
    for device in field.devices.values():
        device.share(Sharing(pi=PI, coin="row", masked_only=True, device_policy=device_policy))
    return field


def private(folder: Path, method: str, people: int = 5, ring: Ring | None = None, **terms: Any) -> Field:
    """A federation with a guarantee, whose users allow all of it."""
    agreed = {"epsilon": 8.0, "delta": 1e-3, **terms}
    if method != "dp-svd":
        own = {} if method == "dp-popular" else {"bound": 0.1}
        agreed = {**own, "participations": 3, **agreed}
    field = Field(folder, method, ring, people, AgreedPrivacyConfig(**agreed))
    for device in field.devices.values():
        device.share(Sharing(pi=PI, coin="row", privacy="open", device_policy=BOLD))
    return field


class Egress(Loopback):
    """Keeps every byte that leaves a device; may lose a device from some phase on."""

    def __init__(self, field: Field, leaves: Mapping[tuple[int, int], int] | None = None) -> None:
        super().__init__(field.devices)
        self.field, self.leaves, self.left = field, dict(leaves or {}), list[tuple[int, bytes]]()
        self.restarts = False

    def ask(self, requests: Mapping[int, bytes], seconds: float, most_bytes: int) -> Generator[tuple[int, bytes]]:
        for device, content in requests.items():
            turn = read_secure_request(self.field.federation, content)
            if turn.phase >= self.leaves.get((device, turn.round), 99):
                continue
            if self.restarts:
                self.field.restart(device - 1)
                self.devices = self.field.devices
            for answer in super().ask({device: content}, seconds, most_bytes):
                self.left.append(answer)
                yield answer
