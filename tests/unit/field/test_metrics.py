"""A coordinator's numbers, as Prometheus reads them."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from helpers.small_federation import CATALOG, founded
from tacit.errors import FieldError
from tacit.field.coordinator import CoordinatorJournal
from tacit.field.coordinator.round_log import RoundRecord
from tacit.field.coordinator.round_stats import PhaseCounts, RoundStats, SummedQuality

pytest.importorskip("prometheus_client", reason="the field needs prometheus-client")
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_text

from tacit.field.metrics import MetricsServer
from tacit.reasons import ReasonCode, RoundReason

UP = 1_234_567_890_123_457  # bytes: more than a petabyte, and not one of them is rounded away


class ThreePresent:
    """A carrier that reaches three devices and is asked for nothing else."""

    def present(self) -> frozenset[int]:
        return frozenset({1, 2, 3})

    def ask(self, requests: Mapping[int, bytes], seconds: float, most_bytes: int) -> Generator[tuple[int, bytes]]:
        raise AssertionError("metrics ask no device")

    def tell(self, messages: Mapping[int, bytes], seconds: float) -> None:
        raise AssertionError("metrics tell no device anything")


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[CoordinatorJournal]:
    made = CoordinatorJournal.create(tmp_path / "journal.db", founded(), CATALOG)
    yield made
    made.close()


@contextmanager
def served(journal: CoordinatorJournal) -> Iterator[str]:
    server = MetricsServer(journal.path, ThreePresent(), "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.port}/metrics"
    finally:
        server.close()


def answered(url: str, accept: str = "text/plain") -> tuple[str, str]:
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Return the values by name and labels, labels in the order of their names."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in plain_text(text)
        for sample in family.samples
    }


def test_metrics_are_about_rounds_and_never_about_people(journal: CoordinatorJournal) -> None:
    journal.members.add(b"a secret key", b"an identity")
    course = RoundStats(
        (PhaseCounts(1, "shares", 5, 4, 1, 0, 600, 7, 0.5), PhaseCounts(0, "applying", seconds=0.25)),
        SummedQuality(2, 4),
    )
    journal.finish(RoundRecord(0, "finished", 5, 4, 1, 0, UP, 5000, 1.5), {}, [1], course)
    journal.rounds.abandon(RoundRecord(1, "abandoned", 5, 1, 0, 4, 10, 5000, 60.0))
    cool = RoundReason(ReasonCode.COOL_DOWN, {"eligible": 2, "here": 5, "needed": 13, "cool_down": 5})
    journal.rounds.abandon(RoundRecord(2, "skipped", 0, 0, 0, 0, 0, 0, 0.0, reason=cool))
    journal.rounds.abandon(RoundRecord(3, "abandoned", 5, 0, 0, 0, 0, 0, 0.0, masked=1))
    with served(journal) as url:
        kind, text = answered(url)
    assert kind.startswith("text/plain; version=")
    found = samples(text)
    for name, value in {
        ("tacit_rounds_total", "finished"): 1,
        ("tacit_rounds_total", "abandoned"): 2,
        ("tacit_rounds_total", "skipped"): 1,
        ("tacit_round_reasons_total", "cool-down", "skipped"): 1,
        ("tacit_masked_rounds_total",): 1,
        ("tacit_asked_total",): 15,
        ("tacit_answered_total",): 5,
        ("tacit_refused_total",): 1,
        ("tacit_lost_total",): 4,
        ("tacit_called_off_total",): 0,
        ("tacit_bytes_total", "up"): UP + 10,
        ("tacit_bytes_total", "down"): 10_000,
        ("tacit_round_seconds_sum",): 61.5,
        ("tacit_round_seconds_count",): 4,
        ("tacit_last_round_seconds",): 0.0,
        ("tacit_phase_answered_total", "shares", "1"): 4,
        ("tacit_phase_seconds_total", "applying", "0"): 0.25,
        ("tacit_quality_hits_total",): 2,
        ("tacit_quality_people_total",): 4,
        ("tacit_devices", "enrolled"): 1,
        ("tacit_devices", "revoked"): 0,
        ("tacit_devices", "present"): 3,
    }.items():
        assert found[name] == value
    assert all(name.startswith("tacit_") for name, *_ in found)
    assert not any(word in text for word in ("secret", "identity", "2 of 5", "python", "process_"))


def test_every_metric_has_a_type_and_a_help_also_before_the_first_round(journal: CoordinatorJournal) -> None:
    with served(journal) as url:
        families = {family.name: family for family in plain_text(answered(url)[1])}
    assert all(family.documentation and family.type != "unknown" for family in families.values())
    assert {name: families[name].type for name in ("tacit_rounds", "tacit_round_seconds", "tacit_devices")} == {
        "tacit_rounds": "counter",
        "tacit_round_seconds": "summary",
        "tacit_devices": "gauge",
    }


def test_numbers_are_read_anew_each_time(journal: CoordinatorJournal) -> None:
    with served(journal) as url:
        assert samples(answered(url)[1])["tacit_asked_total",] == 0
        journal.rounds.abandon(RoundRecord(0, "abandoned", 7, 0, 0, 7, 0, 0, 1.0))
        assert samples(answered(url)[1])["tacit_asked_total",] == 7


def test_open_metrics_is_written_where_it_is_asked_for(journal: CoordinatorJournal) -> None:
    with served(journal) as url:
        kind, text = answered(url, "application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    assert {family.name for family in open_metrics(text)} >= {"tacit_rounds", "tacit_round_seconds", "tacit_devices"}


def test_one_metric_can_be_asked_for_and_nothing_can_be_written(journal: CoordinatorJournal) -> None:
    with served(journal) as url:
        assert {name for name, *_ in samples(answered(f"{url}?name[]=tacit_devices")[1])} == {"tacit_devices"}
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(url, b"x", method="POST"), timeout=60)
        refused.value.close()
    assert refused.value.code == 405


@pytest.mark.slow
def test_a_port_that_is_taken_is_reported_and_a_closed_one_is_free_again(journal: CoordinatorJournal) -> None:
    first = MetricsServer(journal.path, ThreePresent(), "127.0.0.1", 0)
    with pytest.raises(FieldError, match="Cannot listen"):
        MetricsServer(journal.path, ThreePresent(), "127.0.0.1", first.port)
    first.close()
    MetricsServer(journal.path, ThreePresent(), "127.0.0.1", first.port).close()
