"""The notebooks run from top to bottom in a fresh folder, and what their cells end with can be shown."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))


def shown_by(source: str, names: dict[str, Any]) -> Any:
    """Run a cell; return the value of its last line, which a notebook shows."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = [shown_by("".join(cell["source"]), names) for cell in cells if cell["cell_type"] == "code"]
    assert not [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")], "outputs are not kept"
    tables = [value._repr_html_() for value in shown if hasattr(value, "_repr_html_")]
    assert all("<table" in table for table in tables)
    assert tables or path.stem == "deployment"


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["deployment", "lab", "privacy"]
