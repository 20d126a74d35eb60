"""Check that a file imports only from lower floors, and that nothing that learns can reach held-out items."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

FLOORS = [
    {"types", "errors", "reasons", "refusals", "strict_yaml", "random", "updates"},
    {"kernels"},
    {"data", "models", "privacy", "evaluation"},
    {"methods"},
    {"protocols"},
    {"runtimes"},
    {"config", "device", "coordinator"},
    {"experiments", "comparisons", "report"},
    {"tune", "field", "testing"},
    {"reproduce"},
    {"web"},
    {"cli"},
]
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
LEARNERS = {"kernels", "models", "methods", "privacy", "protocols", "runtimes", "device", "coordinator", "field"}
KEPT_BACK = {"Heldout", "Split"}


def room_of(module: str) -> str:
    """Return the room of `tacit.room.file`."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def imported(tree: ast.AST) -> list[tuple[int, str, str]]:
    """Return (line, module, name) of every import of the package, wherever it stands in the file."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name, "") for alias in node.names if alias.name.startswith("tacit")]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tacit"):
            found += [(node.lineno, str(node.module), alias.name) for alias in node.names]
    return found


def problems(source: Path) -> list[str]:
    """Return every breach of the house rules below `source`."""
    found = []
    for file in sorted(source.rglob("*.py")):
        room = room_of(".".join(file.relative_to(source.parent).with_suffix("").parts))
        tree = ast.parse(file.read_text(encoding="utf-8"))
        if room not in FLOOR:
            if room not in ("__init__", "__main__"):
                found.append(f"{file}: the room '{room}' has no floor; add it to tools/floors.py")
            continue
        for line, module, name in imported(tree):
            other = room_of(module) or name
            if other not in FLOOR:
                continue
            if (
                other != room
                and FLOOR[other] >= FLOOR[room]
                and not (FLOOR[room] in (0, 7) and FLOOR[other] == FLOOR[room])
            ):
                found.append(f"{file}:{line}: '{room}' (floor {FLOOR[room]}) imports '{other}' (floor {FLOOR[other]})")
        if room in LEARNERS:
            for node in ast.walk(tree):
                word = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "name", None)
                if word in KEPT_BACK:
                    found.append(f"{file}:{getattr(node, 'lineno', 0)}: code that learns names '{word}'")
    return found


if __name__ == "__main__":
    breaches = problems(Path(__file__).parent.parent / "src" / "tacit")
    print(
        "\n".join(breaches) or "floors: every file imports only from below, and nothing that learns sees held-out items"
    )
    sys.exit(bool(breaches))
