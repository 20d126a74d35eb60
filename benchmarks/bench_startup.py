"""What a command costs before it does anything: help, the list of methods, a wrong path, a wrong option.

Each command is a process of its own. Seconds are its processor time, user and system, the best of several after a first
one that fills the disk's cache. The peer is an interpreter that imports numpy and polars and ends.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile

TACIT = "from tacit.cli import main; main()"
COMMANDS = {  # command -> its exit number
    "--help": 0,
    "methods": 0,
    "methods --json": 0,
    "run nowhere.yaml": 3,
    "run --method eaze": 3,
    "data list": 0,
}
PEER = "import numpy, polars"


def cost(code: str, arguments: list[str], expected: int) -> tuple[float, int]:
    """Run Python in a process of its own, in an empty folder; return its processor seconds and its peak in MB."""
    with tempfile.TemporaryDirectory(prefix="tacit-bench-") as folder:
        quiet = subprocess.DEVNULL
        process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=quiet, stderr=quiet, cwd=folder)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != expected:
        raise SystemExit(f"tacit {' '.join(arguments)} ended with {process.returncode}, not {expected}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss // 1024


def best(code: str, arguments: list[str], expected: int, repeat: int) -> tuple[float, int]:
    """Return the least of several costs after a first one."""
    cost(code, arguments, expected)
    return min(cost(code, arguments, expected) for _ in range(repeat))


def main() -> None:
    """Print one JSON line per command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    peer, _ = best(PEER, [], 0, options.repeat)
    for command, expected in COMMANDS.items():
        ours, peak = best(TACIT, command.split(), expected, options.repeat)
        line = {
            "bench": "startup",
            "data": f"tacit {command}",
            "threads": 1,
            "ours": round(ours, 3),
            "peer": round(peer, 3),
            "peer_name": PEER,
            "ratio": round(peer / ours, 2),
            "unit": "s",
            "peak_mb": peak,
            "commit": commit,
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
