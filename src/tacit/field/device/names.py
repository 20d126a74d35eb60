"""How users and services call the items of a catalogue: id or title, with or without year, article first or last."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tacit.errors import DataError
from tacit.field.device.similar_names import normalise_text, rank_similar
from tacit.languages.sentences import Sentence
from tacit.types import Catalog

if TYPE_CHECKING:
    from tacit.field.device.import_lines import ExportLine

_YEAR = re.compile(r"\s*\(\d{4}\)$")
_ARTICLE = re.compile(r"(the|an|a)\s+(.+)", re.IGNORECASE)
MOST_ADVICE = 50  # names for which the nearest title is looked up: that is slow in a large catalogue


@dataclass(frozen=True)
class TitleMatch:
    """The item that a line means, and why that is doubtful, if it is; no item where several have the title."""

    item: int | None
    doubt: str = ""


class Names:
    """An index of a catalogue by what its items are called."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._advised = 0

    @cached_property
    def _called(self) -> dict[str, list[int]]:
        """Items by folded title; a title with its year is also found without it, where no other is called so."""
        exact: dict[str, list[int]] = {}
        short: dict[str, list[int]] = {}
        for item, title in enumerate(self.catalog.titles or ()):
            exact.setdefault(fold_title(title), []).append(item)
            if _YEAR.search(title):
                short.setdefault(fold_title(_YEAR.sub("", title)), []).append(item)
        return {**short, **exact}

    def match(self, line: ExportLine) -> TitleMatch:
        """Return the item that a line means. An id counts only with its title, or where it is said to be of this
        catalogue; a title with another year, or nearly the same, is doubtful."""
        placed = self._place(line.item)
        sure, why = self._by_title(line)
        if placed is not None:
            agrees = bool(line.spellings) and self._agrees(placed, line)
            if agrees or (line.is_ours and not line.spellings):
                return TitleMatch(placed)
            if sure is None and not why:
                if line.spellings:
                    return TitleMatch(
                        placed,
                        Sentence("The id is that of “{title}”, another title.", title=self.catalog.title(placed)),
                    )
                return TitleMatch(placed, "The id may be of another catalogue.")
        if sure is not None or why:
            return TitleMatch(sure, why)
        for spelling in line.vague:
            found = self._called.get(fold_title(spelling), [])
            if len(found) == 1:
                return TitleMatch(found[0], "The title is the same; the artist is not in the catalogue.")
        if not line.spellings:
            raise DataError(
                Sentence("The catalogue has no id “{item}”.", item=line.item)
                if line.item
                else "The row names no item.",
            )
        return self._similar(line.spellings[-1])

    def _place(self, label: str) -> int | None:
        try:
            return self.catalog.item_ids.index(label, "item") if label else None
        except DataError:
            return None

    def _agrees(self, item: int, line: ExportLine) -> bool:
        """Say whether an item has the title of a line, and no other year."""
        title = self.catalog.title(item)
        called = {fold_title(title), fold_title(_YEAR.sub("", title))}
        return not self._is_other_year(item, line.year) and any(fold_title(one) in called for one in line.spellings)

    def _is_other_year(self, item: int, year: str) -> bool:
        found = _YEAR.search(self.catalog.title(item))
        return bool(year) and found is not None and found[0].strip(" ()") != year

    def _by_title(self, line: ExportLine) -> tuple[int | None, str]:
        """Return the item of a title, and why that is doubtful, if it is."""
        several = 0
        for spelling in line.spellings:
            found = self._called.get(fold_title(spelling), [])
            if len(found) == 1:
                if self._is_other_year(found[0], line.year):
                    return found[0], Sentence("The title is the same, and the year is not {year}.", year=line.year)
                return found[0], ""
            several = several or len(found)
        if not several:
            return None, ""
        return None, Sentence("“{title}” is the title of {n} items.", title=line.spellings[-1], n=several)

    def _similar(self, spelling: str) -> TitleMatch:
        if self._advised < MOST_ADVICE:
            self._advised += 1
            near = rank_similar(spelling, self._plain, 1)
            if near:
                return TitleMatch(near[0], Sentence("Is it “{title}”?", title=self.catalog.title(near[0])))
        raise DataError(Sentence("The catalogue has no item “{spelling}”.", spelling=spelling))

    @cached_property
    def _plain(self) -> list[str]:
        return [normalise_text(title) for title in self.catalog.titles or ()]


def fold_title(title: str) -> str:
    """Return a title as it is compared.

    >>> fold_title("  Café  LUNA ")
    'café luna'
    """
    return " ".join(title.casefold().split())


def title_spellings(title: str, year: str = "") -> Iterator[str]:
    """Yield the ways in which catalogues write a title, the surest first.

    >>> list(title_spellings("The Matrix", "1999"))
    ['The Matrix (1999)', 'Matrix, The (1999)', 'The Matrix', 'Matrix, The']
    """
    article = _ARTICLE.fullmatch(title.strip())
    ways = [title.strip(), *([f"{article[2]}, {article[1]}"] if article else [])]
    if year:
        yield from (f"{way} ({year})" for way in ways)
    yield from ways
