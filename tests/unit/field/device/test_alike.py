"""Names that are nearly those of a catalogue are found; names that are not are not offered."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tacit.field.device.similar_names import normalise_text, rank_similar

TITLES = [
    "Library of Luna",
    "Hill Hotel",
    "Café Luna",
    "Kite Shop",
    "Old Town Museum of Modern Art",
    "Matrix, The (1999)",
    "Matrix Reloaded, The (2003)",
    "Harbour Bakery",
]
NAMES = [normalise_text(title) for title in TITLES]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Libary of Luna", "Library of Luna"),  # a letter missing
        ("hlil hotel", "Hill Hotel"),  # two letters exchanged
        ("CAFE LUNA", "Café Luna"),  # capitals and an accent
        ("Luna Cafe", "Café Luna"),  # another order
        ("shop, kite", "Kite Shop"),  # other signs between words
        ("The Matrix (1999)", "Matrix, The (1999)"),  # an article in front
        ("modern museem", "Old Town Museum of Modern Art"),  # some of the words, one of them wrong
        ("bakry", "Harbour Bakery"),  # one word, wrong
    ],
)
def test_a_name_is_found_although_it_is_written_otherwise(text: str, title: str) -> None:
    assert TITLES[rank_similar(text, NAMES, 3)[0]] == title


@pytest.mark.parametrize("text", ["", "   ", "zzzzqqqq", "xylophone quartet", "!?"])
def test_what_is_like_nothing_is_offered_nothing(text: str) -> None:
    assert rank_similar(text, NAMES, 3) == []


def test_an_empty_catalogue_and_a_limit() -> None:
    assert rank_similar("Hill Hotel", [], 3) == []
    assert rank_similar("luna", ["luna a", "luna b", "luna c"], 2) == [0, 1]


def test_ties_are_in_catalogue_order_also_beyond_the_compared_names() -> None:
    assert rank_similar("luna", ["luna"] * 500, 3) == [0, 1, 2]


def test_only_names_that_are_nearly_as_like_are_offered_beside_the_likest() -> None:
    found = [TITLES[at] for at in rank_similar("Matrix The 1999", NAMES, 3)]
    assert found == ["Matrix, The (1999)"]


def test_the_library_is_loaded_when_names_are_compared_and_not_before() -> None:
    code = "import sys, tacit.cli.app, tacit.field.device; sys.exit('rapidfuzz' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0
