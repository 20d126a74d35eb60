"""Quality as a federation may know it: one number over many users, and none of a single one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers.loopback_federation import CARE, KNOWN, Egress, Field, masked
from helpers.town_federation import BOLD, PI
from tacit.field.coordinator.round_stats import SummedQuality
from tacit.field.device import Device, Sharing
from tacit.field.device.history import HistoryEntry
from tacit.field.device.quality import SHOWN

pytestmark = pytest.mark.slow

TWO_STAGES = {**CARE, "two_stage": True}


def add_new(field: Field, device: Device, place: int) -> Any:
    """Let a user do something that stands at a place of their list; return it."""
    item = device.recommend(field.catalog.n_items)[place].item
    device.history.add([HistoryEntry(item)], field.catalog)
    return item


def after_a_round(folder: Path) -> Field:
    """A field whose devices have learnt once and hold the model of that round."""
    field = masked(folder)
    field.run(Egress(field), rounds=1, **KNOWN, secure=TWO_STAGES)
    return field


def qualities(field: Field, care: dict[str, Any] | None = None) -> list[SummedQuality | None]:
    field.run(Egress(field), rounds=2, **KNOWN, secure=care or TWO_STAGES)
    courses = field.journal.rounds.stats()
    return [courses[number].quality for number in sorted(courses)]


def test_the_sum_is_of_what_each_device_measured_before_it_learnt(tmp_path: Path) -> None:
    field = after_a_round(tmp_path)
    places = [0, SHOWN - 1, SHOWN, 15, 2]
    for device, place in zip(field.devices.values(), places, strict=True):
        add_new(field, device, place)
        with device._store.transaction():  # as a user who came from another federation, with another catalogue
            device._store.put_json("hidden", ["an item that is not here"])
    assert qualities(field) == [None, SummedQuality(3, 5)], (
        "nothing is new in a first round; then three of five were listed"
    )
    assert all(entry.measured for device in field.devices.values() for entry in device.ledger.list(since=2))
    field.run(Egress(field), rounds=3, **KNOWN, secure=TWO_STAGES)
    assert field.journal.rounds.stats(2)[2].quality is None, "what was learnt from is not measured again"


def test_an_item_that_came_back_is_not_new(tmp_path: Path) -> None:
    field = after_a_round(tmp_path)
    for device in field.devices.values():
        again = device.history.list()[0]
        device.history.remove(again.item, field.catalog)
        device.history.add([again], field.catalog)
    assert qualities(field) == [None, None]


@pytest.mark.parametrize(
    "decided",
    [{"pi": 0.0}, {"measure": False}, {"never": True}, {"pi": 1e-9, "coin": "once"}],
    ids=["nothing is shared", "measuring is off", "never this item", "drawn once, and kept back"],
)
def test_no_user_is_measured_without_consent(tmp_path: Path, decided: dict[str, Any]) -> None:
    field = after_a_round(tmp_path)
    for number, device in field.devices.items():
        item = add_new(field, device, 0)
        if number <= 2:
            never = {"never_items": (item,)} if "never" in decided else decided
            device.share(Sharing(**{"pi": PI, "coin": "row", "masked_only": True, "device_policy": BOLD, **never}))
    assert qualities(field) == [None, SummedQuality(3, 3)]
    silent = [entry.measured for number in (1, 2) for entry in field.devices[number].ledger.list()]
    assert not any(silent)


def test_too_few_people_are_not_read(tmp_path: Path) -> None:
    """One user alone has something new: that is counted, and the answer is not asked for."""
    field = after_a_round(tmp_path)
    add_new(field, field.devices[3], 0)
    assert qualities(field) == [None, None]
    first, second = field.devices[3].ledger.list(since=2)
    assert first.measured, "that there is one"
    assert not second.measured, "and not the answer itself"


def test_nothing_is_measured_in_one_stage_or_in_the_clear(tmp_path: Path) -> None:
    field = after_a_round(tmp_path)
    for device in field.devices.values():
        add_new(field, device, 0)
    assert qualities(field, {**CARE, "two_stage": False}) == [None, None]
    assert not any(entry.measured for device in field.devices.values() for entry in device.ledger.list())


def test_what_is_lost_between_the_stages_is_not_asked_for(tmp_path: Path) -> None:
    field = after_a_round(tmp_path)
    for device in field.devices.values():
        add_new(field, device, 0)

    class Leaving(Egress):
        """One device answers to the end of the first stage, and to nothing after it."""

        def ask(self, requests: Any, seconds: float, most_bytes: int) -> Any:
            self.turns = getattr(self, "turns", 0) + 1
            some = requests if self.turns <= 5 else {who: turn for who, turn in requests.items() if who != 1}
            return super().ask(some, seconds, most_bytes)

    field.run(Leaving(field), rounds=2, **KNOWN, secure={**TWO_STAGES, "spare": 1})
    course = field.journal.rounds.stats(1)[1]
    assert course.quality == SummedQuality(4, 4)
    told = [(phase.stage, phase.name, phase.asked, phase.answered, phase.lost) for phase in course.phases]
    names = ["adverts", "shares", "vectors", "confirmations", "unmaskings"]
    assert told == [
        (0, "waiting", 0, 0, 0),
        *[(1, name, 5, 5, 0) for name in names],
        (2, "adverts", 5, 4, 1),
        *[(2, name, 4, 4, 0) for name in names[1:]],
        (0, "applying", 0, 0, 0),
    ]
    happened = field.journal.rounds.records()[1]
    assert sum(phase.bytes_up for phase in course.phases) == happened.bytes_up
    assert sum(phase.bytes_down for phase in course.phases) == happened.bytes_down
