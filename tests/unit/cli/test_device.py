"""`tacit device`: what a user types, and the messages when it goes wrong."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from helpers.commands import device_document, run_command
from helpers.small_federation import CATALOG, PASSPHRASE, founded, request
from tacit.errors import BadRowsError, DataError
from tacit.field.device import Device, ScryptCost, limits, metered
from tacit.field.device.settings import USUAL_PI
from tacit.wire.messages import write_welcome

pytestmark = pytest.mark.slow


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TACIT_DEVICE", str(tmp_path / "device.db"))
    monkeypatch.setenv("TACIT_PASSPHRASE", PASSPHRASE)
    monkeypatch.setattr("tacit.field.device.device.ScryptCost", lambda: ScryptCost(log_n=10))
    (tmp_path / "small.tacit").write_bytes(write_welcome(founded(), CATALOG))
    return tmp_path


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Run a command for people; return its exit number and all it printed."""
    code, out, err = run_command(capsys, "device", *words)
    return code, out + err


def test_a_user_makes_joins_and_uses_a_device(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = device_document(capsys, "init")
    assert made["file"] == str(here / "device.db")
    assert len(made["recovery_code"]) == 29
    assert device_document(capsys, "join", "--without-guarantee", str(here / "small.tacit"))["items"] == CATALOG.n_items
    assert device_document(capsys, "history", "add", "Hill Hotel", "place-0001-bar")["added"] == 2
    (here / "seen.csv").write_text("title\nEel House\nNowhere Inn\n")
    imported = device_document(capsys, "history", "import", "--yes", str(here / "seen.csv"))
    assert (imported["added"], len(imported["not_understood"])) == (1, 1)
    assert device_document(capsys, "history", "remove", "eel house")["history"] == 2
    assert {row["title"] for row in device_document(capsys, "history", "list")["history"]} == {
        "Hill Hotel",
        "Bar Benedetta",
    }
    sharing = device_document(capsys, "share", "--pi", "0.3", "--never", "drinks", "--never", "Hill Hotel")
    assert (sharing["pi"], sharing["never_items"], sharing["never_categories"]) == (
        0.3,
        ["place-0007-hill"],
        ["drinks"],
    )
    settled = device_document(capsys, "share", "--again", "drinks", "--masked-only", "--least", "25")
    assert (settled["never_categories"], settled["masked_only"], settled["device_policy"]["n_min"]) == ([], True, 25)
    assert [device_document(capsys, "batches", *most)["most_batches"] for most in ([], ["1"], [])] == [4, 1, 1]
    policy = device_document(capsys, "share")["device_policy"]
    assert (policy["most_cohorts"], policy["n_min"]) == (1, 25)
    assert not device_document(capsys, "share", "--also-readable")["masked_only"]
    assert settled["measure"]
    assert not device_document(capsys, "share", "--no-measure")["measure"]
    with Device.open(here / "device.db", PASSPHRASE) as device:
        device.answers.mark_sent(device.learn(request(founded(), 0)))
    (entry,) = device_document(capsys, "ledger")["ledger"]
    assert entry["state"] == "sent"
    assert "place-0007-hill" not in entry["positives"]
    best = device_document(capsys, "recommend", "-k", "3")["recommendations"]
    assert len(best) == 3
    device_document(capsys, "hide", best[0]["item"])
    assert device_document(capsys, "recommend", "-k", "1")["recommendations"][0] == best[1]
    assert device_document(capsys, "pause") == {"paused": True}
    assert device_document(capsys, "share")["paused"]
    assert device_document(capsys, "resume") == {"paused": False}
    device_document(capsys, "backup", str(here / "copy"))
    device_document(capsys, "export", "--readable", str(here / "mine.json"))
    assert json.loads((here / "mine.json").read_text())["ledger"] == [entry]
    assert device_document(capsys, "leave") == {"left": True}
    device_document(capsys, "erase", "--yes")
    assert not (here / "device.db").exists()
    assert device_document(capsys, "restore", str(here / "copy"))["sits_out"]
    assert len(device_document(capsys, "ledger")["ledger"]) == 1
    code, told = shown(capsys, "ledger")
    assert (code, "sits out the first rounds" in told) == (0, True)


def test_a_forgotten_passphrase_here_and_on_another_machine(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = device_document(capsys, "init")["recovery_code"]
    device_document(capsys, "backup", str(here / "copy"))
    (here / "code").write_text(f"{code.lower()}\n")
    (here / "words").write_text("a longer walk\n")
    monkeypatch.setenv("TACIT_PASSPHRASE", "nobody knows")
    assert "wrong" in device_document(capsys, "share")["error"]["message"]
    files = ("--code-file", str(here / "code"), "--new-file", str(here / "words"))
    assert device_document(capsys, "passphrase", "--forgotten", *files) == {"changed": True}
    monkeypatch.setenv("TACIT_PASSPHRASE", "a longer walk")
    assert device_document(capsys, "share")["pi"] == USUAL_PI
    new = str(here / "new.db")
    assert device_document(capsys, "--file", new, "restore", str(here / "copy"), "--forgotten", *files)["sits_out"]
    assert device_document(capsys, "--file", new, "share")["masked_only"]
    other = device_document(capsys, "recovery-code")["recovery_code"]
    assert "wrong" in device_document(capsys, "passphrase", "--forgotten", *files)["error"]["message"]
    monkeypatch.setenv("TACIT_RECOVERY_CODE", other)
    assert device_document(capsys, "passphrase", "--forgotten", *files[2:]) == {"changed": True}


def test_secrets_and_titles_need_not_stand_on_the_command_line(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TACIT_PASSPHRASE")

    def say(*words: str, typed: str = "") -> Any:
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        reading, writing = os.pipe()
        os.write(writing, f"{PASSPHRASE}\nmore".encode())
        os.close(writing)
        try:
            return device_document(capsys, "--passphrase-fd", str(reading), *words)
        finally:
            os.close(reading)

    say("init")
    assert say("join", "--without-guarantee", "-", typed=f"{here / 'small.tacit'}\n")["items"] == CATALOG.n_items
    (here / "names").write_text("Hill Hotel\n\nEel House\n")
    assert say("history", "add", "--from", str(here / "names"))["added"] == 2
    assert say("history", "add", "--from", "-", typed="Kite Shop\nInk Library\n")["added"] == 2
    assert say("history", "remove", "-", typed="Kite Shop\n")["history"] == 3
    assert say("hide", "-", typed="Pine Park\n")["hidden"] == ["place-0015-pine"]
    assert say("share", "--never", "-", typed="food\nEel House\n")["never_categories"] == ["food"]
    assert "Nothing was named" in say("history", "add")["error"]["message"]
    assert "descriptor 987654" in device_document(capsys, "--passphrase-fd", "987654", "share")["error"]["message"]


def test_limits_are_set_shown_and_taken_away(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    device_document(capsys, "init")
    nothing = device_document(capsys, "limits")
    assert nothing["rounds_per_day"] is None
    assert nothing["resting"] is None
    limits = device_document(capsys, "limits", "--rounds-per-day", "0", "--mb-per-day", "2.5", "--hours", "25-3")
    assert "hours" in limits["error"]["message"]
    limits = device_document(capsys, "limits", "--rounds-per-day", "0", "--mb-per-day", "2.5", "--pause-minutes", "10")
    assert (limits["rounds_per_day"], limits["bytes_per_day"], limits["pause_minutes"]) == (0, 2_500_000, 10)
    assert limits["resting"] == "daily-rounds"
    code, told = shown(capsys, "limits", "--rounds-per-day", "-1")
    assert code == 0
    assert "At most 2.5 MB in 24 hours, received and sent." in told
    assert device_document(capsys, "limits")["rounds_per_day"] is None


def test_a_limit_that_the_system_cannot_keep_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    device_document(capsys, "init")
    monkeypatch.setattr(metered, "is_metered", lambda: None)
    found = device_document(capsys, "limits", "--unmetered-only")
    assert "metered" in found["error"]["message"]
    monkeypatch.setattr(metered, "is_metered", lambda: True)
    monkeypatch.setattr(limits, "is_metered", lambda: True)
    found = device_document(capsys, "limits", "--unmetered-only")
    assert (found["unmetered_only"], found["resting"]) == (True, "metered-network")
    assert "Only on unmetered networks." in shown(capsys, "limits", "--mb-per-day", "5")[1]
    assert device_document(capsys, "limits", "--also-metered")["resting"] is None


def test_people_read_sentences_and_tables(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, expected in (
        (["init"], "sends nothing before you join"),
        (["join", "--without-guarantee", str(here / "small.tacit")], f"pi = {USUAL_PI}"),
        (["history", "add", "Hill Hotel"], "your history has 1 items"),
        (["history", "list"], "Hill Hotel"),
        (["share"], "no guarantee"),
        (["ledger"], "when"),
        (["leave"], "stays in the shared model"),
        (["erase", "--yes"], "stays in the shared model"),
    ):
        code, text = shown(capsys, *words)
        assert code == 0
        assert expected in " ".join(text.split())


def test_the_ledger_calls_things_by_their_titles(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ["init"],
        ["join", "--without-guarantee", str(here / "small.tacit")],
        ["history", "add", "Hill Hotel"],
    ):
        shown(capsys, *words)
    shown(capsys, "share", "--pi", "1", "--also-readable")
    with Device.open(here / "device.db", PASSPHRASE) as device:
        device.answers.mark_sent(device.learn(request(founded(), 0)))
    assert "is about 'Hill Hotel'" in " ".join(shown(capsys, "ledger")[1].split())
    assert "titles are deleted" in " ".join(shown(capsys, "leave")[1].split())
    assert "is about 'place-0007-hill'" in " ".join(shown(capsys, "ledger")[1].split())
    assert "nothing to leave" in shown(capsys, "leave")[1]


def test_errors_help(here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(capsys, "ledger")[0] == 13
    assert "tacit device init" in shown(capsys, "ledger")[1]
    device_document(capsys, "init")
    assert "already" in device_document(capsys, "init")["error"]["message"]
    assert device_document(capsys, "recommend")["error"]["kind"] == "ConsentError"
    assert device_document(capsys, "join", str(here / "nothing"))["error"]["kind"] == "DeviceError"
    assert device_document(capsys, "join", str(here / "device.db"))["error"]["kind"] == "FieldError"
    device_document(capsys, "join", "--without-guarantee", str(here / "small.tacit"))
    assert (
        "Did you mean 'Hill Hotel' (id place-0007-hill)?"
        in device_document(capsys, "history", "add", "Hil Hotel")["error"]["hint"]
    )
    assert "Did you mean 'Hill Hotel'" in device_document(capsys, "history", "add", "hotel hil")["error"]["hint"]
    assert "'Kiosk Aurora', 'Bar Benedetta'" in device_document(capsys, "history", "add", "xyz")["error"]["hint"]
    (here / "watched.csv").write_text("title\nHill Hotel\n")
    refused = device_document(capsys, "import", str(here / "watched.csv"))["error"]
    assert refused["hint"].startswith("To add its rows to your history: tacit device history import")
    assert "not changed" in device_document(capsys, "import", str(here / "device.db"))["error"]["message"]
    assert "Did you mean 'drinks'?" in device_document(capsys, "share", "--never", "drink")["error"]["hint"]
    assert device_document(capsys, "recommend")["error"]["kind"] == "MethodError"
    assert device_document(capsys, "erase")["error"]["hint"] == "Give --yes."
    monkeypatch.setenv("TACIT_PASSPHRASE", "wrong")
    code, text = shown(capsys, "ledger")
    assert code == 13
    assert "passphrase is wrong" in text
    monkeypatch.delenv("TACIT_PASSPHRASE")
    assert "TACIT_PASSPHRASE" in device_document(capsys, "ledger")["error"]["hint"]
    (here / "word").write_text(PASSPHRASE + "\n")
    (here / "new").write_text("another small boat\n")
    file = ("--passphrase-file", str(here / "word"))
    assert device_document(capsys, *file, "passphrase", "--new-file", str(here / "new")) == {"changed": True}
    assert device_document(capsys, *file, "ledger")["error"]["message"] == "The passphrase is wrong."
    assert device_document(capsys, "--passphrase-file", str(here / "new"), "ledger") == {"ledger": [], "budgets": []}


def test_no_passphrase_is_asked_for_that_opens_or_makes_nothing(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TACIT_PASSPHRASE")
    for words in (("history", "list"), ("share",), ("erase",), ("passphrase",)):
        assert device_document(capsys, *words)["error"]["message"].startswith("There is no device")
    assert device_document(capsys, "import", str(here / "none"))["error"]["message"].startswith("There is no file")
    (here / "device.db").touch()
    assert device_document(capsys, "init")["error"]["message"].startswith("There is already a device")


def test_a_history_that_was_not_understood_or_known_is_reported(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    device_document(capsys, "init")
    device_document(capsys, "join", "--without-guarantee", str(here / "small.tacit"))
    (here / "odd.csv").write_text("title\nNowhere Inn\n")
    code, told = shown(capsys, "history", "import", str(here / "odd.csv"))
    assert code == DataError.exit_code
    assert "1 row: not found" in told
    assert "column 'title'" in told
    (here / "odd.csv").write_text("title,date\nHill Hotel,2026-01-01\nMill Museum,soon\n")
    code, told = shown(capsys, "history", "import", str(here / "odd.csv"))
    assert code == BadRowsError.exit_code
    assert "1 row: cannot be read" in told
    assert "line 3: the timestamp 'soon' cannot be read" in told
    assert device_document(capsys, "history", "list") == {"history": []}
    looked = device_document(capsys, "history", "import", "--skip-bad", str(here / "odd.csv"))
    assert (looked["added"], looked["preview"]["certain"]) == (0, 1), "nothing is added before the user agrees"
    assert device_document(capsys, "history", "list") == {"history": []}
    done = device_document(capsys, "history", "import", "--yes", "--skip-bad", str(here / "odd.csv"))
    assert done["added"] == 1
    assert device_document(capsys, "history", "undo") == {"undone": 1, "history": 0}
    done = device_document(capsys, "history", "import", "--yes", "--skip-bad", str(here / "odd.csv"))
    assert (done["added"], [row["line"] for row in done["not_understood"]]) == (1, [3])
    shown(capsys, "history", "add", "Hill Hotel", "--when", "2026-01-02")
    code, told = shown(capsys, "history", "add", "Hill Hotel", "--when", "2026-01-03")
    assert code == 0
    assert "Added 0" in told
    assert "the time 2026-01-03" in told
