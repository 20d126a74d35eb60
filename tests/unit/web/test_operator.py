"""The operator's page: what happened, in counts; and no way from it to a single device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from helpers.browser import barriers, opened
from helpers.page_visitor import Visitor
from helpers.small_federation import CATALOG, first_shared, founded
from tacit.field.coordinator import CoordinatorJournal, RoundRules
from tacit.field.coordinator.journal import ModelVersion
from tacit.field.coordinator.round_log import RoundRecord
from tacit.field.coordinator.round_stats import PhaseCounts, RoundStats, SummedQuality
from tacit.protocols.secure_aggregation.two_stage import SecureAggregationConfig
from tacit.reasons import ReasonCode, RoundReason, describe_reason
from tacit.web.operator import FederationStatus, operator_page
from tacit.web.server import serving
from tacit.web.words import format_bytes

pytestmark = pytest.mark.slow

RULES = RoundRules(rounds=50, minimum=2, quorum=3, readable=True)
COOL_DOWN = RoundReason(ReasonCode.COOL_DOWN, {"eligible": 3, "here": 24, "needed": 13, "cool_down": 5})
HAPPENED = (
    RoundRecord(0, "finished", 5, 5, 0, 0, 12_345, 67_890, 1.25),
    RoundRecord(1, "finished", 5, 2, 1, 2, 6_000, 67_890, 2.5),
    RoundRecord(2, "abandoned", 5, 1, 0, 4, 3_000, 67_890, 60.0),
)
MASKED = RoundRules(rounds=50, secure=SecureAggregationConfig(n_min=5))
CALM = [RoundRecord(0, "finished", 5, 5, 0, 0, 12_345, 67_890, 1.25, masked=1)]


def kept(path: Path, keys: list[bytes], counted: list[int], revoked: int) -> None:
    """Write a journal of three rounds."""
    journal = CoordinatorJournal.create(path, founded(), CATALOG, seed=1)
    numbers = [journal.members.add(key) for key in keys]
    shared = first_shared(founded())
    for happened in HAPPENED:
        if happened.state == "finished":
            course = RoundStats((PhaseCounts(0, "answers", 5, 5, 0, 0, 1, 2, 0.5),), SummedQuality(2, 4))
            journal.finish(happened, shared, [numbers[at] for at in counted], course)
        else:
            journal.rounds.abandon(happened)
    journal.members.revoke(numbers[revoked])
    journal.close()


def masked_course(lost: int, quality: SummedQuality | None) -> RoundStats:
    """A round of a secure sum of ten people, some of whom are lost when vectors are sent."""
    names = ("adverts", "shares", "vectors", "confirmations", "unmaskings")
    found, asked = [PhaseCounts(0, "waiting", seconds=0.5)], 10
    for stage in (1, 2):
        for name in names:
            gone = lost if (stage, name) == (1, "vectors") else 0
            found.append(PhaseCounts(stage, name, asked, asked - gone, 0, 0, 1000, 2000, 0.25))
            asked -= gone
    return RoundStats((*found, PhaseCounts(0, "applying", seconds=0.125)), quality)


@contextmanager
def looked_at(path: Path, present: int = 5) -> Iterator[Visitor]:
    with serving(operator_page(path, RULES, lambda: present)) as address:
        yield Visitor(address)


def test_devices_with_strikes_are_listed_and_no_others(tmp_path: Path) -> None:
    kept(tmp_path / "j.db", [b"a" * 32, b"b" * 32, b"c" * 32], [0, 1], 2)
    with looked_at(tmp_path / "j.db") as visitor:
        assert 'id="strikes"' not in visitor.get("/").html
        journal = CoordinatorJournal.open(tmp_path / "j.db")
        journal.strikes.note(0, {2: ReasonCode.BAD_TAG})
        journal.strikes.note(1, {2: ReasonCode.BAD_SHARE})
        journal.strikes.note(1, {2: ReasonCode.BAD_SHARE})
        journal.close()
        page = visitor.get("/")
    assert "device 2 2 rounds, last in round 1: bad-share, bad-tag" in page.text
    assert "device 1" not in page.text


def test_the_page_shows_what_the_journal_holds(tmp_path: Path) -> None:
    kept(tmp_path / "j.db", [b"a" * 32, b"b" * 32, b"c" * 32], [0, 1], 2)
    with looked_at(tmp_path / "j.db") as visitor:
        page = visitor.get("/")
    for happened in HAPPENED:
        row = f"{happened.number} {happened.asked} {happened.answered} {happened.refused} {happened.lost} 0"
        assert row in page.text
    assert "after round 1" in page.text, "an abandoned round leaves no model"
    assert "2 enrolled, 1 revoked" in page.text
    assert "8 of 15 asked for" in page.text
    assert "Round 2 was abandoned" in page.text
    assert "set by each user" in page.text


def test_phases_quality_and_versions_are_those_of_the_journal(tmp_path: Path) -> None:
    kept(tmp_path / "j.db", [b"a" * 32], [0], 0)
    journal = CoordinatorJournal.open(tmp_path / "j.db")
    for number, (lost, hits) in enumerate(((4, 3), (0, 5)), start=3):
        happened = RoundRecord(number, "finished", 10, 10 - lost, 0, lost, 10_000, 20_000, 3.0)
        journal.finish(happened, first_shared(founded()), [], masked_course(lost, SummedQuality(hits, 8)))
    newest = journal.versions()[0]
    journal.close()
    with looked_at(tmp_path / "j.db") as visitor:
        page, third = visitor.get("/"), visitor.get("/?round=3")
        assert visitor.get("/?round=99").body == page.body, "there is no such round"
    assert "vectors devices learn and send masked vectors 20 16 0 4 20 %" in page.text
    assert "vectors devices learn and send masked vectors 10 6 0 4 40 %" in third.text
    assert "Stage 2: adding rows adverts the model is sent" in page.text
    assert "The phases of round 3" in third.text
    assert "12 of 24 cases" in page.text
    assert f"after round 4 {len_of(newest)} · fingerprint {newest.digest[:16]} in force" in page.text


def len_of(version: ModelVersion) -> str:
    return format_bytes(version.bytes)


def test_where_many_are_lost_is_reported_with_what_to_do() -> None:
    lost = [RoundRecord(number, "finished", 10, 4, 0, 6, 1, 1, 1.0, masked=1) for number in range(3)]
    courses = {number: masked_course(6, None) for number in range(3)}
    standing = FederationStatus(founded(), 16, RoundRules(secure=SecureAggregationConfig()), lost, 10, 0, 10, courses)
    (alert,) = standing.alerts()
    assert "Most were lost in stage 1: counting participants, vectors." in alert.what
    assert "rounds.deadline" in alert.todo


def test_personal_parameters_of_a_sum_are_not_shown(tmp_path: Path) -> None:
    kept(tmp_path / "j.db", [b"a" * 32], [0], 0)
    journal = CoordinatorJournal.open(tmp_path / "j.db")
    alone = {"left": 2, "needed": 7, "phase": "vectors", "participant": 7_654_321}
    fewer = RoundReason(ReasonCode.TOO_FEW_NEIGHBOURS, alone)
    journal.rounds.abandon(
        RoundRecord(3, "abandoned", 5, 4, 0, 1, 0, 0, 60.0, masked=1, reason=fewer), masked_course(1, None)
    )
    broken = RoundReason(ReasonCode.BROKEN_COMMITMENT, {"sender": 7_654_321})
    journal.rounds.abandon(RoundRecord(4, "abandoned", 5, 4, 0, 1, 0, 0, 60.0, masked=1, reason=broken))
    journal.close()
    with looked_at(tmp_path / "j.db") as visitor:
        for path in ("/", "/?round=3", "/?round=4"):
            assert "7654321" not in visitor.get(path).body.decode().replace(",", "")
        assert describe_reason(fewer).what.replace("'", "&#39;") in visitor.get("/?round=3").body.decode()
        assert describe_reason(broken).what in visitor.get("/").text.replace("’", "'")


def test_a_sentence_of_an_earlier_version_is_not_shown() -> None:
    told = "nothing was unmasked: Person 7654321 gave a wrong share."
    old = RoundRecord(
        0, "abandoned", 5, 4, 0, 1, 0, 0, 60.0, masked=1, reason=RoundReason(ReasonCode.LEGACY, {"text": told})
    )
    standing = FederationStatus(founded(), 16, RULES, [old], 5, 0, 5)
    assert not [alert for alert in standing.alerts() if "7654321" in alert.what + alert.todo]


def test_rounds_that_are_skipped_are_reported_with_their_reason(tmp_path: Path) -> None:
    kept(tmp_path / "j.db", [b"a" * 32], [0], 0)
    journal = CoordinatorJournal.open(tmp_path / "j.db")
    for number in range(3, 9):
        journal.rounds.abandon(RoundRecord(number, "skipped", 0, 0, 0, 0, 0, 0, 0.0, reason=COOL_DOWN))
    journal.close()
    with looked_at(tmp_path / "j.db") as visitor:
        text = visitor.get("/").text
    assert f"8 no device was asked. {describe_reason(COOL_DOWN).what} skipped" in text
    assert f"6 of the last 9 rounds were skipped: no device was asked. {describe_reason(COOL_DOWN).what}" in text
    assert "rounds.clients_per_round" in text


def test_lists_worse_than_chance_are_an_alert() -> None:
    standing = FederationStatus(founded(), 16, MASKED, CALM, 5, 0, 5, quality=SummedQuality(3, 40))
    assert "3 of 40" in standing.alerts()[0].what


def test_nothing_about_a_single_device_can_be_reached(tmp_path: Path) -> None:
    """Other devices, other answers counted, another one revoked: with the same counts, the page has the same bytes."""
    kept(tmp_path / "one.db", [b"a" * 32, b"b" * 32, b"c" * 32], [0, 1], 2)
    kept(tmp_path / "two.db", [b"x" * 32, b"y" * 32, b"z" * 32], [2, 0], 1)
    pages = []
    for name in ("one.db", "two.db"):
        with looked_at(tmp_path / name) as visitor:
            pages.append([visitor.get(path).body for path in ("/", "/?page=2", "/state")])
            pages[-1] += [visitor.get(f"/?round={number}").body for number in range(3)]
            for path in (
                "/devices",
                "/rounds/1",
                "/rounds/1/devices",
                "/devices/1",
                "/1",
                "/people",
                "/journal.db",
                "/metrics",
            ):
                assert visitor.get(path).status == 404
    assert pages[0] == pages[1]


def test_the_page_changes_when_a_round_is_over(tmp_path: Path) -> None:
    kept(tmp_path / "j.db", [b"a" * 32], [0], 0)
    with looked_at(tmp_path / "j.db") as visitor:
        before = visitor.get("/state").body
        assert visitor.get("/state").body == before
        coordinator = CoordinatorJournal.open(tmp_path / "j.db")
        coordinator.rounds.abandon(RoundRecord(3, "abandoned", 5, 0, 0, 5, 0, 0, 60.0))
        coordinator.close()
        assert visitor.get("/state").body != before


@pytest.mark.parametrize(
    ("rules", "present", "said"),
    [
        (RULES, 2, "2 of 3 devices are here"),
        (RULES, 5, "did not answer"),
        (RoundRules(secure=SecureAggregationConfig(n_min=7)), 6, "6 of 7 devices are here"),
        (RoundRules(minimum=1, readable=True), 5, "single answer"),
    ],
)
def test_alerts_say_what_to_do(rules: RoundRules, present: int, said: str) -> None:
    standing = FederationStatus(founded(), 16, rules, HAPPENED, 5, 0, present)
    told = [alert for alert in standing.alerts() if said in alert.what]
    assert told
    assert all(alert.todo.endswith(".") for alert in standing.alerts())


def test_after_a_sum_it_waits_for_those_whom_a_sum_takes() -> None:
    standing = FederationStatus(founded(), 16, RULES, HAPPENED, 20, 0, 12, settled=True)
    (told,) = (alert for alert in standing.alerts() if "12 of 13 devices are here" in alert.what)
    assert "secure aggregation needs" in told.todo


@pytest.mark.parametrize(
    ("devices", "said"),
    [(600, "Ask 100 of your devices"), (78, "Ask 13 of"), (40, "Ask 13 of"), (40, "from 78 devices on every round")],
)
def test_what_it_says_of_the_cool_down_leads_to_no_sum_that_is_too_small(devices: int, said: str) -> None:
    skipped = [RoundRecord(number, "skipped", 0, 0, 0, 0, 0, 0, 0.0) for number in range(4)]
    standing = FederationStatus(founded(), 16, RULES, skipped, devices, 0, devices, settled=True)
    (told,) = (alert for alert in standing.alerts() if "no device was asked" in alert.what)
    assert said in told.todo


def test_a_secure_sum_is_reported() -> None:
    rules = RoundRules(secure=SecureAggregationConfig(n_min=12, k_min=4))
    standing = FederationStatus(founded(), 16, rules, HAPPENED, 5, 0, 5)
    assert "only their sum can be read (at least 12 participants, at least 4" in dict(standing.terms())["answers"]
    assert "single answer" not in str(standing.alerts())
    auto = dict(FederationStatus(founded(), 16, RoundRules(), HAPPENED, 5, 0, 5).terms())
    assert "when enough devices are connected" in auto["answers"]
    assert "at least 3 users" in auto["quality"]


def test_a_calm_federation_has_no_alerts() -> None:
    assert FederationStatus(founded(), 16, MASKED, CALM, 5, 0, 5).alerts() == []


def test_readable_rounds_are_an_alert_and_so_is_that_they_may_come() -> None:
    (read,) = FederationStatus(founded(), 16, RULES, HAPPENED[:1], 5, 0, 5).alerts()
    assert "rounds.readable" in read.todo
    (allowed,) = FederationStatus(founded(), 16, RULES, [], 5, 0, 5).alerts()
    assert "rounds.readable" in allowed.todo


@pytest.mark.slow
def test_the_page_has_no_barrier_and_follows_the_rounds(browser: Any, tmp_path: Path) -> None:
    kept(tmp_path / "j.db", [b"a" * 32], [0], 0)
    with serving(operator_page(tmp_path / "j.db", RULES, lambda: 5)) as address:
        assert barriers(browser, address, ["/"]) == []
        page = opened(browser, address)
        coordinator = CoordinatorJournal.open(tmp_path / "j.db")
        coordinator.finish(RoundRecord(3, "finished", 5, 5, 0, 0, 1, 1, 1.0), first_shared(founded()), [])
        coordinator.close()
        page.get_by_text("after round 3").first.wait_for(timeout=15_000)
        assert page.complaints == []
        page.context.close()
