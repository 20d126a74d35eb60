"""How large answers are: honest ones fit the bound of their message, and one beyond it is a lie like any other."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import pytest

from helpers.loopback_federation import KNOWN, Field
from helpers.town_federation import BOLD
from tacit.field.carriers.loopback import Loopback
from tacit.field.device import Sharing
from tacit.field.device.history import HistoryEntry
from tacit.methods.base import build_federated, names
from tacit.protocols.secure_aggregation import ServerPhase
from tacit.reasons import ReasonCode
from tacit.wire.envelope import phase_in

pytestmark = pytest.mark.slow

LARGEST, ADVERSARY, PEOPLE = 1, 2, 5
MASKABLE = [name for name in names("federated") if not build_federated(name).spec.client_tables]
PHASES = list(ServerPhase)[:5]
CARE = {"n_min": 3, "two_stage": False, "corrupted": 0.0}


class Weighed(Loopback):
    """Notes how large answers are, and makes those of one device larger than any honest one in some phase."""

    def __init__(self, field: Field, phase: ServerPhase | None = None) -> None:
        super().__init__(field.devices)
        self.phase, self.sizes, self.most = phase, dict[ServerPhase | None, dict[int, int]](), dict[Any, int]()

    def ask(self, requests: Mapping[int, bytes], seconds: float, most_bytes: int) -> Generator[tuple[int, bytes]]:
        number = phase_in(next(iter(requests.values())))
        phase = None if number is None else ServerPhase(number)
        sizes, self.most[phase] = self.sizes.setdefault(phase, {}), most_bytes
        for device, answer in super().ask(requests, seconds, most_bytes):
            sizes[device] = len(answer)
            lies = device == ADVERSARY and phase == self.phase
            yield device, answer.ljust(most_bytes + 1, b"\0") if lies else answer


def with_a_long_history(folder: Path, method: str, is_masked: bool) -> Field:
    """A federation in which one device has all items but one, and shares all of them."""
    field = Field(folder, method, people=PEOPLE)
    own = [HistoryEntry(field.catalog.item_ids[item]) for item in range(field.catalog.n_items - 1)]
    field.devices[LARGEST].history.add(own, field.catalog)
    for device in field.devices.values():
        device.share(Sharing(pi=1.0, coin="row", masked_only=is_masked, device_policy=BOLD))
    return field


@pytest.mark.parametrize("method", names("federated"))
def test_readable_answers(tmp_path: Path, method: str) -> None:
    field = with_a_long_history(tmp_path, method, is_masked=False)
    carrier = Weighed(field)
    field.run(carrier, secure=None, rounds=1, minimum=2)
    assert max(carrier.sizes[None].values()) == carrier.sizes[None][LARGEST]
    assert carrier.sizes[None][LARGEST] <= carrier.most[None] < 20 * carrier.sizes[None][LARGEST]
    check_named(field, answered=PEOPLE - 1)


@pytest.mark.parametrize("method", MASKABLE)
def test_masked_answers(tmp_path: Path, method: str) -> None:
    field = with_a_long_history(tmp_path, method, is_masked=True)
    carrier = Weighed(field, ServerPhase.VECTORS)
    field.run(carrier, rounds=1, minimum=2, **KNOWN, secure=CARE)
    for phase in PHASES[:3]:  # later ones are about the devices that are left
        assert set(carrier.sizes[phase].values()) == {carrier.most[phase]}
    for phase in PHASES[3:]:
        assert max(carrier.sizes[phase].values()) <= carrier.most[phase]
    check_named(field, answered=PEOPLE - 1)


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.name.lower())
def test_masked_answers_beyond_the_bound_in_each_phase(tmp_path: Path, phase: ServerPhase) -> None:
    field = with_a_long_history(tmp_path, "fpl", is_masked=True)
    field.run(Weighed(field, phase), rounds=1, minimum=2, **KNOWN, secure=CARE)
    check_named(field, answered=PEOPLE - (phase <= ServerPhase.VECTORS))


def check_named(field: Field, answered: int) -> None:
    (happened,) = field.journal.rounds.records()
    assert (happened.state, happened.answered) == ("finished", answered)
    assert {one.device: one.codes for one in field.journal.strikes.by_device()} == {
        ADVERSARY: (ReasonCode.MALFORMED_MESSAGE,)
    }
