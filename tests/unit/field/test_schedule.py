"""When rounds begin: for ever, after pauses that survive restarts, with newcomers, and with whoever comes late."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.loopback_federation import Field
from tacit.errors import ConfigError, FieldError
from tacit.field.carriers.loopback import Loopback
from tacit.field.coordinator import Coordinator, RoundRules
from tacit.field.coordinator.attendance import Timing
from tacit.field.coordinator.round_log import RoundRecord
from tacit.field.coordinator.round_policy import MOST_REPEATS, count_used, is_repeated
from tacit.reasons import ReasonCode, RoundReason
from tacit.wire.status import CoordinatorStatus

MINUTE = 60.0


class StoppedError(Exception):
    """Ends rounds that have no end."""


class Time:
    """Time that passes when a program sleeps."""

    def __init__(self) -> None:
        self.now, self.set_by, self.events = 1e6, 0.0, list[tuple[float, Callable[[], None]]]()

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for when, what in [event for event in self.events if event[0] <= self.now]:
            self.events.remove((when, what))
            what()

    @property
    def timing(self) -> Timing:
        return Timing(lambda: self.now, lambda: self.now + self.set_by, self.sleep)


class Room(Loopback):
    """Devices that come and go, and what they were told."""

    def __init__(self, field: Field) -> None:
        super().__init__(field.devices)
        self.here, self.told = set(field.devices), list[CoordinatorStatus]()

    def present(self) -> frozenset[int]:
        return frozenset(self.here)

    def announce(self, status: CoordinatorStatus) -> None:
        self.told.append(status)


def rounds_until(coordinator: Coordinator, last: int) -> list[RoundRecord]:
    """Run rounds until one number is done."""
    seen: list[RoundRecord] = []

    def on_round(happened: RoundRecord) -> None:
        seen.append(happened)
        if happened.number == last:
            coordinator.journal.rounds.note_time(int(coordinator._timing.wall()))
            raise StoppedError

    with pytest.raises(StoppedError):
        coordinator.run(on_round)
    return seen


def rules(**given: object) -> RoundRules:
    return RoundRules.from_options({"secure": None, "readable": True, **given}, "rules")


@pytest.fixture
def field(tmp_path: Path) -> Field:
    return Field(tmp_path, "fpl", people=3)


@pytest.mark.slow
def test_rounds_have_no_end_and_keep_their_pause(field: Field) -> None:
    time, room = Time(), Room(field)
    began = time.now
    assert len(rounds_until(Coordinator(field.journal, rules(pause="6m"), room, time.timing), 7)) == 8
    assert time.now - began == pytest.approx(7 * 6 * MINUTE, abs=5)
    assert rules().pause_seconds == 3600
    assert rules(rounds=3).pause_seconds == 0


@pytest.mark.parametrize(("jump", "waits"), [(0.0, 4 * MINUTE), (-2 * MINUTE, 6 * MINUTE), (9 * MINUTE, 0.0)])
def test_a_restart_keeps_the_pause_and_a_clock_that_was_set_lengthens_it_by_no_more(
    field: Field, jump: float, waits: float
) -> None:
    time, room = Time(), Room(field)
    rounds_until(Coordinator(field.journal, rules(pause="6m"), room, time.timing), 0)
    time.now += 2 * MINUTE  # the coordinator is away
    time.set_by = jump
    began = time.now
    rounds_until(Coordinator(field.journal, rules(pause="6m"), room, time.timing), 1)
    assert time.now - began == pytest.approx(waits, abs=5)


def test_enough_newcomers_begin_a_round_before_its_pause_is_over(field: Field) -> None:
    time, room = Time(), Room(field)
    room.here = {1}
    rounds_until(Coordinator(field.journal, rules(pause="6m"), room, time.timing), 0)
    began = time.now
    time.events = [(began + MINUTE, lambda: room.here.add(2)), (began + 2 * MINUTE, lambda: room.here.add(3))]
    rounds_until(Coordinator(field.journal, rules(pause="6m", newcomers=2), room, time.timing), 1)
    assert time.now - began == pytest.approx(2 * MINUTE, abs=5)


@pytest.mark.slow
def test_a_quorum_is_waited_for_without_end_and_the_missing_are_counted(field: Field) -> None:
    time, room = Time(), Room(field)
    room.here = set()
    time.events = [(time.now + 120 * MINUTE, lambda: room.here.update({1, 2, 3}))]
    (happened,) = rounds_until(Coordinator(field.journal, rules(quorum=3), room, time.timing), 0)
    assert (happened.state, happened.answered) == ("finished", 3)
    assert room.told[0] == CoordinatorStatus("waiting", 0, 3)
    assert room.told[0].missing == 3
    assert room.told[-1].phase == "round"
    room.here = set()
    with pytest.raises(FieldError):
        Coordinator(field.journal, rules(quorum=3, patience="1m", pause=0), room, time.timing).run()


def test_a_late_device_gets_the_model_at_once(field: Field) -> None:
    time, room = Time(), Room(field)
    room.here = {1, 2}
    late = field.devices[3]
    coordinator = Coordinator(field.journal, rules(pause="6m"), room, time.timing)
    assert late.membership is not None

    def is_served() -> None:
        assert late.membership is not None
        assert late.membership.model() is not None, "a second after it came"
        assert late.recommend(3)

    time.events = [(time.now + MINUTE, lambda: room.here.add(3)), (time.now + MINUTE + 1, is_served)]
    assert [happened.answered for happened in rounds_until(coordinator, 1)] == [2, 3]
    assert not time.events


def test_after_the_last_round_every_device_that_connects_gets_the_model(field: Field) -> None:
    time, room = Time(), Room(field)
    room.here = {1, 2}
    coordinator = Coordinator(field.journal, rules(rounds=1), room, time.timing)
    coordinator.run()
    assert room.told[-1].phase == "finished"

    def end() -> None:
        raise StoppedError

    time.events = [(time.now + MINUTE, lambda: room.here.add(3)), (time.now + 2 * MINUTE, end)]
    with pytest.raises(StoppedError):
        coordinator.keep_distributing()
    assert field.devices[3].recommend(3)


def test_no_round_is_readable_unless_the_operator_allows_it(field: Field) -> None:
    for given in ({"secure": None}, {"robust": {"rule": "median"}}):
        with pytest.raises(ConfigError, match="readable"):
            RoundRules.from_options(given, "rules")
    time, room = Time(), Room(field)
    with pytest.raises(FieldError) as ended:
        Coordinator(field.journal, RoundRules(patience=5.0), room, time.timing).run()
    assert ended.value.code == ReasonCode.SECURE_QUORUM_MISSED
    assert room.told[-1] == CoordinatorStatus("waiting", 3, 13)
    assert not field.journal.rounds.records()
    assert not any(device.ledger.list() for device in field.devices.values())


def test_devices_refuse_readable_rounds_that_their_users_did_not_allow(field: Field) -> None:
    field.devices[1].change(lambda before: before.model_copy(update={"masked_only": True}))
    (happened,) = rounds_until(Coordinator(field.journal, rules(), Room(field), Time().timing), 0)
    assert (happened.answered, happened.lost) == (2, 1)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("90s", 90.0), ("30m", 1800.0), ("6h", 21_600.0), ("2d", 172_800.0), (7, 7.0), ("1.5h", 5400.0)],
)
def test_durations_are_seconds_or_have_a_unit(given: object, seconds: float) -> None:
    assert rules(pause=given).pause == seconds


@pytest.mark.parametrize("given", ["h", "six hours", "-1h", "400d", "1w", ""])
def test_other_durations_are_refused(given: str) -> None:
    with pytest.raises(ConfigError):
        rules(pause=given)


REASONS = {
    ReasonCode.TOO_MANY_DROPOUTS: {"left": 2, "phase": "vectors", "needed": 3},
    ReasonCode.COORDINATOR_INTERRUPTED: {},
    ReasonCode.THIN_SUM: {"needed": 4, "share": 0.1},
    ReasonCode.ENOUGH_DEVICES: {"eligible": 5, "needed": 5},
}


def record(number: int, code: ReasonCode, state: str = "abandoned") -> RoundRecord:
    return RoundRecord(number, state, 5, 0, 0, 0, 0, 0, 0.0, masked=1, reason=RoundReason(code, REASONS[code]))


def test_sums_that_a_loss_ended_are_repeated_and_not_used_up() -> None:
    lost, thin = ReasonCode.TOO_MANY_DROPOUTS, ReasonCode.THIN_SUM
    done = record(0, ReasonCode.ENOUGH_DEVICES, "finished")
    assert count_used([done, record(1, lost), record(2, ReasonCode.COORDINATOR_INTERRUPTED)]) == 1
    assert is_repeated([done, record(1, lost)])
    assert not is_repeated([done])
    assert not is_repeated([])
    assert count_used([record(0, thin)]) == 1
    assert not is_repeated([record(0, thin)])
    failures = [record(number, lost) for number in range(MOST_REPEATS)]
    assert count_used(failures) == 1, "a run ends all the same"
    assert not is_repeated(failures), "and the pause is kept"
