"""One device that lies costs a round that device only: rounds go on, and the journal names it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Mapping
from pathlib import Path

import numpy as np
import pytest

import tacit.field.device.answers as answers_module
from helpers.loopback_federation import CARE, KNOWN, Field, masked
from helpers.town_federation import BOLD, OPTIONS
from tacit.errors import TacitError, WireError
from tacit.field.carriers.loopback import Loopback
from tacit.field.coordinator import Coordinator, RoundRules
from tacit.field.exchange import respond
from tacit.privacy.clipping import ClippingConfig
from tacit.protocols.secure_aggregation.encoding import SegmentKind
from tacit.protocols.secure_aggregation.two_stage import SecureAggregationConfig
from tacit.reasons import ReasonCode
from tacit.wire.envelope import UPDATE, seal_message
from tacit.wire.federation import Federation
from tacit.wire.messages import _encode_name, read_update

pytestmark = pytest.mark.slow

ADVERSARY = 2


def update(federation: Federation, number: int, ids: list[int], value: int, width: int) -> bytes:
    """A readable answer of the adversary's own making."""
    rows = np.array(ids, "<u4")
    numbers = np.full((len(ids), width), value, "<i8")
    body = struct.pack("<B", 1) + _encode_name("items") + struct.pack("<II", *numbers.shape)
    return seal_message(UPDATE, federation.digest, number, body + rows.tobytes() + numbers.tobytes())


class Lying(Loopback):
    """Replaces what one device answers."""

    def __init__(self, field: Field, lie: Callable[[int], bytes]) -> None:
        super().__init__(field.devices)
        self.lie, self.journal = lie, field.journal

    def ask(self, requests: Mapping[int, bytes], seconds: float, most_bytes: int) -> Generator[tuple[int, bytes]]:
        for number, content in super().ask(requests, seconds, most_bytes):
            yield number, self.lie(self.journal.rounds.next_number) if number == ADVERSARY else content


def shape_of(field: Field) -> tuple[int, int]:
    return Coordinator(field.journal, RoundRules(), Loopback({})).shared["items"].shape  # type: ignore[return-value]


