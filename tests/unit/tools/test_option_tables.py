"""The page of options is the one that the code makes."""

from __future__ import annotations

import option_tables


def test_the_page_of_options_is_current() -> None:
    assert option_tables.PAGE.read_text(encoding="utf-8") == option_tables.page(), "run tools/option_tables.py"


def test_every_option_is_described() -> None:
    cells = [line.split(" | ") for line in option_tables.page().splitlines() if line.startswith("| `")]
    assert len(cells) > 300
    assert not [row[0] for row in cells if not row[-1].strip(" |")]
