"""Build wheel and sdist, install the wheel into an empty environment and run it there: python tools/check_wheel.py.

The environment holds the packages of requirements/core.lock and the wheel, no clone. The commands run in an empty
folder with an empty home. The wheel that the sdist gives must be the same, file by file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
LONGEST = 1200  # seconds a command may take: the first one compiles kernels


def call(*command: str | Path, folder: Path, home: Path | None = None) -> str:
    """Run a command; return what it printed, or end with what it said."""
    around = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TACIT", "NUMBA"))}
    if home is not None:
        around |= {"HOME": str(home), "USERPROFILE": str(home), "XDG_CACHE_HOME": str(home / "cache")}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=around,
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def build(source: Path, into: Path, *targets: str) -> list[Path]:
    """Build distributions of a source folder; return their files."""
    flags = [flag for target in targets for flag in ("-t", target)]
    call(sys.executable, "-m", "hatchling", "build", "-d", into, *flags, folder=source)
    return sorted(into.iterdir())


def contents(wheel: Path) -> dict[str, bytes]:
    """Return the files of a wheel, without the list of their hashes."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}


def install(wheel: Path, into: Path) -> Path:
    """Make an environment with the locked packages and the wheel; return the folder of its commands."""
    venv.create(into, with_pip=True)
    commands = into / ("Scripts" if os.name == "nt" else "bin")
    pip = (commands / "python", "-m", "pip", "--disable-pip-version-check", "--quiet")
    call(*pip, "install", "--no-deps", "--require-hashes", "-r", ROOT / "requirements" / "core.lock", folder=into)
    call(*pip, "install", "--no-deps", wheel, folder=into)
    call(*pip, "check", folder=into)
    return commands


def main() -> None:
    """Build, compare, install, run."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    with tempfile.TemporaryDirectory(prefix="tacit-wheel-") as scratch:
        top = Path(scratch)
        wheel, sdist = sorted(build(ROOT, top / "dist", "wheel", "sdist"), key=lambda file: file.suffix, reverse=True)
        call(sys.executable, "-m", "tarfile", "-e", sdist, top / "unpacked", folder=top)
        (again,) = build(top / "unpacked" / f"tacit-{version}", top / "again", "wheel")
        if contents(wheel) != contents(again):
            sys.exit("The wheel of the sdist differs from the wheel of this folder.")
        commands, home, empty = install(wheel, top / "environment"), top / "home", top / "empty"
        home.mkdir()
        empty.mkdir()
        said = call(commands / "tacit", "--version", folder=empty, home=home).strip()
        if said != f"tacit {version}":
            sys.exit(f"The installed command says '{said}' and should say 'tacit {version}'.")
        compared = json.loads(call(commands / "tacit", "demo", "--json", folder=empty, home=home))
        if not (empty / "runs" / "demo" / "report.html").is_file():
            sys.exit("`tacit demo` wrote no report.")
        print(f"{wheel.name}: {len(compared['rows'])} methods ran without a clone; the sdist gives the same wheel.")


if __name__ == "__main__":
    main()
