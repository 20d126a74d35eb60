"""One whole run of a log of the size of MovieLens 20M: reading, splitting, learning, ranking, leak check, run folder.

138,493 users, 26,744 items and 20 million rows with ratings and times in one Parquet file; fed-svd, full ranking. The
command `tacit run` itself is measured, in a process of its own: processor seconds and peak memory of it, and of
loading and splitting alone (`--stage prepare`).
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

USERS, ITEMS = 138_493, 26_744
ROWS = 21_700_000  # drawn; about 20 million are left where nobody has an item twice


def write_log(path: Path, rows: int) -> None:
    """Write a log with skewed activity and popularity."""
    import polars as pl

    rng = np.random.default_rng(20)
    activity = rng.lognormal(0.0, 1.1, USERS)
    lengths = np.clip(20 + activity * (rows / USERS - 20) / activity.mean(), 20, ITEMS // 4).astype(np.int64)
    users = np.repeat(np.arange(USERS, dtype=np.int32), lengths)
    items = (ITEMS * rng.random(len(users), np.float32) ** 3).astype(np.int32)
    order = np.argsort(users.astype(np.int64) * ITEMS + items, kind="stable")
    users, items = users[order], items[order]
    is_new = np.ones(len(users), np.bool_)
    is_new[1:] = (users[1:] != users[:-1]) | (items[1:] != items[:-1])
    users, items = users[is_new], items[is_new]
    frame = pl.DataFrame(
        {
            "user": users,
            "item": items,
            "rating": (rng.integers(1, 11, len(users)) / 2).astype(np.float32),
            "time": rng.integers(800_000_000, 1_400_000_000, len(users)),
        }
    )
    frame.write_parquet(path, row_group_size=1_000_000)


def prepare(path: Path) -> None:
    """Load and split the log in this process."""
    from tacit.config import Experiment
    from tacit.lab.experiments import prepare_data

    experiment = Experiment.model_validate({"data": {"source": str(path)}, "method": {"name": "fed-svd"}})
    started = time.process_time()
    parts = prepare_data(experiment).parts
    used = resource.getrusage(resource.RUSAGE_SELF)
    shown = {"seconds": round(time.process_time() - started, 1), "train": len(parts.train.items)}
    print(json.dumps(shown | {"peak_mb": used.ru_maxrss // 1024}))


def measure(command: list[str]) -> dict[str, object]:
    """Run a command; return its processor seconds and its peak memory."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    wall = time.perf_counter() - started
    return {"cpu_s": round(cpu, 1), "wall_s": round(wall, 1), "said": done.stdout.strip()[-200:]}


def main() -> None:
    """Print one JSON line for each stage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--folder", help="keeps the log here, and takes one that is there already")
    parser.add_argument("--stage", choices=["write", "prepare"])
    parser.add_argument("--log", type=Path)
    options = parser.parse_args()
    if options.stage == "write":
        write_log(options.log, options.rows)
        return
    if options.stage == "prepare":
        prepare(options.log)
        return
    with tempfile.TemporaryDirectory(prefix="tacit-bench-") as scratch:
        log = Path(options.folder or scratch) / "log.parquet"
        if not log.exists():
            # by another process: the memory of one that starts a process counts as that one's
            drawn = ["--stage", "write", "--log", str(log), "--rows", str(options.rows)]
            subprocess.run([sys.executable, __file__, *drawn], check=True)
        ours = [sys.executable, __file__, "--stage", "prepare", "--log", str(log)]
        alone = json.loads(str(measure(ours)["said"]))
        print(json.dumps({"bench": "whole-path", "stage": "load and split", "unit": "s", **alone}), flush=True)
        folder = Path(scratch) / "run"
        command = [
            sys.executable,
            "-m",
            "tacit",
            "run",
            "--data",
            str(log),
            "--method",
            "fed-svd",
            "--out",
            str(folder),
        ]
        found = measure(command)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024  # of the larger one, which is this
        lines = [line for file in folder.glob("*/log.txt") for line in file.read_text(encoding="utf-8").splitlines()]
        shown = {"cpu_s": found["cpu_s"], "wall_s": found["wall_s"], "peak_mb": peak, "log": lines}
        print(json.dumps({"bench": "whole-path", "stage": "tacit run", **shown}), flush=True)


if __name__ == "__main__":
    main()
