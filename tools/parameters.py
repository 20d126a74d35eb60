"""Check that no function outside the kernels takes more than seven parameters: more of them belong in an object."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

MOST = 7
KERNELS = "kernels"  # arrays in, arrays out: compiled code takes no objects
ALLOWED: frozenset[str] = frozenset()  # "room/file.py: Class.function", while it is being rewritten


def functions(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield every function with its name, that of its class before it."""
    for node in ast.iter_child_nodes(tree):
        name = f"{inside}{getattr(node, 'name', '')}"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield name, node
        named = isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        yield from functions(node, f"{name}." if named else inside)


def n_parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count what a caller may give; `self` and `cls` are not given."""
    names = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    names += [one.arg for one in (node.args.vararg, node.args.kwarg) if one is not None]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def problems(source: Path, allowed: frozenset[str] = ALLOWED) -> list[str]:
    """Return every function below `source` with too many parameters, and what is allowed without need."""
    found, needed = [], set()
    for file in sorted(source.rglob("*.py")):
        place = file.relative_to(source)
        if place.parts[0] == KERNELS:
            continue
        for name, node in functions(ast.parse(file.read_text(encoding="utf-8"))):
            called, count = f"{place.as_posix()}: {name}", n_parameters(node)
            if count > MOST and called in allowed:
                needed.add(called)
            elif count > MOST:
                found.append(
                    f"{file}:{node.lineno}: {name} takes {count} parameters; at most {MOST}: make them an object"
                )
    return found + [f"tools/parameters.py: '{name}' needs no exception any more" for name in sorted(allowed - needed)]


if __name__ == "__main__":
    breaches = problems(Path(__file__).parent.parent / "src" / "tacit")
    print("\n".join(breaches) or f"parameters: no function outside the kernels takes more than {MOST}")
    sys.exit(bool(breaches))
