"""What an operator has beside rounds: a check of the configuration, health, access to metrics, codes, a login."""

from __future__ import annotations

import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.commands import run_command
from helpers.small_federation import CATALOG, founded
from tacit.errors import ConfigError, FieldError, StorageError
from tacit.field.check import check_config
from tacit.field.coordinator import CoordinatorJournal, RoundRules
from tacit.field.coordinator import journal as journal_file
from tacit.field.coordinator.login import LoginRules, make_pseudonym, read_login_key, read_token, sign_token
from tacit.field.invitations import Invitation
from tacit.field.serve import ServeConfig, open_federation
from tacit.protocols.secure_aggregation.identity import Identity
from tacit.wire.enrolment import enrolment_statement
from tacit.wire.status import CoordinatorStatus

pytest.importorskip("prometheus_client", reason="the field needs prometheus-client")
from tacit.field import metrics
from tacit.field.metrics import MetricsServer, read_token_file

HEAD = "item,title\n" + "".join(f"{item},Item {item}\n" for item in range(10, 40))


class OneCarrier:
    """A carrier with two devices, whose coordinator may have begun."""

    status: CoordinatorStatus | None = None

    def present(self) -> frozenset[int]:
        return frozenset({1, 2})


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[CoordinatorJournal]:
    made = CoordinatorJournal.create(tmp_path / "journal.db", founded(), CATALOG)
    yield made
    made.close()


@pytest.fixture
def config(tmp_path: Path) -> ServeConfig:
    return ServeConfig.from_options(options(tmp_path), "the test")


def options(folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "folder": str(folder / "town"),
        "method": {"name": "fpl", "local_steps": 20},
        "privacy": "none",
        "listen": "127.0.0.1:0",
        **more,
    }


def answer(port: int, path: str, token: str = "") -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers), timeout=30
        ) as got:
            return got.status, got.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_health_and_readiness_return_counts_and_metrics_need_their_token(journal: CoordinatorJournal) -> None:
    carrier = OneCarrier()
    server = MetricsServer(journal.path, carrier, "127.0.0.1", 0, "a" * 20)  # type: ignore[arg-type]
    try:
        assert answer(server.port, "/health") == (200, '{"status": "ok", "rounds": 0}')
        assert answer(server.port, "/ready")[0] == 503, "rounds have not begun"
        carrier.status = CoordinatorStatus("waiting", 2, 13, 0)
        code, body = answer(server.port, "/ready")
        counts = {"devices": 2, "needed": 13, "new_missing": 0, "unagreed": 0}
        assert (code, json.loads(body)) == (200, {"status": "ready", "phase": "waiting"} | counts)
        for token in ("", "a" * 19, "b" * 20):
            assert answer(server.port, "/metrics", token)[0] == 401
            assert answer(server.port, "/", token)[0] == 401
        code, body = answer(server.port, "/metrics", "a" * 20)
        assert code == 200
        names = {line.split()[2] for line in body.splitlines() if line.startswith("# TYPE")}
        helped = {line.split()[2] for line in body.splitlines() if line.startswith("# HELP") and len(line.split()) > 4}
        assert names == helped, "every metric says what it counts"
        journal.path.write_bytes(b"broken")
        assert answer(server.port, "/health")[0] == 503
    finally:
        server.close()


def test_a_token_file_that_protects_nothing_is_refused(tmp_path: Path) -> None:
    assert read_token_file(None) == ""
    (tmp_path / "token").write_text("short\n")
    for path in (tmp_path / "token", tmp_path / "none"):
        with pytest.raises(ConfigError):
            read_token_file(path)


def test_a_check_says_what_a_start_would_do_and_writes_nothing(tmp_path: Path, config: ServeConfig) -> None:
    found = check_config(config)
    assert (found.is_founded, found.needed, found.devices, found.change) == (False, 13, 0, None)
    assert not config.folder.exists()
    table = tmp_path / "items.csv"
    table.write_text(HEAD + "1,One\n2,Two\n")
    given = options(tmp_path, catalog=str(table))
    open_federation(ServeConfig.from_options(given, "the test")).close()
    table.write_text(HEAD + "1,One\n2,Zwei\n3,Three\n")
    before = (config.folder / "journal.db").read_bytes()
    again = check_config(ServeConfig.from_options(given, "the test"))
    assert again.is_founded
    assert again.change is not None
    assert again.change.added == 1
    assert any("0 devices are enrolled" in warning for warning in again.warnings)
    assert (config.folder / "journal.db").read_bytes() == before
    with pytest.raises(ConfigError, match="method"):
        check_config(ServeConfig.from_options({**given, "method": {"name": "fed-gmf"}}, "the test"))


