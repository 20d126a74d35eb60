"""What the quickstart says is true: its commands run in their order in a fresh folder and print what the page shows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.commands import run_command

pytestmark = [pytest.mark.slow, pytest.mark.data]

PAGE = Path(__file__).parents[2] / "docs" / "quickstart.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SAVE = re.compile(r"Save this as `([\w.]+)`:\s*\Z")
ELSEWHERE = {"tacit data get ml-100k": "the network", "make demo": "tools/check_wheel.py runs the demo"}
REFUSED = {"tacit run --method ease --data ml-100k --set method.l2=300"}


def steps() -> Iterator[tuple[str, list[str]]]:
    """Yield each command of the page with the lines that it shows as printed; files to save come as `name:`."""
    text, last = PAGE.read_text(encoding="utf-8"), 0
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


def test_every_command_runs_in_order_and_prints_what_is_shown(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    real_data: Callable[[str], Path],
) -> None:
    real_data("ml-100k")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    missing, run = list[str](), 0
    for command, shown in steps():
        if command.endswith(":"):
            Path(command[:-1]).write_text("\n".join(shown) + "\n", encoding="utf-8")
        elif "import tacit" in command:
            exec(command, {})
            missing += absent(capsys.readouterr().out, shown)
        elif command not in ELSEWHERE:
            code, out, err = run_command(capsys, *typed(command))
            assert (code != 0) == (command in REFUSED), (command, out, err)
            missing += absent(out + err, shown)
            run += 1
    assert missing == []
    assert run > 8
