"""Check the words of the code: one class per name, one meaning per function name, nouns for types, verbs for functions.

docs/glossary.md says which words we use. Retired words may be part of no identifier, local names and parameters
included, and may not stand in docstrings and comments of src/. A function name may occur in several modules where its
arguments are the same (the recipes of studies, the routes of pages); the functions of the command line are named after
its commands.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from pathlib import Path

IRREGULAR = {
    *("begun", "bound", "built", "chosen", "dealt", "drawn", "felt", "given", "gone", "heard", "held", "kept"),
    *("known", "learnt", "lost", "made", "meant", "met", "said", "seen", "sent", "shown", "spelt", "spoken"),
    *("taken", "told", "understood", "written"),
}
NOT_PARTICIPLES = {"embed", "exceed", "feed", "need", "proceed", "seed", "speed"}
KINDS = {"Centralised", "Federated"}  # public: what kind of method it is, as papers say it
RETIRED = {  # words that the glossary has a term for; in identifiers
    *("acquaintance", "awake", "bench", "benches", "door", "everybody", "fates", "guards", "hear", "heard", "hears"),
    *("her", "hers", "herself", "letter", "loudness", "parcel", "parcels"),
    *("letters", "liar", "liars", "lies", "looked", "looks", "lots", "manner", "nobody", "overdue", "plainly"),
    *("rehearsal", "rehearse", "rested", "said", "she", "somebody", "speaks", "spoken", "stranger", "strangers"),
    *("told", "turned", "twin", "twins", "unheard"),
}
RETIRED_NAMES = {"in_step", "in_time", "look", "look_every"}
RETIRED_TEXT = re.compile(  # in docstrings and comments
    r"\b(she|her|hers|herself|liars?|fates|overdue|plainly|rehears\w+|letters? (?:get|go|travel)|speaks? of|spoke of|"
    r"spoken of|nobody|everybody|somebody|anybody|strangers?|twins?)\b",
    re.IGNORECASE,
)


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
        text = file.read_text(encoding="utf-8")
        tree = ast.parse(text)
        found += [
            breach for name, line in sorted(names_in(tree)) for breach in _banned(f"{shown}:{line}", name, "name")
        ]
        found += _retired_text(shown, text)
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(f"{shown}:{node.lineno}")
                if is_participle((words_of(node.name) or [""])[-1]) and node.name not in KINDS:
                    found.append(f"{shown}:{node.lineno}: the class '{node.name}' is a participle; types are nouns")
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                if len(words_of(node.name)) == 1 and is_participle(node.name.strip("_")):
                    found.append(f"{shown}:{node.lineno}: '{node.name}' is a participle; functions are verbs")
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


def names_in(tree: ast.AST) -> set[tuple[str, int]]:
    """Return every identifier that a module defines, with its first line: classes, functions, parameters, variables."""
    first: dict[str, int] = {}
    for node in ast.walk(tree):
        name = None
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            name = node.name
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = node.attr
        if name is not None and isinstance(node, (ast.stmt, ast.expr, ast.arg)):
            first[name] = min(node.lineno, first.get(name, node.lineno))
    return set(first.items())


def _banned(where: str, name: str, what: str) -> list[str]:
    bad = [word for word in words_of(name) if word in RETIRED] or [word for word in RETIRED_NAMES if word == name]
    return [f"{where}: the {what} '{name}' says '{word}'; see docs/glossary.md" for word in bad]


def _retired_text(shown: str, text: str) -> list[str]:
    found = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and token.string.startswith('"""')):
            for place, line in enumerate(token.string.splitlines()):
                found += [
                    f"{shown}:{token.start[0] + place}: the text says '{match[0]}'; see docs/glossary.md"
                    for match in RETIRED_TEXT.finditer(line)
                ]
    return found


if __name__ == "__main__":
    breaches = problems(Path(__file__).parent.parent / "src" / "tacit")
    print("\n".join(breaches) or "names: one class per name, one meaning per function, no participles, no dialect")
    sys.exit(bool(breaches))
