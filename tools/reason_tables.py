"""Write the tables of reasons in docs/reasons.md and docs/pages.md from the wordings; a test holds them together."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

from tacit.reasons import ROUND, WORDINGS

DOCS = Path(__file__).parent.parent / "docs"
BEGIN, END = "<!-- reasons: made by tools/reason_tables.py -->", "<!-- end of reasons -->"


class _Names(string.Formatter):
    """Shows parameters by their names: `{left:participant}` is '*left* participants'."""

    def get_value(self, key: int | str, args: Any, kwargs: Any) -> Any:
        return str(key)

    def format_field(self, value: Any, format_spec: str) -> Any:
        noun = f" {format_spec}s" if format_spec.isalpha() and len(format_spec) > 1 else ""
        return f"*{value}*{noun}"


def _cells(*texts: str) -> str:
    return "| " + " | ".join(texts) + " |"


def every_reason() -> str:
    """Return the table of all codes: what each is about, what happened, what it means, what to do."""
    rows = [_cells("code", "about", "what happened", "what it means", "what to do"), _cells(*["---"] * 5)]
    for code, wording in WORDINGS.items():
        words = (_Names().format(text) for text in (wording.what, wording.meaning, wording.remedy))
        rows.append(_cells(f"`{code}`", ", ".join(wording.about), *words))
    return "\n".join(rows)


def reasons_of_rounds() -> str:
    """Return the table of the codes that the operator's page can show."""
    rows = [_cells("code", "what the page says", "what to do"), _cells(*["---"] * 3)]
    for code, wording in WORDINGS.items():
        if ROUND in wording.about:
            words = (_Names().format(text) for text in (wording.what, wording.remedy))
            rows.append(_cells(f"`{code}`", *words))
    return "\n".join(rows)


TABLES = {DOCS / "reasons.md": every_reason, DOCS / "pages.md": reasons_of_rounds}


def renewed(text: str, table: str) -> str:
    """Return a page with its table replaced."""
    before, found, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not (found and ended):
        raise SystemExit(f"a page has no place for its table: {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


if __name__ == "__main__":
    for page, make in TABLES.items():
        page.write_text(renewed(page.read_text(encoding="utf-8"), make()), encoding="utf-8")
