"""Names that are nearly those of a catalogue: a letter wrong, an accent missing, words the other way round."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from difflib import SequenceMatcher
from heapq import nlargest

LOOKED_AT = 60  # names that share the most with what was written are compared letter by letter
SHARED = 0.3  # share of three-letter pieces that a name must have in common to be looked at
MARGIN = 0.12  # others are offered beside the likest if they are nearly as like
NEAR = 0.62  # likeness from which a name is worth being offered


def plainly(text: str) -> str:
    """Return a text without capitals, accents and spare blanks.

    >>> plainly("  Café  LÜNA ")
    'cafe luna'
    """
    folded = text.casefold()
    if not folded.isascii():
        folded = "".join(sign for sign in unicodedata.normalize("NFKD", folded) if not unicodedata.combining(sign))
    return " ".join(folded.split())


def alike(text: str, names: Sequence[str], most: int) -> list[int]:
    """Return the places of the names that are most like a text, the likest first; `names` must be `plainly` written.

    >>> alike("Libary of Luna", ["library, luna", "bakery", "cafe luna"], 2)
    [0]
    """
    asked = plainly(text)
    pieces = {f" {asked} "[at : at + 3] for at in range(len(asked))}
    if not pieces:
        return []
    shared = [0] * len(names)
    for piece in pieces:
        bare = piece.strip()  # a blank at the end of a piece says where a word begins or ends
        for at, name in enumerate(names):
            if bare in name and (piece in name or piece in f" {name} "):
                shared[at] += 1
    least = SHARED * len(pieces)
    ranked = nlargest(LOOKED_AT, (at for at, n in enumerate(shared) if n >= least), key=lambda at: (shared[at], -at))
    scored = [(_likeness(asked, names[at]), -at) for at in ranked]
    least_like = max(NEAR, max(scored, default=(0.0, 0))[0] - MARGIN)
    return [-at for score, at in nlargest(most, scored) if score >= least_like]


def _likeness(asked: str, name: str) -> float:
    """Return how like two names are, from 0 to 1: as they stand, by their words in any order, or by the words asked."""
    words, other = _words(asked), _words(name)
    in_order = SequenceMatcher(None, asked, name).ratio()
    any_order = SequenceMatcher(None, " ".join(sorted(words)), " ".join(sorted(other))).ratio()
    best = [max((SequenceMatcher(None, word, one).ratio() for one in other), default=0.0) for word in words]
    by_word = sum(len(word) * score for word, score in zip(words, best, strict=True)) / max(1, sum(map(len, words)))
    return max(in_order, any_order, 0.95 * by_word if min(best, default=0.0) > 0.5 else 0.0)


def _words(text: str) -> list[str]:
    return "".join(sign if sign.isalnum() else " " for sign in text).split()
