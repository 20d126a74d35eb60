"""What the tutorials of the lab say is true: their commands run in order in a fresh folder and print what is shown."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import tacit
from helpers.page_steps import DOCS, follow

pytestmark = pytest.mark.slow

COMMANDS = {"own-data": 4, "compare": 3, "guarantee": 2}


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh folder with the file that the pages use."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    log = tacit.load("town", users=120, places=80).interactions
    assert log.times is not None
    rows = {"user": [f"u{user}" for user in log.users], "song": [f"s{item}" for item in log.items]}
    pl.DataFrame({**rows, "timestamp": log.times.astype(int)}).write_csv("plays.csv")
    return tmp_path


@pytest.mark.parametrize("page", COMMANDS)
def test_every_command_runs_in_order(page: str, reader: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert follow(DOCS / "tutorials" / f"{page}.md", capsys) == COMMANDS[page]
    assert [*reader.glob("runs/*/report.html")] or page == "guarantee"
