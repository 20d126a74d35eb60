"""Check how tests are written: each asserts, none imports another one, none sleeps, waits without a bound or times."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

CHECKS = {"check", "fail", "raises", "run_state_machine_as_test", "warns"}  # calls that fail a test by themselves
EXPECT = {"refused"}  # what fails a test unless the block below `with` raises
WAITS = {"acquire", "communicate", "join", "wait"}  # methods that wait for ever when they are given nothing
NEED_TIMEOUT = {"HTTPConnection", "check_call", "check_output", "create_connection", "urlopen"}
CLOCKS = {"monotonic", "perf_counter", "process_time", "thread_time"}
WAITING = Path("helpers", "waiting.py")  # the one place that sleeps and looks at a clock
ALLOWED = {
    ("laws/test_secure.py", "laws.test_federated"),  # the laws about federated methods have no helpers of their own yet
}


def name_of(call: ast.Call) -> str:
    """Return the last part of what is called: `raises` for `pytest.raises(...)`."""
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def asserts(test: ast.AST) -> bool:
    """Say whether a test asserts, or calls something that does so by its name."""
    names = [name_of(node) for node in ast.walk(test) if isinstance(node, ast.Call)]
    is_check = any(name in CHECKS or name.startswith(("assert_", "check_")) for name in names)
    blocks = [node.context_expr for node in ast.walk(test) if isinstance(node, ast.withitem)]
    expects = any(isinstance(block, ast.Call) and name_of(block) in EXPECT for block in blocks)
    return is_check or expects or any(isinstance(node, ast.Assert) for node in ast.walk(test))


def imported(node: ast.AST) -> list[str]:
    """Return the modules that a statement imports."""
    if isinstance(node, ast.ImportFrom):
        return [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


def waits(call: ast.Call) -> str:
    """Return what is wrong with how a call waits, or nothing."""
    name, given = name_of(call), {keyword.arg for keyword in call.keywords}
    owner = getattr(getattr(call.func, "value", None), "id", "")
    if name == "sleep":
        return "sleeps; wait for a condition with helpers.waiting.wait_until"
    if name in WAITS and isinstance(call.func, ast.Attribute) and not call.args and not given:
        return f"calls {name}() without a bound"
    if (name in NEED_TIMEOUT or (name == "run" and owner == "subprocess")) and not given & {"timeout", None}:
        return f"calls {name} without a timeout"
    return f"looks at a clock ({name}); no test asserts time" if name in CLOCKS and owner == "time" else ""


def problems(tests: Path) -> list[str]:
    """Return every breach of these rules below `tests`."""
    return [f"{tests / file}:{line}: {what}" for file, line, what in sorted(_breaches(tests))]


def _breaches(tests: Path) -> Iterator[tuple[Path, int, str]]:
    for path in tests.rglob("*.py"):
        file = path.relative_to(tests)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                if (file.as_posix(), node.name) not in ALLOWED and file.name.startswith("test_") and not asserts(node):
                    yield file, node.lineno, f"'{node.name}' asserts nothing"
            elif isinstance(node, ast.Call) and file != WAITING and (wrong := waits(node)):
                yield file, node.lineno, wrong
            for module in imported(node):
                if module.split(".")[-1].startswith("test_") and (file.as_posix(), module) not in ALLOWED:
                    yield file, node.lineno, f"imports the test file '{module}'; what tests share belongs to helpers"


if __name__ == "__main__":
    breaches = problems(Path(__file__).parent.parent / "tests")
    print("\n".join(breaches) or "tests: each asserts, none imports another one, and every wait has a bound")
    sys.exit(bool(breaches))
