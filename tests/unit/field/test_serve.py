"""A coordinator's configuration, certificates, metrics and logs; what a device says of a line that does not hold."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from cryptography import x509

from helpers.small_federation import CATALOG, CHEAP, PASSPHRASE, founded
from tacit.config import read_config
from tacit.errors import ConfigError, DataError, FieldError
from tacit.field.coordinator import CoordinatorJournal
from tacit.field.coordinator.round_log import RoundRecord
from tacit.field.device import Device
from tacit.reasons import ReasonCode, RoundReason, describe_reason
from tacit.wire.messages import write_welcome

pytest.importorskip("flwr", reason="the field needs Flower")
import httpx

from tacit.cli.field import _in_words as told_of
from tacit.field.carriers.fleet_node import _connection_error
from tacit.field.carriers.superlink import SuperLink
from tacit.field.carriers.supernode import SuperNode
from tacit.field.certificates import load_certificates, make_certificates
from tacit.field.invitations import Invitation, accept
from tacit.field.json_log import JsonLines
from tacit.field.serve import (
    ServeConfig,
    _start_metrics,
    find_certificates,
    host_port,
    make_invitation,
    open_federation,
    serve,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # Flower and its servers warn of their own doings


@pytest.fixture
def config(tmp_path: Path) -> ServeConfig:
    (tmp_path / "items.csv").write_text("item,title,category\na,Apple,fruit|red\nb,Bean,\nc,Cherry,fruit\n")
    (tmp_path / "field.yaml").write_text(
        f"folder: {tmp_path}/state\ncatalog: {tmp_path}/items.csv\nmethod: {{name: fpl, factors: 3, local_steps: 2}}\n"
        "privacy: none\n"
    )
    return read_config(ServeConfig, tmp_path / "field.yaml")


def test_a_federation_is_founded_once_and_its_terms_stay(config: ServeConfig, tmp_path: Path) -> None:
    journal = open_federation(config)
    assert journal.catalog.titles == ["Apple", "Bean", "Cherry"]
    assert journal.catalog.categories is not None
    assert [journal.catalog.categories.of(item) for item in range(3)] == [["fruit", "red"], [], ["fruit"]]
    journal.close()
    again = open_federation(config)
    assert again.federation == journal.federation
    again.close()
    changed = read_config(ServeConfig, tmp_path / "field.yaml", ["method.factors=4"])
    with pytest.raises(ConfigError, match="founded with other values of options"):
        open_federation(changed)


def test_every_wrong_configuration_is_named(config: ServeConfig, tmp_path: Path) -> None:
    path = tmp_path / "field.yaml"
    for override, said in (
        ("rounds.deadlin=3", "deadline"),
        ("rounds.minimum=0", "minimum"),
        ("method=ease", "not federated"),
        ("method.local_steps=0", "local_steps"),
        ("key=/tmp/x", "Only one of certificate and key"),
        ("catalog=/tmp/none.csv", "cannot be read"),
    ):
        with pytest.raises((ConfigError, DataError), match=said):
            _tried(read_config(ServeConfig, path, [override]))
    for wrong in ("8443", "host:", "a:99999", ":1"):
        with pytest.raises(ConfigError, match="host:port"):
            host_port(wrong)
    assert host_port("[::1]:80") == ("::1", 80)
    both = ["rounds.secure={n_min: 3}", "rounds.robust={rule: median}"]
    with pytest.raises(ConfigError, match="remove one of the two"):
        read_config(ServeConfig, path, both)


@pytest.mark.slow
def test_how_many_devices_are_waited_for_is_what_rounds_wait_for(config: ServeConfig, tmp_path: Path) -> None:
    quick = ["listen=127.0.0.1:0", "rounds.patience=0.1"]
    needed: list[int] = []
    codes: list[ReasonCode] = []
    open_federation(config).close()

    def tried(*settings: str) -> None:
        given = read_config(ServeConfig, tmp_path / "field.yaml", [*quick, *settings])
        with pytest.raises(FieldError) as waited:
            serve(given, on_start=lambda devices, done: needed.append(devices))
        assert waited.value.reason is not None
        assert waited.value.reason.parameters["needed"] == needed[-1]
        codes.append(waited.value.reason.code)

    tried("rounds.quorum=3", "rounds.readable=true")
    tried("rounds.secure={n_min: 7}", "rounds.minimum=2")
    journal = open_federation(config)
    journal.sums.note_participants(0, 2, [1, 2])
    journal.close()
    tried("rounds.quorum=3", "rounds.readable=true")
    tried("rounds.quorum=14")
    assert needed == [3, 7, 13, 14], "quorum and the rest of the schedule change without founding anew"
    assert codes == [
        ReasonCode.QUORUM_MISSED,
        *[ReasonCode.SECURE_QUORUM_MISSED] * 2,
        ReasonCode.QUORUM_MISSED,
    ]


def _tried(config: ServeConfig) -> None:
    find_certificates(config)
    open_federation(config)


def test_certificates_are_made_renewed_and_refused_when_they_have_expired(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    first = make_certificates(tmp_path, "example.org", now)
    made = first.certificate.read_bytes()
    assert make_certificates(tmp_path, "example.org", now + timedelta(days=360)).certificate.read_bytes() == made
    renewed = make_certificates(tmp_path, "example.org", now + timedelta(days=370))
    newer = renewed.certificate.read_bytes()
    assert newer != made
    assert renewed.roots == first.roots, "devices go on trusting the same authority"
    assert make_certificates(tmp_path, "127.0.0.1").certificate.read_bytes() != newer, "it names another host"
    assert (tmp_path / "authority.key").stat().st_mode & 0o777 == 0o600
    with pytest.raises(FieldError, match="is valid only from"):
        load_certificates(first.certificate, first.key, None, now + timedelta(days=1500))
    with pytest.raises(FieldError, match="cannot be read"):
        load_certificates(tmp_path / "none", first.key, None)


@pytest.mark.parametrize("days", [-730, -366, 366, 700])
def test_a_device_whose_clock_is_wrong_by_a_year_can_connect(tmp_path: Path, days: int) -> None:
    now = datetime.now(UTC)
    made = make_certificates(tmp_path, "127.0.0.1", now)
    chain = [made.certificate.read_bytes(), made.roots.encode()]
    for found in map(x509.load_pem_x509_certificate, chain):
        assert found.not_valid_before_utc < now + timedelta(days=days) < found.not_valid_after_utc


def test_a_certificate_that_is_not_valid_yet_is_called_so() -> None:
    error = httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: not yet valid")
    assert "clock" in _connection_error("here", error).message


def test_a_device_says_that_the_certificate_has_expired(tmp_path: Path) -> None:
    journal = CoordinatorJournal.create(tmp_path / "journal.db", founded(), CATALOG)
    old = make_certificates(tmp_path / "tls", "127.0.0.1", datetime.now(UTC) - timedelta(days=1100))
    link = SuperLink(journal, "127.0.0.1", 0, old.certificate, old.key)
    line = Invitation(f"127.0.0.1:{link.port}", journal.invitations.make(int(time.time()) + 3600), old.roots)
    try:
        with Device.create(tmp_path / "device.db", PASSPHRASE, cost=CHEAP) as device:
            with pytest.raises(FieldError, match="expired"):
                accept(device, line)
            with pytest.raises(FieldError, match="no coordinator"):
                SuperNode(device)
            device.join(write_welcome(founded(), CATALOG), line.address, accepts={ReasonCode.NO_GUARANTEE})
            with pytest.raises(FieldError, match="has expired"):
                SuperNode(device).session(threading.Event())
    finally:
        link.close()
        journal.close()


def test_a_wrong_clock_and_an_unknown_device_are_distinguished() -> None:
    request = httpx.Request("POST", "https://here/")
    behind = format_datetime(datetime.now(UTC) + timedelta(minutes=20), usegmt=True)
    for date, said in ((behind, "clock is 1"), (format_datetime(datetime.now(UTC), usegmt=True), "does not know")):
        response = httpx.Response(401, headers={"date": date}, request=request)
        assert (
            said in _connection_error("here", httpx.HTTPStatusError("no", request=request, response=response)).message
        )
    assert "cannot be reached" in _connection_error("here", httpx.ConnectError("refused")).message


def test_a_round_is_described_in_words() -> None:
    counts = 13, 12, 0, 1, 10, 20, 1.5
    enough = RoundReason(ReasonCode.ENOUGH_DEVICES, {"eligible": 13, "needed": 13})
    off, broken = RoundReason(ReasonCode.SECURE_AGGREGATION_OFF), RoundReason(ReasonCode.COORDINATOR_INTERRUPTED)
    cool = RoundReason(ReasonCode.COOL_DOWN, {"eligible": 1, "here": 20, "needed": 13, "cool_down": 5})
    for happened, begins, reason in (
        (RoundRecord(1, "finished", *counts, reason=off), "Round 1: finished, 12 of 13 answered; each answer", off),
        (
            RoundRecord(2, "finished", *counts, 0, 1, enough),
            "Round 2: finished, 12 of 13 answered; masked",
            enough,
        ),
        (RoundRecord(3, "skipped", 0, 0, 0, 0, 0, 0, 0.0, reason=cool), "Round 3: skipped, no device was asked", cool),
        (
            RoundRecord(4, "abandoned", 9, 0, 0, 0, 0, 0, 0.0, 9, 1, broken),
            "Round 4: abandoned, 9 were asked; masked",
            broken,
        ),
    ):
        said = describe_reason(reason)
        assert told_of(happened).startswith(begins)
        assert f"{said.what} {said.meaning}" in told_of(happened)
        assert told_of(happened).endswith(said.remedy) == (happened.state != "finished")
    assert (
        told_of(RoundRecord(5, "abandoned", *counts))
        == "Round 5: abandoned, 12 of 13 answered; each answer was readable."
    )


def test_a_log_line_is_json_and_an_invitation_names_the_address(config: ServeConfig) -> None:
    journal = open_federation(config)
    record = logging.makeLogRecord({"name": "tacit.field.coordinator", "msg": "round ends", "fields": {"round": 3}})
    assert json.loads(JsonLines().format(record))["round"] == 3
    assert Invitation.parse(make_invitation(config, journal, days=1)).address == "127.0.0.1:8443"
    journal.close()


def test_metrics_without_their_package_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tacit.field.metrics", raising=False)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(FieldError, match="prometheus_client"):
        _start_metrics(ServeConfig.from_options({"method": {"name": "fpl"}}, "here"), Path("journal.db"), None)  # type: ignore[arg-type]
