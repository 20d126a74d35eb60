"""Every picture of the documentation has a command that makes it, and every command makes one that is there."""

from __future__ import annotations

import re
from pathlib import Path

import figures
from tacit.studies.base import reproductions

ROOT = Path(__file__).parents[3]


def test_every_picture_has_a_command() -> None:
    kept = {path.name for path in (ROOT / "docs" / "figures").iterdir()}
    pages = re.findall(r'kept\("([\w-]+)"', (ROOT / "tools" / "screenshots.py").read_text(encoding="utf-8"))
    made = {f"{name}.svg" for name, one in figures.PICTURES.items() if one.made} | {
        f"page-{name}.png" for name in pages
    }
    assert kept == made


def test_studies_that_draw_exist() -> None:
    named = [one.command[3] for one in figures.PICTURES.values() if "reproduce" in one.command]
    assert len(named) == 5
    assert set(named) <= set(reproductions())
