"""Names: one class per name, one meaning per function name, nouns for types, verbs for functions."""

from __future__ import annotations

from pathlib import Path

import pytest

import names

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
def test_every_name_keeps_the_rules() -> None:
    assert names.problems(ROOT / "src" / "tacit") == []


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({"a.py": "class Row: ...", "b.py": "class Row: ..."}, 1),
        ({"a.py": "def read(path): ...", "b.py": "def read(node, peer): ..."}, 1),
        ({"a.py": "def recipe(source): ...", "b.py": "def recipe(source): ..."}, 0),
        ({"a.py": "class Told: ..."}, 2),
        ({"a.py": "def draw(fates): ..."}, 1),
        ({"a.py": "def draw(key):\n    lots = key\n    lots = lots + 1"}, 1),
        ({"a.py": "class A:\n    def __init__(self, x):\n        self.guards = x"}, 1),
        ({"a.py": "x = 1  # what she sent"}, 1),
        ({"a.py": '"""Rows that nobody speaks of."""'}, 2),
        ({"a.py": "import liars\n\nx = liars.lies"}, 0),
        ({"a.py": "def measured(): ..."}, 1),
        ({"a.py": "class SealedShares:\n    seed: int"}, 0),
        ({"liars.py": "", "a.py": "class A:\n    twin: int"}, 2),
    ],
)
def test_the_check_itself_catches_a_breach(files: dict[str, str], count: int, tmp_path: Path) -> None:
    package = tmp_path / "tacit"
    package.mkdir()
    for name, text in files.items():
        (package / name).write_text(text)
    assert len(names.problems(package)) == count
