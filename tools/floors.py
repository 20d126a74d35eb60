"""Check that a file imports only from lower floors, and that nothing that learns can reach held-out items.

A room is a folder or file of the package. Where part of a folder stands on another floor, it is named with a dot:
`lab.experiments` runs above the simulation, `field.device` and `field.coordinator` below the carriers between them.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

FLOORS = [
    {
        "types",
        "heldout",
        "errors",
        "languages",
        "reasons",
        "refusals",
        "plain_text",
        "strict_yaml",
        "random",
        "updates",
        "numerics",
        "locks",
    },
    {"kernels"},
    {"data", "models", "privacy", "evaluation", "storage"},
    {"methods"},
    {"protocols"},
    {"wire"},
    {"serving"},
    {"lab", "field.device", "field.coordinator"},
    {"config"},
    {
        *("report", "lab.experiments", "lab.jobs", "lab.trials", "lab.comparisons", "lab.fitting", "lab.leak_check"),
        *("lab.matrix_model", "lab.mlflow_log"),
    },
    {"lab.tuning", "field", "testing"},
    {"studies"},
    {"web"},
    {"cli"},
]
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
TOGETHER = {FLOOR["types"], FLOOR["report"]}  # floors whose rooms may import each other
LEARNERS = {
    *("kernels", "models", "methods", "privacy", "protocols", "wire", "serving", "lab"),
    *("field", "field.device", "field.coordinator"),
}
KEPT_BACK = {"Heldout", "Split"}


def room_of(module: str) -> str:
    """Return the room of `tacit.room.file`: the longest one that has a floor, else the folder."""
    parts = module.split(".")[1:]
    for size in range(len(parts), 0, -1):
        if ".".join(parts[:size]) in FLOOR:
            return ".".join(parts[:size])
    return parts[0] if parts else ""


def is_forbidden(room: str, other: str, is_lazy: bool) -> bool:
    """Say whether an import is refused whatever the floors: of the lab by the field, and of studies by the product."""
    house, wing = room.split(".")[0], other.split(".")[0]
    if house == "field" and wing == "lab":
        return True
    return wing == "studies" and house != "studies" and not (house == "cli" and is_lazy)


def lazy_parts(tree: ast.AST) -> set[int]:
    """Return the nodes that run only when they are needed: those inside functions, and those for type checkers."""
    found: set[int] = set()
    for node in ast.walk(tree):
        is_checked = isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        if is_checked or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found |= {id(child) for child in ast.walk(node)}
    return found


def imports_in(tree: ast.AST) -> list[tuple[ast.stmt, str]]:
    """Return (statement, module) of every import of the package, wherever it stands in the file."""
    found: list[tuple[ast.stmt, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node, alias.name) for alias in node.names if alias.name.split(".")[0] == "tacit"]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tacit":
            found += [(node, f"{node.module}.{alias.name}") for alias in node.names]
    return found


def problems(source: Path) -> list[str]:
    """Return every breach of the house rules below `source`."""
    found = []
    for file in sorted(source.rglob("*.py")):
        room = room_of(".".join(file.relative_to(source.parent).with_suffix("").parts).removesuffix(".__init__"))
        tree = ast.parse(file.read_text(encoding="utf-8"))
        if room not in FLOOR:
            if room not in ("", "__main__"):
                found.append(f"{file}: the room '{room}' has no floor; add it to tools/floors.py")
            continue
        lazy = lazy_parts(tree)
        for node, module in imports_in(tree):
            other = room_of(module)
            if other not in FLOOR or other == room:
                continue
            if is_forbidden(room, other, id(node) in lazy):
                found.append(f"{file}:{node.lineno}: '{room}' must not import '{other}'")
            elif FLOOR[other] > FLOOR[room] or (FLOOR[other] == FLOOR[room] and FLOOR[room] not in TOGETHER):
                found.append(
                    f"{file}:{node.lineno}: '{room}' (floor {FLOOR[room]}) imports '{other}' (floor {FLOOR[other]})"
                )
        if room in LEARNERS:
            for child in ast.walk(tree):
                word = getattr(child, "id", None) or getattr(child, "attr", None) or getattr(child, "name", None)
                if word in KEPT_BACK:
                    found.append(f"{file}:{getattr(child, 'lineno', 0)}: code that learns names '{word}'")
    return found


if __name__ == "__main__":
    breaches = problems(Path(__file__).parent.parent / "src" / "tacit")
    print(
        "\n".join(breaches) or "floors: every file imports only from below, and nothing that learns sees held-out items"
    )
    sys.exit(bool(breaches))
