"""One row of a history."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.types import Label


@dataclass(frozen=True)
class HistoryEntry:
    """One interaction of the user."""

    item: Label
    when: int | None = None  # unix seconds
    value: float | None = None


@dataclass(frozen=True)
class ImportResult:
    """What an import did: rows that are new, known before, known and dated now, and (line, text, why) of the others."""

    added: int
    known_already: int
    dated: int
    not_understood: list[tuple[int, str, str]]