def test_a_check_leaves_the_journal_of_an_earlier_version_as_it_is(
    config: ServeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_federation(config).close()
    path, form = config.folder / "journal.db", journal_file.FILE
    newer = (*form.migrations, "ALTER TABLE devices ADD COLUMN of_tomorrow INTEGER NOT NULL DEFAULT 0;")
    monkeypatch.setattr(journal_file, "FILE", replace(form, migrations=newer))
    before = path.read_bytes()
    path.chmod(0o400)
    assert check_config(config).is_founded
    assert path.read_bytes() == before
    assert [one.name for one in config.folder.iterdir()] == [path.name]
    path.chmod(0o600)
    open_federation(config).close()
    assert path.read_bytes() != before, "a start does upgrade it"


def test_the_command_checks_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "town.yaml"
    file.write_text(yaml.safe_dump(options(tmp_path)))
    code, out, _ = run_command(capsys, "serve", str(file), "--check", "--json")
    assert code == 0
    assert (json.loads(out)["needed"], json.loads(out)["founded"]) == (13, False)
    file.write_text(yaml.safe_dump(options(tmp_path, rounds={"minimum": 100, "clients_per_round": 20})))
    code, _, err = run_command(capsys, "serve", str(file), "--check")
    assert code == ConfigError.exit_code
    assert "at most 20 devices are asked" in err
    assert not (tmp_path / "town").exists()


@pytest.mark.parametrize(
    "rules",
    [{"minimum": 100, "clients_per_round": 20}, {"minimum": 60}, {"minimum": 15, "clients_per_round": 2}],
)
def test_a_schedule_that_can_never_have_enough_answers_is_refused(rules: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="no round can ever have"):
        RoundRules(**rules)
    RoundRules(minimum=13, clients_per_round=2)


def enrol_many(folder: Path, n: int) -> tuple[Path, CoordinatorJournal]:
    """Found a federation with some devices; return the operator's file and the open journal."""
    file = folder / "town.yaml"
    file.write_text(yaml.safe_dump(options(folder)))
    journal = open_federation(ServeConfig.from_options(options(folder), "the test"))
    for number in range(n):
        journal.members.add(bytes([number]), bytes([number]) * 32)
    return file, journal


def test_the_list_of_devices_says_how_many_newcomers_are_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, journal = enrol_many(tmp_path, 16)

    def listed() -> tuple[int, int, int]:
        found = json.loads(run_command(capsys, "enroll", str(file), "--list", "--json")[1])
        return len(found["devices"]), found["new"], found["new_missing"]

    assert listed() == (16, 0, 0), "before the first batch all are waited for alike"
    journal.batches.note(1, 0, range(1, 14), range(1, 8))
    journal.close()
    assert listed() == (16, 3, 10)
    assert "10 missing" in " ".join(run_command(capsys, "enroll", str(file), "--list")[1].split())


def test_the_list_of_devices_names_whom_a_batch_waits_for_and_who_was_revoked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, journal = enrol_many(tmp_path, 4)
    journal.batches.note(1, 0, range(1, 4), [1, 2])
    journal.batches.note_missing([2], 1_700_000_000)
    journal.members.revoke(4)
    journal.close()
    found = json.loads(run_command(capsys, "enroll", str(file), "--list", "--json")[1])["devices"]
    names = ("device", "revoked", "batch", "stays", "missing_since")
    assert [tuple(one[name] for name in names) for one in found] == [
        (1, False, 1, True, None),
        (2, False, 1, True, 1_700_000_000),
        (3, False, 1, False, None),
        (4, True, None, False, None),
    ]
    shown = " ".join(run_command(capsys, "enroll", str(file), "--list")[1].split())
    assert "2023-11-14 22:13" in shown
    assert "revoked" in shown


def test_invitations_are_written_as_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("segno")
    file, folder = tmp_path / "town.yaml", tmp_path / "codes"
    file.write_text(yaml.safe_dump(options(tmp_path)))
    code, out, _ = run_command(capsys, "federation", "invite", str(file), "--count", "2", "--qr", str(folder), "--json")
    assert code == 0
    made = json.loads(out)
    assert sorted(map(str, folder.iterdir())) == sorted(made["qr"])
    assert len(made["qr"]) == 2
    assert all(one.read_text().count("<path") for one in folder.iterdir())
    assert {one.stat().st_mode & 0o777 for one in folder.iterdir()} == {0o600}, "each enrols a device"
    code, _, err = run_command(capsys, "federation", "invite", str(file), "--qr", str(file / "x"))
    assert code != 0
    assert "cannot be made" in err


def test_invitations_are_printed_even_if_their_codes_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    segno = pytest.importorskip("segno")

    def fail(*given: Any, **named: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(segno.QRCode, "save", fail)
    file = tmp_path / "town.yaml"
    file.write_text(yaml.safe_dump(options(tmp_path)))
    code, out, err = run_command(capsys, "federation", "invite", str(file), "--qr", str(tmp_path / "codes"))
    assert code == StorageError.exit_code
    assert "No space left" in err
    assert out.startswith("tacit1:")


@pytest.mark.slow
def test_an_idle_connection_to_the_metrics_is_not_waited_for(
    journal: CoordinatorJournal, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert metrics.QuietHandler.timeout == 10
    monkeypatch.setattr(metrics.QuietHandler, "timeout", 0.2)
    server = MetricsServer(journal.path, OneCarrier(), "127.0.0.1", 0)  # type: ignore[arg-type]
    try:
        for said in (b"", b"GET /health HT", b"GET /health HTTP/1.1\r\nHost:"):
            with socket.create_connection(("127.0.0.1", server.port), timeout=30) as visitor:
                visitor.sendall(said)
                assert visitor.recv(100) == b"", "it is hung up"
    finally:
        server.close()
    assert capsys.readouterr().err == ""


# --- a login ----------------------------------------------------------------------------------------------------------


def enrolled(
    journal: CoordinatorJournal, token: str, rules: LoginRules | None, key: bytes, now: int = 100
) -> int | None:
    identity = Identity.fresh()
    proof = identity.sign(enrolment_statement(token, key))
    return journal.members.enrol(token, key, now, identity.public, proof, rules)


def test_a_signed_token_enrols_as_many_devices_of_an_account_as_the_rules_say(journal: CoordinatorJournal) -> None:
    server, other = Identity.fresh(), Identity.fresh()
    rules, federation = LoginRules(key=server.public.hex(), devices=1), journal.federation.id
    ann, bob = (make_pseudonym(b"secret", federation, name) for name in ("ann", "bob"))
    token = sign_token(server, federation, ann, 200)
    assert enrolled(journal, token, None, b"k0") is None, "no login, no tokens"
    assert enrolled(journal, token, rules, b"k1", now=200) is None, "expired"
    assert enrolled(journal, sign_token(other, federation, ann, 200), rules, b"k1") is None, "forged"
    assert enrolled(journal, sign_token(server, "another", ann, 200), rules, b"k1") is None
    assert enrolled(journal, token, rules, b"k1") == 1
    assert enrolled(journal, sign_token(server, federation, ann, 200), rules, b"k2") is None, "a second device"
    assert enrolled(journal, sign_token(server, federation, bob, 200), rules, b"k2") == 2
    labels = [device.label for device in journal.members.devices()]
    assert len(set(labels)) == 2
    assert not any(name in label for label in labels for name in ("ann", "bob", ann, bob))


def test_tokens_that_are_none_are_refused() -> None:
    server = Identity.fresh()
    rules = LoginRules(key=server.public.hex())
    good = sign_token(server, "f", "subject-1", 10)
    assert read_token(good, rules, "f", 9) == "subject-1"
    assert read_token(sign_token(server, "f", "x", 10), rules, "f", 9) is None, "too short to be a pseudonym"
    for bad in (
        "",
        "login.",
        "login..",
        "login.a.b",
        good[:-2],
        good[:10] + "A" + good[11:],
        good + "." + good,
        "login." + "a" * 3000,
    ):
        assert read_token(bad, rules, "f", 9) is None
    with pytest.raises(ConfigError, match="key"):
        LoginRules(key="short")


@pytest.mark.parametrize("text", ["", "ab" * 31, "ab" * 33, "x" * 64])
def test_a_file_that_is_no_key_of_a_login_server_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "key").write_text(text)
    with pytest.raises(FieldError):
        read_login_key(tmp_path / "key")


def test_the_commands_of_a_login(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, key = tmp_path / "town.yaml", tmp_path / "login.key"
    code, out, _ = run_command(capsys, "federation", "login-key", str(key), "--json")
    public = json.loads(out)["key"]
    assert (code, key.stat().st_mode & 0o777) == (0, 0o600)
    assert run_command(capsys, "federation", "login-key", str(key))[0] == FieldError.exit_code, (
        "a key is never replaced"
    )
    file.write_text(yaml.safe_dump(options(tmp_path, login={"key": public})))
    code, out, _ = run_command(
        capsys, "federation", "login", str(file), "--key", str(key), "--account", "ann", "--json"
    )
    assert code == 0
    word = Invitation.parse(json.loads(out)["invitation"]).word
    journal = open_federation(ServeConfig.from_options(options(tmp_path, login={"key": public}), "the test"))
    assert read_token(word, LoginRules(key=public), journal.federation.id, int(time.time())) is not None
    journal.close()
    file.write_text(yaml.safe_dump(options(tmp_path, login={"key": "0" * 64})))
    assert run_command(capsys, "federation", "login", str(file), "--key", str(key), "--account", "ann")[0] != 0