@pytest.fixture
def many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round of fpl has 2,000 rows of a device: an answer with more than honest ones have is refused unread."""
    monkeypatch.setitem(OPTIONS, "fpl", OPTIONS["fpl"] | {"local_steps": 1000})


@pytest.mark.usefixtures("many_rows")
def test_a_readable_answer_that_would_make_the_model_diverge_is_left_out(tmp_path: Path) -> None:
    field = Field(tmp_path, "fpl")
    _, width = shape_of(field)
    rules = RoundRules(rounds=2, secure=None, readable=True)
    lie = Lying(field, lambda number: update(field.federation, number, [7] * 2000, 2**24, width))
    coordinator = Coordinator(field.journal, rules, lie)
    for number in range(2):
        happened = coordinator.round()
        assert (happened.number, happened.state, happened.answered, happened.refused) == (number, "finished", 4, 1)
    (strikes,) = field.journal.strikes.by_device()
    assert (strikes.device, strikes.count, strikes.last_round, strikes.codes) == (
        ADVERSARY, 2, 1, (ReasonCode.DIVERGED,)
    )  # fmt: skip


@pytest.mark.parametrize("lie", ["too many rows", "a row twice", "garbage", "a megabyte"])
def test_a_readable_answer_of_impossible_form_is_refused_and_struck(tmp_path: Path, lie: str) -> None:
    field = Field(tmp_path, "fedavg")
    assert not field.federation.built.spec.rows_repeat
    n_rows, width = shape_of(field)

    def answer(number: int) -> bytes:
        if lie == "garbage":
            return b"\0" * 200
        if lie == "a megabyte":
            return update(field.federation, number, list(range(n_rows)), 0, width) + bytes(2**20)
        ids = sorted([*range(n_rows), *([3] if lie == "too many rows" else [])]) if lie != "a row twice" else [3, 3]
        return update(field.federation, number, ids, 1, width)

    happened = Coordinator(
        field.journal, RoundRules(rounds=2, secure=None, readable=True), Lying(field, answer)
    ).round()
    assert (happened.state, happened.answered, happened.refused) == ("finished", 4, 1)
    assert [(one.device, one.codes) for one in field.journal.strikes.by_device()] == [
        (ADVERSARY, (ReasonCode.MALFORMED_MESSAGE,))
    ]


@pytest.mark.usefixtures("many_rows")
def test_where_all_devices_make_a_model_diverge_none_gets_a_strike(tmp_path: Path) -> None:
    field = Field(tmp_path, "fpl")
    _, width = shape_of(field)

    class All(Loopback):
        def ask(self, requests: Mapping[int, bytes], seconds: float, most_bytes: int) -> Generator[tuple[int, bytes]]:
            for number in requests:
                yield number, update(field.federation, field.journal.rounds.next_number, [7] * 2000, 2**24, width)

    coordinator = Coordinator(field.journal, RoundRules(rounds=2, secure=None, readable=True), All(field.devices))
    before = coordinator.shared["items"].copy()
    for _ in range(2):
        happened = coordinator.round()
        assert (happened.state, happened.reason and happened.reason.code) == ("abandoned", ReasonCode.DIVERGED)
    assert np.array_equal(coordinator.shared["items"], before)
    assert not field.journal.strikes.by_device()


def test_a_readable_answer_longer_than_the_clip_is_refused(tmp_path: Path) -> None:
    plain = Field(tmp_path, "fpl").federation
    shapes, scale = {"items": (60, 6)}, int(plain.ring.scale)
    for clip, ids, right, wrong in (
        (ClippingConfig(row=1.0), [1, 2], scale // 3, scale),
        (ClippingConfig(person=2.0), [1, 2, 3], scale // 3, scale),
    ):
        federation = plain.model_copy(update={"clip": clip})
        read_update(federation, 0, update(federation, 0, ids, right, 6), shapes)
        with pytest.raises(WireError):
            read_update(federation, 0, update(federation, 0, ids, wrong, 6), shapes)


def test_a_masked_vector_beyond_all_bounds_abandons_the_round_and_not_the_coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    field, real, who = masked(tmp_path), answers_module.vector_of, [0]

    def lying(learnt, found, terms):  # type: ignore[no-untyped-def]
        vector, *rest = real(learnt, found, terms)
        if who[0] == ADVERSARY:
            for (table, kind), view in terms.layout.views(vector).items():
                if kind is SegmentKind.NUMBERS and table == "items":
                    view[:] += 2**50
        return vector, *rest

    monkeypatch.setattr(answers_module, "vector_of", lying)

    class Known(Loopback):
        def ask(self, requests: Mapping[int, bytes], seconds: float, most_bytes: int) -> Generator[tuple[int, bytes]]:
            for number, content in requests.items():
                who[0], answers = number, list[bytes]()
                try:
                    respond(self.devices[number], content, answers.append)
                except TacitError:
                    continue
                yield number, answers[0]

    secure = SecureAggregationConfig(**CARE, two_stage=False)
    coordinator = Coordinator(
        field.journal, RoundRules(rounds=3, secure=secure, device_policy=BOLD, readable=True), Known(field.devices)
    )
    before = coordinator.shared["items"].copy()
    happened = coordinator.round()
    assert (happened.state, happened.reason and happened.reason.code) == ("abandoned", ReasonCode.DIVERGED)
    assert np.array_equal(coordinator.shared["items"], before)
    monkeypatch.setattr(answers_module, "vector_of", real)
    assert coordinator.round().state == "finished"


def test_a_device_whose_masked_answers_are_refused_is_struck_and_the_sum_is_made_without_it(tmp_path: Path) -> None:
    field = masked(tmp_path)

    class Bent(Loopback):
        def ask(self, requests: Mapping[int, bytes], seconds: float, most_bytes: int) -> Generator[tuple[int, bytes]]:
            for number, content in super().ask(requests, seconds, most_bytes):
                yield number, content[:-1] + bytes([content[-1] ^ 1]) if number == ADVERSARY else content

    field.run(Bent(field.devices), rounds=1, **KNOWN, secure={**CARE, "two_stage": False})
    (happened,) = field.journal.rounds.records()
    assert (happened.state, happened.answered) == ("finished", 4)
    assert [(one.device, one.codes) for one in field.journal.strikes.by_device()] == [
        (ADVERSARY, (ReasonCode.BAD_SIGNATURE,))
    ]
