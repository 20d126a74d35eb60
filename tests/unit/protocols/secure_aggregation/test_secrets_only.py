"""Secrets come from the system: nothing in the secure sum may draw from a generator that can be replayed."""

from __future__ import annotations

import ast
from pathlib import Path

import tacit.protocols.secure_aggregation

FOLDER = Path(tacit.protocols.secure_aggregation.__file__).parent
REPLAYABLE = {"random", "numpy.random", "tacit.random"}


def test_no_file_of_the_secure_sum_can_draw_what_could_be_replayed() -> None:
    files = sorted(FOLDER.glob("*.py"))
    assert len(files) > 10
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
            assert not REPLAYABLE & set(names), f"{file.name} imports {names}"
            if isinstance(node, ast.Attribute) and node.attr == "random":
                raise AssertionError(f"{file.name}:{node.lineno} uses a generator of numpy")
