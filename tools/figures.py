"""Make the pictures of the documentation anew: python tools/figures.py [name ...], all of them without a name.

Each picture has one command, which is run as a user would run it; its result replaces the file in docs/figures. Short
commands come first, so an interruption loses only the picture that is being made. A picture whose dataset is not at
hand is left as it is and named at the end. Options that a study has searched for are kept in build/figures and reused.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tacit.data import datasets

ROOT = Path(__file__).parent.parent
FIGURES = ROOT / "docs" / "figures"
BUILD = ROOT / "build" / "figures"
TACIT = ("-c", "from tacit.cli import main; main()")


@dataclass(frozen=True)
class Picture:
    """A command of this Python, the file that it makes, and what it needs."""

    command: tuple[str, ...]
    made: str = ""  # below build/figures; nothing if the command writes to docs/figures itself
    data: str | None = None
    takes: str = "a minute"  # of one core

    def is_possible(self) -> bool:
        """Say whether the dataset is on this machine."""
        return self.data is None or any(one.name == self.data and one.state in ("here", "cached") for one in datasets())


def study(name: str, data: str, drawn: str, takes: str) -> Picture:
    """Return the picture of a reproduction on a dataset."""
    command = (*TACIT, "reproduce", name, "--data", data, "--out", str(BUILD))
    return Picture(command, f"reproduce-{name}-{data}/figures/{drawn}.svg", data, takes)


PICTURES = {
    "demo": Picture((*TACIT, "demo", "--out", str(BUILD)), "demo/figures/coverage.svg"),
    "pages": Picture(("tools/screenshots.py",), takes="two minutes; needs Chromium"),
    "fpl_growth": Picture(
        ("benchmarks/bench_fpl.py", "--growth", "--figure", str(BUILD / "fpl_growth.svg")), "fpl_growth.svg"
    ),
    "fpl_exposure": study("fpl-exposure", "ml-100k", "exposure", "some minutes"),
    "sums_ml-100k": study("sums-quality", "ml-100k", "quality-bytes", "half an hour"),
    "dp_growth_ml-1m": study("dp-growth", "ml-1m", "people-loss", "an hour"),
    "dp_ml-1m": study("dp-quality", "ml-1m", "quality-epsilon", "hours"),
    "fpl_pi": study("fpl-pi", "ml-1m", "pi", "hours"),
}


def make(name: str) -> str:
    """Make one picture; return how it went."""
    picture = PICTURES[name]
    if not picture.is_possible():
        return f"left as it is: {picture.data} is not on this machine (see `tacit data list`)"
    started = time.monotonic()
    done = subprocess.run([sys.executable, *picture.command], cwd=ROOT, check=False)
    if done.returncode != 0:
        return f"failed: the command ended with {done.returncode}"
    if picture.made:
        shutil.copyfile(BUILD / picture.made, FIGURES / f"{name}.svg")
    return f"made in {time.monotonic() - started:.0f} s"


def main() -> None:
    """Make the named pictures, or all."""
    listed = "\n".join(f"  {name:17} {picture.takes}" for name, picture in PICTURES.items())
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=listed, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="name", help="which; default: all")
    names = parser.parse_args().names or list(PICTURES)
    unknown = [name for name in names if name not in PICTURES]
    if unknown:
        parser.error(f"there is no picture '{unknown[0]}'; known: {', '.join(PICTURES)}")
    BUILD.mkdir(parents=True, exist_ok=True)
    outcomes = {name: make(name) for name in names}
    for name, outcome in outcomes.items():
        print(f"{name:17} {outcome}")
    if any(outcome.startswith("failed") for outcome in outcomes.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
