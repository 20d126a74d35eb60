"""The documentation is true: links lead somewhere, files and modules that it names exist, its methods run."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import typer
import yaml

from helpers.waiting import LONG
from tacit.cli.app import app, import_commands
from tacit.methods.base import Federated, build_federated
from tacit.protocols.federated import UpdatePath, device_round
from tacit.random import Key
from tacit.studies.base import reproductions
from tacit.testing import two_tastes
from tacit.updates import Ring, Total

import_commands()
ROOT = Path(__file__).parents[2]
HISTORY = ROOT / "CHANGELOG.md"  # names what was renamed, too
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md"), *ROOT.glob("deploy/*.md")]
)
SOURCES = {
    path.relative_to(ROOT).as_posix()
    for top in ("src", "tests", "tools", "examples", "benchmarks")
    for path in (ROOT / top).rglob("*.py")
}
WRITTEN_BY_READERS = {"src/tacit/methods/together.py"}  # the quickstart's own method


def anchors(page: Path) -> set[str]:
    """Return the anchors that headings of a page get."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", [page for page in PAGES if page != HISTORY], ids=lambda page: page.name)
def test_files_and_modules_that_are_named_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    files = {name for name in re.findall(r"`([\w./-]+\.py)`", text) if name not in WRITTEN_BY_READERS}
    missing = {name for name in files if not any(f"/{path}".endswith(f"/{name}") for path in SOURCES)}
    modules = set(re.findall(r"`(tacit(?:\.\w+)+)", text))
    assert missing | {name for name in modules if not is_there(name)} == set()


def is_there(name: str) -> bool:
    """Say whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    for size in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:size]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[size:]:
            if not hasattr(found, attribute):
                return False
            found = getattr(found, attribute)
        return True
    return False


def code_of(page: str) -> list[str]:
    """Return the Python blocks of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_contract_of_methods_runs_as_printed_and_its_stage_is_one() -> None:
    names: dict[str, Any] = {}
    for block in code_of("docs/methods/README.md"):
        exec(block, names)
    method, (clients, catalog) = build_federated("fed-gmf"), two_tastes()
    model = method.init(clients, catalog, Key(1))
    rows = []
    for share in (0.5, 1.0):
        path = UpdatePath(method, [names["Subsample"](share)], Ring())
        total = Total.zero(method.shapes(model.shared))
        device_round(path, model, clients, Key(1), 0, total)
        message = device_round(path, model, clients, Key(1), 0).message
        assert message is not None
        added = total.zero_like()
        added.add(message)
        assert np.array_equal(added.sums["items"], total.sums["items"])
        rows.append(len(message.tables["items"][1]))
    assert 0.4 < rows[0] / rows[1] < 0.6


def test_the_contract_names_the_arguments_of_each_part_in_their_order() -> None:
    text = (ROOT / "docs/methods/README.md").read_text(encoding="utf-8")
    printed = re.findall(r"^def (\w+)\((.+)\) ->", text, re.MULTILINE)
    assert {name for name, _ in printed} == Federated.__abstractmethods__
    for name, arguments in printed:
        assert arguments.split(", ") == list(inspect.signature(getattr(Federated, name)).parameters), name


@pytest.mark.slow
def test_the_quickstarts_method_runs_as_printed() -> None:
    block = next(code for code in code_of("docs/quickstart.md") if "@register" in code)
    run = "import tacit\nprint(round(tacit.run(tacit.Experiment(method='together')).metrics['NDCG@10'], 4))"
    done = subprocess.run(
        [sys.executable, "-c", f"{block}\n{run}"], timeout=LONG, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "0.2098"), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("page", ["docs/serving.md"])
def test_the_python_of_a_page_runs_as_printed(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in code_of(page):
        exec(block, names)
    assert names["tacit"].__name__ == "tacit"


@pytest.mark.parametrize("page", [page for page in PAGES if page != HISTORY], ids=lambda page: page.name)
def test_commands_options_and_studies_that_are_printed_exist(page: Path) -> None:
    text = re.sub(r"\n\s+(?=--)", " ", page.read_text(encoding="utf-8"))
    printed = re.findall(r"(?:^(?:\$ )?|`)tacit ([^`\n]*)", text, re.MULTILINE)
    missing = {f"{line}: {name}" for line in printed for name in unknown_words(re.split(r"#|   ", line)[0].split())}
    assert missing == set()


@cache
def the_command() -> click.Command:
    return typer.main.get_command(app)


def unknown_words(words: list[str]) -> list[str]:
    """Return the command, the options and the study in a line that there are not."""
    command, at, found = the_command(), 0, []
    while at < len(words):
        word = words[at]
        if word.startswith("-"):
            option = next((p for p in command.params if word in (*p.opts, *p.secondary_opts)), None)
            found += [word] if option is None and word != "--help" else []
            at += option is not None and not getattr(option, "is_flag", False)
        elif isinstance(command, click.Group):
            if word not in command.commands:
                return [*found, word]
            command = command.commands[word]
        elif command.name == "reproduce" and word not in reproductions():
            found.append(word)
        elif word == "|":
            return found
        at += 1
    return found


def test_the_citation_names_this_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (cited["version"], cited["license"]) == (project["version"], project["license"])
