"""What the quickstart says is true: its commands run in their order in a fresh folder and print what the page shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.page_steps import DOCS, follow

pytestmark = [pytest.mark.slow, pytest.mark.data]

ELSEWHERE = {"tacit data get ml-100k": "the network", "make demo": "tools/check_wheel.py runs the demo"}
REFUSED = {"tacit run --method ease --data ml-100k --set method.l2=300"}


def test_every_command_runs_in_order_and_prints_what_is_shown(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    real_data: Callable[[str], Path],
) -> None:
    real_data("ml-100k")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    assert follow(DOCS / "quickstart.md", capsys, ELSEWHERE, REFUSED) > 8
