"""`--json`: one document on standard output, whatever happens, wherever the option is given, and only as an option."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tacit.cli import main

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def tacit(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run a command in an empty folder; return its exit number and what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TACIT_DEVICE", str(tmp_path / "device.db"))

    def command(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return command


NO_OPTION = {
    "the value of an option": ["recommend", "nowhere", "--user", "--json"],
    "a title behind a double dash": ["device", "history", "remove", "--", "--json"],
    "a run behind a double dash": ["recommend", "--user", "1", "--", "--json"],
    "the value of a group's option": ["device", "--file", "--json", "ledger"],
}


@pytest.mark.parametrize("case", NO_OPTION)
def test_a_word_that_is_no_option_does_not_ask_for_json(tacit: Command, case: str) -> None:
    code, out, err = tacit(*NO_OPTION[case])
    assert code
    assert out == ""
    assert err


WRONG = {
    "an unknown option behind it": (["run", "--json", "--bogus"], 2),
    "an unknown option before it": (["run", "--bogus", "--json"], 2),
    "an unknown option of a group": (["device", "--bogus", "ledger", "--json"], 2),
    "an unknown command": (["frobnicate", "--json"], 2),
    "an unknown command of a group": (["data", "frobnicate", "--json"], 2),
    "a missing argument": (["compare", "--json"], 2),
    "a missing option": (["recommend", "nowhere", "--json"], 2),
    "an option without its value": (["recommend", "nowhere", "--json", "--user"], 2),
    "a value out of range": (["run", "--repeat", "0", "--json"], 2),
    "a file that is not there": (["run", "nowhere.yaml", "--json"], 3),
    "a comparison that is not there": (["compare", "nowhere.yaml", "--json"], 3),
    "a search that is not there": (["tune", "nowhere.yaml", "--json"], 3),
    "an unknown method": (["methods", "eaze", "--json"], 3),
    "a run that is not there": (["recommend", "nowhere", "--user", "1", "--json"], 9),
    "a device that is not there": (["device", "ledger", "--json"], 13),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_error_is_the_one_document(tacit: Command, case: str) -> None:
    arguments, number = WRONG[case]
    code, out, err = tacit(*arguments)
    error = json.loads(out)["error"]
    assert (code, err) == (number, "")
    assert error.keys() == {"kind", "message", "hint"}
    assert error["kind"].endswith("Error")
    assert error["message"]


def test_a_bug_is_a_document_too_and_keeps_its_trace(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    about = tmp_path / "broken-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[tacit.methods]\nbroken = broken\n")
    asked = [sys.executable, "-c", "from tacit.cli import main; main(['methods', '--json'])"]
    path = os.pathsep.join([str(tmp_path), *sys.path])
    ran = subprocess.run(asked, capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": path})
    assert ran.returncode == 1
    assert json.loads(ran.stdout)["error"]["kind"] == "ZeroDivisionError"
    assert "broken.py" in ran.stderr


@pytest.mark.parametrize("group", [[], ["data"], ["device", "history"]])
def test_a_group_alone_shows_its_help_and_no_error(tacit: Command, group: list[str]) -> None:
    code, out, err = tacit(*group)
    assert code == 2
    assert "Usage:" in out
    assert err == ""


def test_an_argument_that_must_be_given_is_asked_for(tacit: Command) -> None:
    assert tacit("recommend", "--user", "7")[0] == 2
    assert "MISSING" not in tacit("recommend", "--help")[1]
