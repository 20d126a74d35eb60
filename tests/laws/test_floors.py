"""The tree is the diagram: files import from below, and nothing that learns can name what was held out."""

from __future__ import annotations

from pathlib import Path

import pytest

import floors

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
def test_every_file_imports_only_from_lower_floors() -> None:
    assert floors.problems(ROOT / "src" / "tacit") == []


def test_the_check_itself_catches_a_breach(tmp_path: Path) -> None:
    package = tmp_path / "tacit"
    (package / "methods").mkdir(parents=True)
    (package / "kernels").mkdir()
    (package / "methods" / "peeking.py").write_text("from tacit.heldout import Heldout\n\ndef fit(x: Heldout): ...\n")
    (package / "kernels" / "climbing.py").write_text("def f():\n    from tacit.lab.experiments import run\n")
    found = "\n".join(floors.problems(package))
    assert "code that learns names 'Heldout'" in found
    assert "'kernels' (floor 1) imports 'lab.experiments' (floor 9)" in found
