"""A small cohort and a session of it, driven step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tacit.protocols.secure_aggregation.context import Terms
from tacit.protocols.secure_aggregation.device import SecureDevice
from tacit.protocols.secure_aggregation.device_policy import DevicePolicy
from tacit.protocols.secure_aggregation.encoding import VectorLayout, rows_layout
from tacit.protocols.secure_aggregation.graph import plan_masking
from tacit.protocols.secure_aggregation.identity import Identity
from tacit.protocols.secure_aggregation.journal import Journal, MemoryJournal
from tacit.protocols.secure_aggregation.local_session import _answer
from tacit.protocols.secure_aggregation.masks import Vector
from tacit.protocols.secure_aggregation.server import SecureServer, ServerPhase
from tacit.updates import Ring

EASY = DevicePolicy(n_min=2, k_min=1, cool_down=0, d_min=0, corrupted=0, most_cohorts=None)
SHAPES = {"items": (3, 2), "layers": (1, 2)}
PHASES = (
    ServerPhase.ADVERTS,
    ServerPhase.SHARES,
    ServerPhase.VECTORS,
    ServerPhase.CONFIRMATIONS,
    ServerPhase.UNMASKINGS,
)


def terms(n_participants: int, *, layout: VectorLayout | None = None, **given: Any) -> Terms:
    """Return terms of a one-stage sum."""
    usual = plan_masking(n_participants, 0.0, 0.0)
    default = {
        "task": "test",
        "round": 1,
        "stage": 2,
        "model": bytes(32),
        "layout": layout or rows_layout(SHAPES, Ring(), n_participants),
        "n_min": 2,
        "k_min": 1,
        "spare": 0,
        "degree": usual.degree,
        "threshold": usual.threshold,
        "beacon": bytes(32),
        "server_key": bytes(32),
    }
    return Terms(**{**default, **given})


def vector(layout: VectorLayout, number: int) -> Vector:
    """Return a vector of extreme and ordinary numbers that differs from person to person."""
    made = Vector(layout.sizes)
    generator = np.random.default_rng(number)
    for part in made.parts:
        part[:] = generator.integers(0, 2**20, len(part)).astype(part.dtype) - part.dtype.type(2**19 % 2**16)
    return made


def plain_sum(layout: VectorLayout, numbers: Sequence[int]) -> bytes:
    """Return the bytes of the sum of some people's vectors."""
    total = Vector(layout.sizes)
    for number in numbers:
        total.add(vector(layout, number).tobytes())
    return total.tobytes()


def copied(journal: Journal) -> MemoryJournal:
    other = MemoryJournal()
    other.rewrite(journal.records())
    return other


@dataclass
class Party:
    """Devices in the order of the cohort, and their server."""

    terms: Terms
    devices: list[SecureDevice]
    server: SecureServer
    inbox: dict[int, bytes] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        n_participants: int,
        *,
        device_policy: DevicePolicy = EASY,
        journals: Mapping[int, Journal] | None = None,
        identities: Sequence[Identity] | None = None,
        **given: Any,
    ) -> Party:
        people = sorted(identities or [Identity.fresh() for _ in range(n_participants)], key=lambda one: one.public)
        devices = [SecureDevice(one, device_policy, (journals or {}).get(at)) for at, one in enumerate(people)]
        wanted = terms(n_participants, **given)
        server = SecureServer.start(wanted, [one.public for one in people])
        return cls(wanted, devices, server, dict.fromkeys(range(n_participants), server.invitation))

    def again(self, **given: Any) -> Party:
        """Return the same devices in another session."""
        wanted = terms(len(self.devices), **given)
        server = SecureServer.start(wanted, [device.identity.public for device in self.devices])
        return Party(wanted, self.devices, server, dict.fromkeys(range(len(self.devices)), server.invitation))

    def answer(self, person: int, phase: ServerPhase | None = None) -> bytes:
        """Let one device answer what it was sent."""
        now = self.server.phase if phase is None else phase
        return _answer(self.devices[person], now, self.inbox[person], lambda: self.give(person))

    def give(self, person: int) -> Vector:
        return vector(self.terms.layout, person)

    def step(self, gone: Sequence[int] = (), bend: Callable[[int, bytes], bytes] = lambda _, message: message) -> None:
        """Let all devices that are there answer, and close the phase."""
        for person in sorted(self.inbox):
            if person not in gone:
                self.server.receive(bend(person, self.answer(person)))
        self.inbox = self.server.advance()

    def fork(self) -> Party:
        """Return a copy that goes its own way from here; keys are shared, they do not change."""
        server = copy(self.server)
        for name in ("adverts", "_keys", "_links", "_shares", "_arrived", "_codes", "_unmaskings", "blamed"):
            setattr(server, name, copy(getattr(server, name)))
        server.total = Vector(server.total.sizes, server.total.tobytes())
        devices = []
        for device in self.devices:
            other = copy(device)
            other._state, other.journal = copy(device._state), copied(device.journal)
            devices.append(other)
        return Party(self.terms, devices, server, dict(self.inbox))

    def run(self, until: ServerPhase = ServerPhase.DONE, leaves: Mapping[int, ServerPhase] | None = None) -> Party:
        while self.server.phase < until:
            now = self.server.phase
            self.step([person for person, phase in (leaves or {}).items() if phase <= now])
        return self

    def is_right(self) -> bool:
        return self.server.total.tobytes() == plain_sum(self.terms.layout, sorted(self.server.survivors))
