"""Another method in a running federation, as operator and user type it: `replace-method` and `device change`."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the field needs Flower")
from helpers.commands import device_document, run_command
from helpers.small_federation import CHEAP, PASSPHRASE
from helpers.waiting import LONG
from tacit.config import read_config
from tacit.errors import ConfigError, ConsentError, FieldError, StorageError
from tacit.field.carriers.loopback import Loopback
from tacit.field.coordinator import Coordinator, CoordinatorJournal, RoundRules
from tacit.field.coordinator_folder import hold_folder
from tacit.field.device import Device, Sharing
from tacit.field.device.history import HistoryEntry
from tacit.field.metrics import MetricsServer
from tacit.field.operator_sentences import describe_unagreed
from tacit.field.serve import ServeConfig, open_federation
from tacit.reasons import ReasonCode, RoundReason
from tacit.web.operator import FederationStatus
from tacit.wire.status import CoordinatorStatus

pytestmark = pytest.mark.slow
ITEMS = "item,title\na,Apple\nb,Bean\nc,Cherry\nd,Date\ne,Elder\n"
FPL, ALS = "{name: fpl, factors: 3, local_steps: 2}", "{name: fed-als, factors: 3}"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TACIT_DEVICE", str(tmp_path / "1.db"))
    monkeypatch.setenv("TACIT_PASSPHRASE", PASSPHRASE)
    (tmp_path / "items.csv").write_text(ITEMS)
    name(tmp_path / "field.yaml", FPL)
    return tmp_path / "field.yaml"


def name(file: Path, method: str, more: str = "") -> None:
    """Write the operator's file with this method."""
    here = file.parent
    file.write_text(f"folder: {here}/state\ncatalog: {here}/items.csv\nmethod: {method}\nprivacy: none\n{more}")


def found(file: Path) -> None:
    """Found a federation with two devices, one round old."""
    journal = open_federation(read_config(ServeConfig, file))
    for number in (1, 2):
        with Device.create(file.parent / f"{number}.db", PASSPHRASE, cost=CHEAP) as device:
            device.join(journal.welcome, accepts={ReasonCode.NO_GUARANTEE})
            device.share(Sharing(pi=1.0, masked_only=False))
            device.history.add([HistoryEntry(item) for item in "abd"[: number + 1]], device.catalog)
            journal.members.add(bytes([number]), device.identity)
    journal.close()
    run(file, 1)


def run(file: Path, rounds: int) -> list[int]:
    """Run rounds until there are so many; return how many devices answered in each."""
    journal = CoordinatorJournal.open(file.parent / "state" / "journal.db")
    devices = {number: Device.open(file.parent / f"{number}.db", PASSPHRASE) for number in (1, 2)}
    rules = RoundRules.from_options(
        {"rounds": rounds, "readable": True, "secure": None, "minimum": 1, "quorum": 1, "deadline": 1.0}, "rules"
    )
    try:
        Coordinator(journal, rules, Loopback(devices, journal.amendments.since)).run()
        return [happened.answered for happened in journal.rounds.records()]
    finally:
        for device in devices.values():
            device.close()
        journal.close()


def replace(capsys: pytest.CaptureFixture[str], file: Path, *words: str) -> tuple[int, Any]:
    code, out, _ = run_command(capsys, "federation", "replace-method", str(file), *words, "--json")
    return code, json.loads(out)


