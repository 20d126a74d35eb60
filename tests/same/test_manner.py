"""Rounds are held under masks as soon as there are enough devices, and never readable again after that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from same_field import PI, founded, journal_of, town
from test_loopback import Field

from tacit.coordinator import Coordinator, Journal, RoundRules
from tacit.coordinator.journal import Enrolled
from tacit.coordinator.manner import Manner, enough, is_like, manner, needed
from tacit.device import Sharing
from tacit.errors import ConsentError, FieldError
from tacit.field.loopback import Loopback
from tacit.privacy.secure import Guards
from tacit.protocols.robust import RobustConfig
from tacit.runtimes.wire import Request, write_request

EASY = Guards(n_min=4, k_min=1, cool_down=2)
"""What four people may agree on, so that five make a sum."""


def held(folder: Path, guards: Guards = EASY) -> Field:
    field = Field(folder, "fpl")
    for device in field.devices.values():
        device.share(Sharing(pi=PI, guards=guards))
    return field


@pytest.mark.slow
def test_thirteen_devices_with_usual_settings_are_summed_without_a_word_of_configuration(tmp_path: Path) -> None:
    field = Field(tmp_path, "fed-gmf", people=13)
    field.run(rounds=1)
    (happened,) = field.journal.rounds()
    assert (happened.state, happened.masked, happened.answered) == ("finished", 1, 13)
    assert happened.why == "13 rested devices are here, a sum under masks takes 13"
    for device in field.devices.values():
        assert device.sharing.guards == Guards()
        assert [entry.masked for entry in device.ledger.list()] == [True, True]
        assert device.sharing.masked_only


def test_too_few_devices_are_read_and_it_is_said(tmp_path: Path) -> None:
    field = held(tmp_path, Guards())
    field.run(rounds=2)
    rounds = field.journal.rounds()
    assert [(r.state, r.masked) for r in rounds] == [("finished", 0)] * 2
    assert {r.why for r in rounds} == {"5 devices are here, a sum under masks takes 13"}
    assert not any(device.sharing.masked_only for device in field.devices.values())


def test_enough_devices_are_summed_under_masks_and_rest_and_are_not_read_again(tmp_path: Path) -> None:
    field = held(tmp_path)
    coordinator = field.run(rounds=7, guards=EASY.model_dump())
    rounds = field.journal.rounds()
    assert [r.state for r in rounds] == ["finished", "rested", "rested"] * 2 + ["finished"]
    assert [r.masked for r in rounds] == [1, 0, 0] * 2 + [1]
    assert "0 of 5 devices are rested" in rounds[1].why
    for device in field.devices.values():
        entries = device.ledger.list()
        assert {entry.round for entry in entries} == {0, 3, 6}
        assert all(entry.masked and entry.state == "sent" for entry in entries)
        assert device.sharing.masked_only, "after her first sum she is read no more"
    before = coordinator.shared["items"].copy()
    back = Coordinator(field.journal, RoundRules(rounds=9, secure=None), Loopback(field.devices))
    happened = back.round()
    assert (happened.state, happened.answered, happened.why) == ("abandoned", 0, "rounds.secure is off")
    assert np.array_equal(back.shared["items"], before)
    device = field.devices[1]
    asked = write_request(field.federation, Request(8, field.federation.sent(back.shared), True, 6))
    with pytest.raises(ConsentError, match="nothing but under masks"):
        device.learn(asked)
    device.share(device.sharing.model_copy(update={"masked_only": False}))  # she may allow it, and it stays allowed
    assert device.release(device.learn(asked))
    field.journal.abandon(happened.__class__(8, "abandoned", 0, 0, 0, 0, 0, 0, 0.0))
    field.run(rounds=10, guards=EASY.model_dump())
    assert not device.sharing.masked_only


def test_a_sum_that_would_show_too_little_is_not_made_and_rounds_stay_readable(tmp_path: Path) -> None:
    guards = Guards(n_min=4, k_min=3, cool_down=2)
    field = held(tmp_path, guards)
    field.run(rounds=3, guards=guards.model_dump())
    rounds = field.journal.rounds()
    assert [(r.state, r.masked) for r in rounds] == [("abandoned", 1), ("finished", 0), ("finished", 0)]
    assert "rows that 4 people speak of" in rounds[0].why
    assert "too few speak of the same items" in rounds[1].why
    for device in field.devices.values():
        assert not device.sharing.masked_only
        assert [entry.masked for entry in device.ledger.list()] == [True, False, False]


def test_masks_stay_when_devices_go(tmp_path: Path) -> None:
    field = held(tmp_path)
    rules: dict[str, Any] = {"rounds": 4, "guards": EASY.model_dump(), "patience": 0.1}
    field.run(**{**rules, "rounds": 1})
    few = Loopback({number: field.devices[number] for number in (1, 2, 3, 4)})
    with pytest.raises(FieldError, match="Only 4 of 5 devices") as waited:
        field.run(few, **rules)
    assert "under masks" in waited.value.hint
    assert all(entry.masked for device in field.devices.values() for entry in device.ledger.list())


# --- with many devices: the coordinator's side alone ------------------------------------------------------------------


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    _, catalog = town()
    return journal_of(tmp_path, founded("fpl", catalog), catalog)


def enrolled(journal: Journal, n_devices: int) -> list[Enrolled]:
    for number in range(n_devices):
        journal.add(bytes([number]), bytes([number]) * 32)
    return journal.devices()


def decided(journal: Journal, members: list[Enrolled], number: int = 0, **rules: Any) -> Manner:
    coordinator = Coordinator(journal, RoundRules.checked(rules, "rules"), Loopback({}))
    return manner(coordinator.rules, journal, number, members, coordinator._draw(number))


def numbers(found: Manner) -> set[int]:
    return {device.number for device in found.asked}


def test_who_is_asked_is_rested_and_drawn_alike_each_time(journal: Journal) -> None:
    members = enrolled(journal, 80)
    first = decided(journal, members, clients_per_round=13)
    assert first.care is not None
    assert (len(first.asked), first.care.n_min, first.care.k_min, first.care.spare) == (13, 10, 3, 1)
    assert numbers(first) == numbers(decided(journal, members, clients_per_round=13))
    journal.begin(0, numbers(first))
    journal.summed(0, 2, numbers(first))
    second = decided(journal, members, 1, clients_per_round=13)
    assert not numbers(second) & numbers(first)
    assert numbers(decided(journal, members, 6)) == {device.number for device in members}, "five rounds of rest"
    assert len(numbers(decided(journal, members, 5))) == 80 - 13


def test_nearly_the_same_people_are_not_summed_twice(journal: Journal) -> None:
    members = enrolled(journal, 24)
    everybody = {device.number for device in members}
    journal.begin(0, everybody)
    journal.summed(0, 1, everybody)
    journal.summed(0, 2, everybody - {7})  # one was lost in the second stage
    for number in range(6, 30):
        found = numbers(decided(journal, members, number))
        assert not is_like(frozenset(found), journal.sums(), Guards())
        assert len(found) >= enough(Guards())
    few = [device for device in members if device.number <= 14]
    journal.begin(6, {device.number for device in few})
    journal.summed(6, 1, {device.number for device in few})
    fewer = decided(journal, few[:13], 12)
    assert not fewer.asked
    assert "differ from an earlier one by a few people" in fewer.why
    assert numbers(decided(journal, few, 12)) == {device.number for device in few}, "the very same people may be"


def test_rules_that_exclude_masks_and_devices_that_cannot(journal: Journal) -> None:
    members = enrolled(journal, 30)
    robust = decided(journal, members, robust=RobustConfig(rule="median").model_dump())
    assert (robust.care, len(robust.asked), robust.why) == (None, 30, "a robust rule reads the sums of groups")
    assert decided(journal, members, secure=None).care is None
    assert decided(journal, members[:12]).care is None
    journal.try_later(28)
    assert decided(journal, members).care is None, "another try takes a quarter more"
    journal.try_later(13)
    assert decided(journal, members, clients_per_round=13).care is None, "more would have to be asked"
    assert decided(journal, members).care is not None
    assert needed(RoundRules(), journal) == 1
    journal.summed(0, 2, [1, 2])
    assert decided(journal, members, 1).care is not None
    assert needed(RoundRules(), journal) == 13
    assert not decided(journal, members, 1, guards={"most_rounds": 1, "n_min": 23}).asked, "two have had enough"
