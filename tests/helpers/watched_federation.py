"""A masked federation in one process, with a witness that comes by when it is told to."""

from __future__ import annotations

from pathlib import Path

from helpers.loopback_federation import CARE, KNOWN, Field, masked
from tacit.field.carriers.loopback import Loopback
from tacit.field.coordinator import Coordinator, RoundRules
from tacit.field.coordinator.config import WitnessRules
from tacit.field.coordinator.directory import CoordinatorDirectory
from tacit.field.witness import Witness
from tacit.protocols.directory import DirectoryCheckpoint, DirectoryPolicy
from tacit.protocols.notices import notice_log

AT_ONCE = DirectoryPolicy(settled_hours=0)
SUM = {**KNOWN, "secure": {**CARE, "two_stage": False}}


def visit(witness: Witness, directory: CoordinatorDirectory, log: str) -> DirectoryCheckpoint:
    """Let a witness come by, as `WitnessVisit` does over the network."""
    found = _take(witness, directory, log)
    _take(witness, directory, notice_log(bytes.fromhex(log)).hex())
    return found


def _take(witness: Witness, directory: CoordinatorDirectory, log: str) -> DirectoryCheckpoint:
    while True:
        held = witness.sign_held(log)
        growth = directory.visit(held)
        if not growth.entries or not witness.add(log, growth):
            return held


class Watched:
    """Five devices that demand a witness, their coordinator, and the witness."""

    def __init__(self, folder: Path, policy: DirectoryPolicy = AT_ONCE, hours: float = 0.0) -> None:
        self.field: Field = masked(folder)
        self.witness = Witness(folder / "witness")
        self.rules = WitnessRules(key=self.witness.key.hex(), settled_hours=hours)
        for device in self.field.devices.values():
            device.directory.name_witness(self.rules.key)
            device.change(lambda before: before.model_copy(update={"directory": policy}))

    @property
    def log(self) -> str:
        return self.field.federation.id

    def directory(self) -> CoordinatorDirectory:
        return CoordinatorDirectory(self.field.journal, self.rules)

    def visit(self) -> DirectoryCheckpoint:
        return visit(self.witness, self.directory(), self.log)

    def coordinator(self, carrier: Loopback | None = None, **more: object) -> Coordinator:
        given = {"patience": 0.1, **SUM, "witness": self.rules.model_dump(), **more}
        rules = RoundRules.from_options(given, "rules")
        return Coordinator(self.field.journal, rules, carrier or Loopback(self.field.devices))

    def run(self, rounds: int = 1, carrier: Loopback | None = None, **more: object) -> list[str]:
        """Run some rounds, each once; return how they ended."""
        coordinator = self.coordinator(carrier, **more)
        return [coordinator.round().state for _ in range(rounds)]
