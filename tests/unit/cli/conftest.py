"""Commands in an empty folder."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from helpers.commands import Command, run_command


@pytest.fixture
def tacit(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run a command in an empty folder; return its exit number and what it printed."""
    monkeypatch.chdir(tmp_path)
    return partial(run_command, capsys)
