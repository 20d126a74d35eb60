"""Check the words of the code: one class per name, one meaning per function name, nouns for types, verbs for functions.

docs/glossary.md says which words we use. A function name may stand in several modules where its arguments are the same
(the recipes of studies, the routes of pages); the functions of the command line are named after its commands.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from pathlib import Path

IRREGULAR = {
    *("begun", "bound", "built", "chosen", "dealt", "drawn", "felt", "given", "gone", "heard", "held", "kept"),
    *("known", "learnt", "lost", "made", "meant", "met", "said", "seen", "sent", "shown", "spelt", "spoken"),
    *("taken", "told", "understood", "written"),
}
NOT_PARTICIPLES = {"embed", "exceed", "feed", "need", "proceed", "seed", "speed"}
KINDS = {"Centralised", "Federated"}  # public: what kind of method it is, as papers say it
BANNED = {  # dialect: the glossary has a term for each
    *("bench", "benches", "fates", "heard", "in_step", "in_time", "letter", "letters", "liar", "liars", "look_every"),
    *("lots", "manner", "overdue", "plainly", "rehearse", "rehearsal", "rested", "said", "speaks", "spoken", "told"),
    *("twin", "twins"),
}


def words_of(name: str) -> list[str]:
    """Return the words of an identifier: `WeightLog` -> weight, log; `draw_over_pi` -> draw, over, pi."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


def is_participle(word: str) -> bool:
    """Say whether a word is a past participle: told, measured."""
    return word in IRREGULAR or (len(word) > 4 and word.endswith("ed") and word not in NOT_PARTICIPLES)


def problems(source: Path) -> list[str]:
    """Return every breach below `source`."""
    found: list[str] = []
    classes: dict[str, list[str]] = defaultdict(list)
    functions: dict[str, list[tuple[str, tuple[str, ...]]]] = defaultdict(list)
    for file in sorted(source.rglob("*.py")):
        shown = str(file.relative_to(source.parent))
        found += _banned(shown, file.stem, "module")
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(f"{shown}:{node.lineno}")
                if is_participle((words_of(node.name) or [""])[-1]) and node.name not in KINDS:
                    found.append(f"{shown}:{node.lineno}: the class '{node.name}' is a participle; types are nouns")
                found += _banned(f"{shown}:{node.lineno}", node.name, "class")
                for child in node.body:
                    name = _member(child)
                    found += _banned(f"{shown}:{child.lineno}", name, f"member of {node.name}") if name else []
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                if len(words_of(node.name)) == 1 and is_participle(node.name.strip("_")):
                    found.append(f"{shown}:{node.lineno}: '{node.name}' is a participle; functions are verbs")
                found += _banned(f"{shown}:{node.lineno}", node.name, "function")
                if not node.name.startswith("_") and file.relative_to(source).parts[0] != "cli":
                    every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                    functions[node.name].append((f"{shown}:{node.lineno}", tuple(one.arg for one in every)))
    for name, places in sorted(classes.items()):
        if len(places) > 1:
            found.append(f"the class '{name}' is defined more than once: {', '.join(places)}")
    for name, defined in sorted(functions.items()):
        if len({arguments for _, arguments in defined}) > 1:
            places = [place for place, _ in defined]
            found.append(f"the function '{name}' has more than one meaning: {', '.join(places)}")
    return found


def _member(node: ast.stmt) -> str | None:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return node.name
    return node.target.id if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else None


def _banned(where: str, name: str, what: str) -> list[str]:
    bad = [word for word in words_of(name) if word in BANNED] or [word for word in BANNED if word == name]
    return [f"{where}: the {what} '{name}' says '{word}'; see docs/glossary.md" for word in bad]


if __name__ == "__main__":
    breaches = problems(Path(__file__).parent.parent / "src" / "tacit")
    print("\n".join(breaches) or "names: one class per name, one meaning per function, no participles, no dialect")
    sys.exit(bool(breaches))
