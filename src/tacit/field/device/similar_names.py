"""Names that are nearly those of a catalogue: a letter wrong, an accent missing, words the other way round."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from heapq import nlargest

COMPARED = 200  # names that are nearest in letters, whatever the order of their words, are compared word by word
MARGIN = 12  # others are offered beside the likest if they are nearly as like
NEAR = 68  # likeness in per cent from which a name is worth being offered


def normalise_text(text: str) -> str:
    """Return a text without capitals, accents and spare blanks.

    >>> normalise_text("  Café  LÜNA ")
    'cafe luna'
    """
    folded = text.casefold()
    if not folded.isascii():
        folded = "".join(sign for sign in unicodedata.normalize("NFKD", folded) if not unicodedata.combining(sign))
    return " ".join(folded.split())


def rank_similar(text: str, names: Sequence[str], most: int) -> list[int]:
    """Return the places of the names that are most like a text, the likest first; `names` must be `normalise_text`
    written.

    >>> rank_similar("Libary of Luna", ["library, luna", "bakery", "cafe luna"], 2)
    [0]
    """
    from rapidfuzz import fuzz, process

    asked = normalise_text(text)
    near = process.extract(asked, names, scorer=fuzz.token_sort_ratio, limit=COMPARED)
    scored = [(_similarity(asked, name), -at) for name, _, at in near]
    least = max(NEAR, max(scored, default=(0.0, 0))[0] - MARGIN)
    return [-at for score, at in nlargest(most, scored) if score >= least]


def _similarity(asked: str, name: str) -> float:
    """Return how like two names are in per cent: as they stand, by their words in any order, or by the words asked."""
    from rapidfuzz import fuzz

    words, other = _words(asked), _words(name)
    in_order, any_order = fuzz.ratio(asked, name), fuzz.token_sort_ratio(" ".join(words), " ".join(other))
    best = [max((fuzz.ratio(word, one) for one in other), default=0.0) for word in words]
    by_word = sum(len(word) * score for word, score in zip(words, best, strict=True)) / max(1, sum(map(len, words)))
    return max(in_order, any_order, 0.95 * by_word if min(best, default=0.0) > 50 else 0.0)


def _words(text: str) -> list[str]:
    return "".join(sign if sign.isalnum() else " " for sign in text).split()
