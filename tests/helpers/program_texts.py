"""Every English text that a program shows to a user on their page: of errors, of refusals, and of rows of a file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from string import Formatter

import tacit
from tacit import errors
from tacit.field.device import import_dates, import_json, import_lines, sealed_root
from tacit.languages.sentences import WORDS
from tacit.reasons import DEVICE, WORDINGS

SOURCE = Path(tacit.__file__).parent
ONLY_COMMANDS = {"device_path", "file_format", "former_files", "recovery", "store", "vault"}  # before a page is open
PEERS = ("founding", "membership", "peer_status", "peer_history", "peer_file", "zenoh_carrier", "background")
PERSONS = ("own", "for_you", "history", "mine", "peers", "sharing", "sent", "device_view", "frame", "guard")
MODULES = (
    *(f"field/device/{path.name}" for path in sorted((SOURCE / "field/device").glob("*.py"))),
    *(f"field/peer/{name}.py" for name in PEERS),
    *(f"web/{name}.py" for name in PERSONS),
    *("field/invitations.py", "field/bounded_answers.py", "wire/versions.py"),
    *("field/carriers/fleet_node.py", "field/carriers/participant.py"),
)
OTHERS = {"Not Found", "Method Not Allowed"}  # of the web framework
FROM_FILES = (import_lines.SEEN_LATER, import_json.AD, import_json.SHORT, sealed_root.RESTORE)
KINDS = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.TacitError)}
PLACES = {"Sentence": (0,), "__init__": (0, 1), "HTTPException": (1,), "row": (0,), "TitleMatch": (1,)}  # of sentences


def of_reasons() -> set[str]:
    """Return the templates of all reasons that concern a device, and the nouns that they count."""
    found: set[str] = set()
    for wording in WORDINGS.values():
        if DEVICE in wording.about:
            found |= {wording.what, wording.meaning, wording.remedy}
    return found


def of_errors() -> set[str]:
    """Return the texts of errors that modules of the page can raise, and of rows that an import leaves out."""
    found = {text for module in MODULES if Path(module).stem not in ONLY_COMMANDS for text in _said(module)}
    return {*found, *FROM_FILES, *import_dates.MONTH_NAMES, *OTHERS}


def counts_in(texts: set[str]) -> set[str]:
    """Return '{n} device' and '{n} devices' for each template with `{left:device}`."""
    nouns = {spec for text in texts for _, _, spec, _ in Formatter().parse(text) if spec and len(spec) > 1}
    words = {noun for noun in nouns if noun.isalpha()}
    return {f"{{n}} {noun}{end}" for noun in words for end in ("", "s")}


def every_program_text() -> set[str]:
    """Return all of them."""
    said = of_reasons() | of_errors()
    return {text for text in said if WORDS.search(_bare(text))} | counts_in(said)


def _bare(template: str) -> str:
    return "".join(text for text, *_ in Formatter().parse(template))


def _said(module: str) -> Iterator[str]:
    """Yield the texts of a module; a text that is formatted before a `Sentence` can hold it cannot be translated."""
    tree = ast.parse((SOURCE / module).read_text(encoding="utf-8"))
    named = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    kinds = KINDS | {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and {getattr(base, "id", "") for base in node.bases} & KINDS
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            places = (0, 1) if called in kinds else PLACES.get(called, ())
            given = [node.args[place] for place in places if place < len(node.args)]
            given += [word.value for word in node.keywords if word.arg == "left_out" and called == "Act"]
            yield from chain.from_iterable(_texts(one, named, module) for one in given)
        elif isinstance(node, ast.FunctionDef) and node.name in ("left_out_of", "_not_done"):
            returned = (part.value for part in ast.walk(node) if isinstance(part, ast.Return) and part.value)
            yield from chain.from_iterable(_texts(one, named, module) for one in returned)


def _texts(node: ast.expr, named: dict[str, ast.expr], module: str) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from chain(_texts(node.body, named, module), _texts(node.orelse, named, module))
    elif isinstance(node, ast.Name) and node.id in named and isinstance(named[node.id], ast.Constant | ast.IfExp):
        yield from _texts(named[node.id], named, module)
    elif isinstance(node, ast.JoinedStr):
        raise AssertionError(
            f"{module}, line {node.lineno}: a page cannot translate this; use Sentence: {ast.unparse(node)}"
        )
