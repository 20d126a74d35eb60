"""The documentation site: every page has its place, every public name its entry, and links survive the gathering."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import site_pages
import tacit


def pages_of(nav: Any) -> list[str]:
    """Return the pages of a navigation, whatever its nesting."""
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [page for part in parts for page in pages_of(part)]


@pytest.fixture
def gathered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(site_pages, "BUILD", tmp_path)
    monkeypatch.setattr(site_pages, "PAGES", tmp_path / "pages")
    site_pages.gather()
    return tmp_path / "pages"


def test_every_page_has_one_place_in_the_navigation(gathered: Path) -> None:
    placed = Counter(pages_of(site_pages.settings()["nav"]))
    there = {page.relative_to(gathered).as_posix() for page in gathered.rglob("*.md")}
    assert placed == Counter(there)


def test_the_reference_has_every_public_name_once(gathered: Path) -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in (gathered / "docs" / "api").glob("*.md"))
    listed = Counter(found.rpartition(".")[2] for found in re.findall(r"^::: (\S+)$", text, re.MULTILINE))
    assert listed == Counter(name for name in tacit.__all__ if name != "__version__")


def test_links_of_gathered_pages_lead_to_gathered_files(gathered: Path) -> None:
    broken = [
        (page.name, target)
        for page in gathered.rglob("*.md")
        for target in re.findall(r"\]\(([^)\s#]+)", page.read_text(encoding="utf-8"))
        if not re.match(r"[a-z]+:", target) and not (page.parent / target).is_file()
    ]
    assert broken == []
