"""Gather the pages of the documentation site and build it: python tools/site_pages.py [--gather]; needs extra `docs`.

Pages stand where they stand in the repository, so links between them work on the site as they do there. Files that
pages link to are copied beside them. A link to a folder leads to a list of what is in it. The reference of Python names
is written from `tacit.__all__`; mkdocstrings reads their docstrings. Nothing is fetched.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import yaml

import tacit

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build" / "site"
PAGES = BUILD / "pages"
SOURCES = ("*.md", "docs/**/*.md", "benchmarks/*.md", "examples/*.md", "deploy/*.md")
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
REFERENCE = {  # page -> what it says, and its names
    "running": ("Running", "Experiments, comparisons and models to serve.", "config lab.experiments lab.comparisons"),
    "results": (
        "Results",
        "What a run leaves, and models that recommend.",
        "lab.fitting lab.matrix_model report.folder serving",
    ),
    "data": ("Data", "Logs of what people did, and how they are cut.", "data"),
    "evaluation": ("Evaluation", "Rankings, metrics and their options.", "evaluation heldout"),
    "methods": ("Writing a method", "Base classes and what they are given.", "methods types random"),
    "updates": ("What is sent", "Plans, sinks, stages and messages.", "updates privacy protocols"),
    "errors": ("Errors", "The root of the tree of errors.", "errors"),
}


def gather() -> None:
    """Copy every page and what it links to into one folder, and write the pages that are made from the code."""
    shutil.rmtree(BUILD, ignore_errors=True)
    sources = sorted({path for pattern in SOURCES for path in ROOT.glob(pattern)})
    for source in sources:
        text = LINK.sub(partial(_lead, source), source.read_text(encoding="utf-8"))
        _write(source.relative_to(ROOT).as_posix(), text.rstrip("\n"))
    for folder in ("docs/decisions", "examples"):
        _list_folder(ROOT / folder)
    for name, (title, about, homes) in REFERENCE.items():
        _write(f"docs/api/{name}.md", f"# {title}\n\n{about}\n\n" + "\n\n".join(f"::: {one}" for one in names(homes)))
    (BUILD / "mkdocs.yml").write_text(yaml.safe_dump(settings(), sort_keys=False), encoding="utf-8")


def names(homes: str) -> list[str]:
    """Return the public names that live in some modules, in full."""
    wanted = tuple(homes.split())
    found = {name: module for module, inside in tacit._HOMES.items() for name in inside}
    return [
        f"tacit.{found[name]}.{name}"
        for name in tacit.__all__
        if name in found and any(f"{found[name]}.".startswith(f"{home}.") for home in wanted)
    ]


def settings() -> dict[str, Any]:
    """Return mkdocs.yml with the folders in full and with what the code adds to its navigation."""
    given: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    methods = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/methods/*.md"))
    decisions = sorted(path.relative_to(PAGES).as_posix() for path in PAGES.glob("docs/decisions/*.md"))
    decisions.sort(key=lambda path: not path.endswith("README.md"))
    given["nav"][-2:-2] = [{"Methods": methods}, {"Python": [f"docs/api/{name}.md" for name in REFERENCE]}]
    given["nav"].append({"Decisions": decisions})
    given |= {"docs_dir": "pages", "site_dir": "html"}
    for plugin in given["plugins"]:
        if isinstance(plugin, dict) and "mkdocstrings" in plugin:
            plugin["mkdocstrings"]["handlers"]["python"]["paths"] = [str(ROOT / "src")]
    return given


def _lead(page: Path, found: re.Match[str]) -> str:
    """Return a link that leads to something on the site; copy what it leads to, if that is no page."""
    before, target, after = found.groups()
    if re.match(r"[a-z]+:", target):
        return found.group()
    file = (page.parent / target).resolve()
    if file.is_dir():
        return f"{before}{target.rstrip('/')}/README.md{after}"
    if file.suffix != ".md":
        _copy(file)
    return found.group()


def _copy(file: Path) -> None:
    """Copy a file to its place among the pages."""
    copy = PAGES / file.relative_to(ROOT)
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, copy)


def _list_folder(folder: Path) -> None:
    """Write a page with links to what is in a folder, unless the folder has one."""
    page = folder / "README.md"
    if page.exists():
        return
    lines = [f"# {folder.name.capitalize()}", ""]
    for file in sorted(path for path in folder.iterdir() if path.is_file()):
        text = file.read_text(encoding="utf-8")
        first = re.sub(r'^(#+|""")\s*|"""$', "", text.splitlines()[0])
        lines.append(f"* [{file.name}]({file.name}): {first}" if file.suffix != ".md" else f"* [{first}]({file.name})")
        if file.suffix != ".md":
            _copy(file)
    _write(page.relative_to(ROOT).as_posix(), "\n".join(lines))


def _write(path: str, text: str) -> None:
    target = PAGES / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text + "\n", encoding="utf-8")


def main() -> None:
    """Gather, then build with warnings as errors."""
    gather()
    if "--gather" in sys.argv[1:]:
        return
    built = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "-f", str(BUILD / "mkdocs.yml")],
        cwd=BUILD,
        env={**os.environ, "NO_COLOR": "1"},
        check=False,
    )
    if built.returncode == 0 and (strange := fetched()):
        sys.exit(f"Pages of the site would fetch from elsewhere: {', '.join(strange)}")
    sys.exit(built.returncode)


def fetched() -> list[str]:
    """Return what a browser would fetch from other machines when it shows the site."""
    text = "".join(page.read_text(encoding="utf-8") for page in (BUILD / "html").rglob("*.html"))
    tags = re.findall(r"<(?:script|link|img|iframe|source)\b[^>]*>", text)
    return sorted({found for tag in tags for found in re.findall(r'(?:src|href)="?((?:https?:)?//[^"\s>]+)', tag)})


if __name__ == "__main__":
    main()
