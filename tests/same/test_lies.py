"""One lying device among many, under masks: rounds go on, it is named, and honest devices lose nothing.

Without a guarantee devices are summed in batches. An adversary that shows itself before its first vector is in no
batch. One that lies later, before a vector, is revoked, and that ends its batch: those who need not stay with it go on
in another. With a guarantee rounds go on without it at once.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.loopback_federation import Field, private
from helpers.lying_devices import LIES, VECTORS, LyingDevice
from helpers.town_federation import BOLD, PI
from tacit.errors import FieldError
from tacit.field.coordinator import Coordinator, RoundRules
from tacit.field.coordinator.round_log import RoundRecord
from tacit.field.device import Sharing
from tacit.protocols.secure_aggregation import DevicePolicy
from tacit.reasons import ReasonCode

pytestmark = pytest.mark.slow

ADVERSARY, SMALL = 2, DevicePolicy(n_min=3, k_min=2, cool_down=0, corrupted=0.0)
USUAL = DevicePolicy(cool_down=0)
FALSE_SHARES = "false shares, and silence at the end"


def in_batches(folder: Path, people: int, policy: DevicePolicy) -> Field:
    field = Field(folder, "fed-svd", people=people)
    for device in field.devices.values():
        device.share(Sharing(pi=PI, coin="row", masked_only=True, device_policy=policy))
    return field


def with_a_guarantee(folder: Path, people: int) -> Field:
    return private(folder, "fed-svd", people, participations=1000, dropped=0.3, corrupted=0.0)


def hold_rounds(field: Field, carrier: LyingDevice, policy: DevicePolicy, rounds: int) -> list[RoundRecord]:
    """Hold rounds with an adversary; fewer if no device can be asked any more."""
    for device in field.devices.values():
        device._store.connection.execute("PRAGMA synchronous = OFF")
    rules = {"rounds": 2 * rounds, "device_policy": policy.model_dump(), "patience": 0.05}
    coordinator, happened = Coordinator(field.journal, RoundRules.from_options(rules, "rules"), carrier), []
    for _ in range(rounds):
        try:
            happened.append(coordinator.round())
        except FieldError as error:
            if error.code != ReasonCode.BATCHES_INCOMPLETE:
                raise
            break
    return happened


def named(field: Field) -> dict[int, tuple[ReasonCode, ...]]:
    return {strikes.device: strikes.codes for strikes in field.journal.strikes.by_device()}


def check_from_the_start(folder: Path, lie: str, people: int, policy: DevicePolicy, rounds: int) -> None:
    field = in_batches(folder, people, policy)
    lies, code = LIES[lie]
    happened = hold_rounds(field, LyingDevice(field, lies, ADVERSARY), policy, rounds)
    assert named(field) == ({} if code is None else {ADVERSARY: (code,)})
    if lie == FALSE_SHARES:
        assert {one.state for one in happened} == {"abandoned"}, "its batch may not be summed without it"
        return
    assert [one.state for one in happened] == ["finished"] * rounds
    batched = {device.number for device in field.journal.members.devices() if device.batch}
    is_in = max(lies) > VECTORS or lie == "boxes that nobody can open"  # its vector was right
    assert batched == set(field.devices) - (set() if is_in else {ADVERSARY})
    assert [one.answered for one in happened] == [len(batched)] * rounds


def check_with_a_guarantee(folder: Path, lie: str, people: int, rounds: int) -> None:
    field, late = with_a_guarantee(folder, people), 1
    lies, code = LIES[lie]
    carrier = LyingDevice(field, lies, ADVERSARY, since=late)
    happened = hold_rounds(field, carrier, BOLD, rounds)
    assert named(field) == ({} if code is None else {ADVERSARY: (code,)})
    assert happened[0].answered == people
    lost = 1 if lie == FALSE_SHARES else 0
    assert [one.state for one in happened[1:]] == ["abandoned"] * lost + ["finished"] * (rounds - 1 - lost)
    if code is not None:
        assert carrier.times == len(lies), "it is not asked again"
        assert {(one.asked, one.answered) for one in happened[2:]} == {(people - 1, people - 1)}
    assert all(field.devices[number].budgets.list() for number in field.devices)


@pytest.mark.parametrize("lie", LIES)
def test_who_lies_from_the_start_is_named_and_rounds_go_on(tmp_path: Path, lie: str) -> None:
    check_from_the_start(tmp_path, lie, 5, SMALL, 3)


@pytest.mark.parametrize("lie", LIES)
def test_with_a_guarantee_who_lies_later_is_named_and_not_asked_again(tmp_path: Path, lie: str) -> None:
    check_with_a_guarantee(tmp_path, lie, 5, 4)


@pytest.mark.parametrize("lie", ["an advert that it did not sign", "a vector with another tag"])
def test_a_batch_with_a_late_liar_is_over_and_others_continue_without_it(tmp_path: Path, lie: str) -> None:
    """Whoever leaves one out could be a coordinator that wants the difference of two sums: some have to stay behind."""
    four = SMALL.model_copy(update={"n_min": 4})  # of nine devices in one batch four have to stay
    field = in_batches(tmp_path, 9, four)
    lies, code = LIES[lie]
    happened = hold_rounds(field, LyingDevice(field, lies, ADVERSARY, since=1), four, 7)
    assert [one.state for one in happened] == ["finished", *["abandoned"] * 3, *["finished"] * 3]
    assert named(field) == {ADVERSARY: (code,)}
    devices = field.journal.members.devices()
    assert [device.number for device in devices if device.revoked] == [ADVERSARY]
    went_on = {device.number for device in devices if device.cohorts == 2}
    assert {one.asked for one in happened[4:]} == {one.answered for one in happened[4:]} == {len(went_on)}
    behind = set(field.devices) - went_on - {ADVERSARY}
    assert len(behind) >= four.k_min
    assert len(went_on) >= four.n_min
    for number in behind:  # each device goes by it itself
        history = field.devices[number]._masked._machine_of(field.federation, four).history
        assert {past.stays for past in history.sums if past.participants} == {True}


@pytest.mark.fuzz
@pytest.mark.parametrize("lie", LIES)
def test_a_hundred_rounds_of_thirteen_with_a_adversary(tmp_path: Path, lie: str) -> None:
    check_from_the_start(tmp_path / "batches", lie, 13, USUAL, 100)
    check_with_a_guarantee(tmp_path / "guarantee", lie, 13, 100)
