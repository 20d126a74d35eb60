"""How users and services call the items of a catalogue: id or title, with or without year, article first or last."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property

from tacit.errors import DataError
from tacit.field.device.similar_names import normalise_text, rank_similar
from tacit.types import Catalog

_YEAR = re.compile(r"\s*\(\d{4}\)$")
_ARTICLE = re.compile(r"(the|an|a)\s+(.+)", re.IGNORECASE)
MOST_ADVICE = 10  # names for which the nearest title is looked up: that is slow in a large catalogue


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

    def find(self, spellings: Sequence[str]) -> int:
        """Return the item called by one of some spellings, the surest first; none or several are a DataError."""
        several: list[int] = []
        for spelling in spellings:
            try:
                return self.catalog.item_ids.index(spelling, "item")
            except DataError:
                found = self._called.get(fold_title(spelling), [])
            if len(found) == 1:
                return found[0]
            several = several or found
        if several:
            raise DataError(f"“{spellings[-1]}” is the title of {len(several)} items.", "Give the id of one.")
        raise DataError(f"The catalogue has no item “{spellings[-1]}”.{self._advice(spellings[-1])}")

    def _advice(self, spelling: str) -> str:
        if self._advised >= MOST_ADVICE:
            return ""
        self._advised += 1
        near = rank_similar(spelling, self._plain, 1)
        return f" Is it “{self.catalog.title(near[0])}”?" if near else ""

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