def test_the_operator_replaces_a_method_and_a_user_says_no_and_yes(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found(file)
    assert device_document(capsys, "change") == {"proposal": None}
    before = device_document(capsys, "recommend", "-k", "2")
    name(file, ALS)
    assert replace(capsys, file) == (0, {"method": "fed-als", "amendment": 1})
    assert run(file, 2)[1:] == [0], "no user has agreed yet"
    told = device_document(capsys, "change")
    assert (told["method"], told["answer"]) == ("fed-als", "open")
    assert "fpl -> fed-als" in told["proposal"][0]
    for word, answer in (("--decline", "declined"), ("--agree", "agreed")):
        assert device_document(capsys, "recommend", "-k", "2") == before
        assert device_document(capsys, "change", word)["answer"] == answer
        if answer == "declined":
            assert device_document(capsys, "change")["answer"] == "declined", "it is remembered"
    assert device_document(capsys, "change") == {"proposal": None}
    assert run(file, 3)[2:] == [1]
    assert len(device_document(capsys, "recommend", "-k", "2")["recommendations"]) == 2
    assert len(device_document(capsys, "ledger")["ledger"]) == 2


def test_the_operator_sees_how_many_users_have_not_agreed(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found(file)
    assert told_of_unagreed(file, capsys) == (0, 0, 0)
    name(file, ALS)
    replace(capsys, file)
    assert told_of_unagreed(file, capsys) == (2, 1, 1)
    run(file, 2)
    assert told_of_unagreed(file, capsys) == (2, 1, 1)
    with read_journal(file) as journal:
        assert journal.rounds.records()[-1].reason == RoundReason(ReasonCode.METHOD_NOT_AGREED, {"waiting": 2})
    device_document(capsys, "change", "--agree")
    run(file, 3)
    with read_journal(file) as journal:
        assert journal.rounds.records()[-1].state == "finished"
        assert journal.members.unagreed == {2}
        assert told_of_unagreed(file, capsys) == (1, 1, 1)
        journal.members.revoke(2)
    assert told_of_unagreed(file, capsys) == (0, 0, 0)


@contextmanager
def read_journal(file: Path) -> Iterator[CoordinatorJournal]:
    with closing(CoordinatorJournal.open(file.parent / "state" / "journal.db")) as journal:
        yield journal


def told_of_unagreed(file: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, int, int]:
    """Return what the operator is told: the number that is ready to be read, warnings of a check, alerts of a page."""
    with read_journal(file) as journal:
        waiting = len(journal.members.unagreed)
        alerts = FederationStatus.of(journal, RoundRules(), present=2).alerts()
        carrier = SimpleNamespace(status=CoordinatorStatus("waiting", 2, 13, 0, 1, 13), present=frozenset)
        with (
            closing(MetricsServer(journal.path, carrier, "127.0.0.1", 0)) as served,
            urllib.request.urlopen(f"http://127.0.0.1:{served.port}/ready", timeout=LONG) as answer,
        ):
            ready = json.load(answer)
    assert (ready["unagreed"], ready["new_missing"]) == (waiting, 12)
    code, out, _ = run_command(capsys, "serve", "--check", str(file), "--json")
    assert code == 0
    notice = describe_unagreed(waiting)
    warned = json.loads(out)["warnings"]
    return waiting, warned.count(notice), sum(alert.what == notice for alert in alerts)


def test_both_read_sentences(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found(file)
    name(file, ALS)
    code, out, err = run_command(capsys, "federation", "replace-method", str(file))
    assert (code, "fed-als (amendment 1)" in " ".join((out + err).split())) == (0, True)
    run(file, 2)
    for words, expected in (([], "--agree"), (["--decline"], "You said no"), (["--agree"], "You agreed")):
        code, out, err = run_command(capsys, "device", "change", *words)
        assert (code, expected in " ".join((out + err).split())) == (0, True)


def test_what_cannot_replace_a_method_is_one_message_and_changes_nothing(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = replace(capsys, file)
    assert code == StorageError.exit_code, "nothing is founded here"
    assert not (file.parent / "state").exists(), "and it is not founded by this"
    open_federation(read_config(ServeConfig, file)).close()
    journal = file.parent / "state" / "journal.db"
    before = journal.read_bytes()
    for method, more, error in (
        (FPL, "", ConfigError),  # the same
        ("{name: none-such}", "", ConfigError),
        ("{name: ease}", "", ConfigError),  # not federated
        ("{name: fed-als, factors: 0}", "", ConfigError),
        (ALS, "trial: 5\n", ConfigError),  # another term
    ):
        name(file, method, more)
        code, told = replace(capsys, file)
        assert (code, told["error"]["hint"] != "") == (error.exit_code, True), method
        assert journal.read_bytes() == before
    name(file, ALS)
    with hold_folder(file.parent / "state"):
        assert replace(capsys, file)[0] == FieldError.exit_code, "while it is served"
    assert journal.read_bytes() == before
    assert replace(capsys, file, "--set", "method.factors=2")[0] == 0


def test_a_user_cannot_answer_without_a_proposal(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, _ = run_command(capsys, "device", "change", "--agree")
    assert code != 0, "there is no device"
    found(file)
    for word in ("--agree", "--decline"):
        code, _, err = run_command(capsys, "device", "change", word)
        assert (code, "Traceback" in err) == (ConsentError.exit_code, False)
    assert device_document(capsys, "change") == {"proposal": None}
