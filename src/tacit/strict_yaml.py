"""Reads YAML strictly. Errors name the line, the problem and what to write instead."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from tacit.errors import ConfigError

MERGE = "tag:yaml.org,2002:merge"  # tag of the key '<<', which merges another group
SHOWN = 60  # characters of a line that a message repeats


def read_yaml(text: str, where: str) -> Any:
    """Return the content of some YAML; a key that occurs twice is an error."""
    try:
        return yaml.load(text, Loader=_StrictLoader)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        what = f"it has a control character (number {ord(text[error.position])})"
        raise ConfigError(f"{where}, line {line}: {what}.", "Save the file as plain text in UTF-8.") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if "quoted scalar" in (error.context or ""):
            mark = error.context_mark or mark  # where the quote opens, not where the file ends
        at = min(mark.line if mark is not None else 0, text.count("\n"))
        written = text.split("\n")[at].strip()
        shown = written if len(written) <= SHOWN else f"{written[:SHOWN]}…"
        what, hint = _explain(error, written)
        raise ConfigError(f'{where}, line {at + 1} ("{shown}"): {what}.', hint) from None


def refuse_missing(path: Path) -> None:
    """Refuse the path of a YAML file that does not exist."""
    if not path.exists():
        raise ConfigError(f"There is no file '{path}'.", "Give the path of a YAML file; see examples/.")


def _explain(error: yaml.MarkedYAMLError, line: str) -> tuple[str, str]:
    """Return what the parser's error means for this line, and what to write instead."""
    problem = error.problem or ""
    opened = error.context_mark.line + 1 if error.context_mark is not None else 0
    found = re.search(r"'(.*)'", problem)
    seen = found[1] if found else ""
    if "cannot start any token" in problem and seen in ("\t", r"\t"):
        return "it is indented with a tab", "Indent with spaces."
    if "cannot start any token" in problem:
        return f"a value cannot begin with '{seen}'", "Put the value in quotes."
    if "mapping values are not allowed" in problem and len(re.findall(r":(?=\s|$)", line)) > 1:
        return "two options are on one line", "Give each a line of its own, or put a value with ':' in quotes."
    if "mapping values are not allowed" in problem:
        why = "it does not fit the line above: it is indented too far, or a space is missing after the ':' above"
        return why, "Write 'name: value', and begin options of one group at the same column."
    if "block end" in problem:
        return "it begins at a column at which no line above begins", "Begin options of one group at the same column."
    if "flow" in (error.context or ""):
        bracket = "[" if "sequence" in str(error.context) else "{"
        return f"the '{bracket}' of line {opened} is not closed, or a comma is missing", "Close it on the same line."
    if "unexpected end of stream" in problem:
        return "a quote that opens here is never closed", "Close it, or leave quotes out."
    if "unknown escape" in problem:
        return f"'\\{seen}' means nothing inside double quotes", "Use single quotes."
    if "undefined alias" in problem:
        return f"'*{seen}' refers to an anchor that does not exist", "Put a value that begins with '*' in quotes."
    if "tag" in problem:
        return "a value that begins with '!' is a YAML tag, and tags are not supported", "Put it in quotes."
    if "another document" in problem:
        return "a second document begins here", "One file is one experiment: remove the '---', or make two files."
    if "sequence entries" in problem:
        return "a list begins on the line of its option", "Write it as [a, b], or begin each '- ' on a line of its own."
    if "unhashable" in problem:
        return "an option's name cannot be a list or a group", "Write 'name: value'."
    if "for merging" in problem:
        return "'<<' merges a group, and its value is not one", "Write '<<: *name', and '&name' where the group begins."
    if "occurs twice" in problem:
        return problem, "Keep one of them."
    return problem or "it cannot be read", "See examples/ for files that work."


class _StrictLoader(yaml.SafeLoader):
    """YAML in which a key that occurs twice is an error; the standard loader takes the last value."""


def _mapping(loader: _StrictLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    lines: dict[Any, int] = {}
    for key, _ in node.value:
        name = key.value if key.tag == MERGE else loader.construct_object(key, deep=True)
        if isinstance(name, dict | list):
            raise yaml.constructor.ConstructorError(None, None, "found unhashable key", key.start_mark)
        if name in lines:
            problem = f"'{name}' occurs twice, first in line {lines[name]}"
            raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
        lines[name] = key.start_mark.line + 1
    return loader.construct_mapping(node, deep=True)


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
