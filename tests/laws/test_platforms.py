"""What only some systems have is asked for, with something in its place: imports, files of /proc, calls of os."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from math import isnan
from pathlib import Path

import pytest

import tacit
from tacit.lab import memory
from tacit.report import finish, folder

SOURCE = Path(tacit.__file__).parent
POSIX_ONLY = {"fcntl", "grp", "pty", "pwd", "resource", "termios"}
WINDOWS_ONLY = {"msvcrt", "winreg"}
CALLS = {"fork", "getuid", "geteuid", "getgid", "mkfifo", "sched_getaffinity", "setsid"}


def is_guarded(above: list[ast.AST]) -> bool:
    """Say whether something stands below a look at the platform, or in a try that expects it to be missing."""
    for node in above:
        if isinstance(node, ast.If) and "platform" in ast.unparse(node.test):
            return True
        if isinstance(node, ast.Try) and any("ImportError" in ast.unparse(h.type or node) for h in node.handlers):
            return True
    return False


def bare(tree: ast.AST, above: tuple[ast.AST, ...] = ()) -> Iterator[str]:
    """Yield what is imported or called without asking whether it is there."""
    for node in ast.iter_child_nodes(tree):
        names: set[str] = set()
        if isinstance(node, ast.Import):
            names = {alias.name.split(".")[0] for alias in node.names} & (POSIX_ONLY | WINDOWS_ONLY)
        elif isinstance(node, ast.ImportFrom):
            names = {(node.module or "").split(".")[0]} & (POSIX_ONLY | WINDOWS_ONLY)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
            names = {node.attr} & CALLS
        if names and not is_guarded([*above, tree]):
            yield from names
        yield from bare(node, (*above, tree))


def test_the_check_sees_what_is_bare_and_what_is_guarded() -> None:
    found = "import os\nimport fcntl\ndef f():\n    return os.getuid()\n"
    assert sorted(bare(ast.parse(found))) == ["fcntl", "getuid"]
    asked = "import sys\nif sys.platform == 'win32':\n    import msvcrt\nelse:\n    import fcntl\n"
    assert list(bare(ast.parse(asked))) == []
    tried = "try:\n    import resource\nexcept ImportError:\n    resource = None\n"
    assert list(bare(ast.parse(tried))) == []


@pytest.mark.slow
def test_nothing_that_only_some_systems_have_is_taken_for_granted() -> None:
    found = {
        path.relative_to(SOURCE).as_posix(): names
        for path in sorted(SOURCE.rglob("*.py"))
        if (names := sorted(bare(ast.parse(path.read_text(encoding="utf-8")))))
    }
    assert found == {}


def test_without_proc_memory_has_no_bound_and_the_processor_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(self: Path, *given: object, **named: object) -> str:
        raise FileNotFoundError(self)

    monkeypatch.setattr(Path, "read_text", missing)
    assert memory.free_memory() == float("inf")
    assert isinstance(folder._processor(), str)


@pytest.mark.slow
def test_without_the_module_resource_a_comparison_is_reported_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(finish, "resource", None)
    town = {"source": "town", "users": 60, "places": 40}
    alone = {"local_only_users": 0}
    comparison = tacit.Comparison(name="here", data=town, evaluation=alone, methods=["random", "most-popular"])
    compared = tacit.compare(comparison, out=tmp_path)
    assert isnan(compared.rows[0].mean("peak_mb"))
    assert not re.search(r"\bnan\b", (tmp_path / "here" / "report.html").read_text(encoding="utf-8"))
