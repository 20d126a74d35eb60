"""A page of the documentation as a reader follows it: files to save, commands to type, and what they should print."""

from __future__ import annotations

import re
import shlex
from collections.abc import Container, Iterator
from pathlib import Path

import pytest

from helpers.commands import run_command

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SAVE = re.compile(r"Save this as `([\w.]+)`[^`\n]*:\s*\Z")


def steps(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each command of a page with the lines that it shows as printed; files to save come as `name:`."""
    text, last = page.read_text(encoding="utf-8"), 0
    command, shown = "", list[str]()
    for block in BLOCK.finditer(text):
        save, last = SAVE.search(text[last : block.start()]), block.end()
        if save:
            yield f"{save[1]}:", block[2].splitlines()
            continue
        if block[1]:
            if command:
                yield command, shown
            command, shown = (block[2], []) if block[1] == "python" and "@register" not in block[2] else ("", [])
            continue
        for line in block[2].splitlines():
            if re.match(r"(\$ )?(tacit|make) ", line):
                if command:
                    yield command, shown
                command, shown = line.removeprefix("$ "), []
            elif line.strip() not in ("", "..."):
                shown.append(line)
    if command:
        yield command, shown


def words_of(line: str) -> str:
    """Return the words of a line: no drawing of tables, no width, no fingerprint of a configuration."""
    line = re.sub(r"(-42-)[0-9a-f]{8}\b", r"\1*", line)
    return " ".join(re.sub(r"[─━┃│┏┳┓┡╇┩└┴┘┆·]", " ", line).split())


def absent(printed: str, shown: list[str]) -> list[str]:
    """Return the lines that a page shows and a command did not print."""
    found = {words_of(line) for line in printed.splitlines()}
    return [line for line in shown if words_of(line) not in {*found, ""}]


def typed(command: str) -> list[str]:
    """Return a command as a shell passes it on: a pattern that leads to more than one folder is a mistake here."""
    found = []
    for word in shlex.split(command)[1:]:
        matches = [str(path) for path in Path().glob(word)] if "*" in word else [word]
        assert len(matches) == 1, f"{word} leads to {matches}"
        found += matches
    return found


def follow(
    page: Path, capsys: pytest.CaptureFixture[str], elsewhere: Container[str] = (), refused: Container[str] = ()
) -> int:
    """Run a page in the current folder, but for what is tested elsewhere; return how many commands were run."""
    missing, run = list[str](), 0
    for command, shown in steps(page):
        if command.endswith(":"):
            Path(command[:-1]).write_text("\n".join(shown) + "\n", encoding="utf-8")
        elif "import tacit" in command:
            exec(command, {})
            missing += absent(capsys.readouterr().out, shown)
        elif command not in elsewhere:
            code, out, err = run_command(capsys, *typed(command))
            assert (code != 0) == (command in refused), (command, out, err)
            missing += absent(out + err, shown)
            run += 1
    assert missing == []
    return run
