"""A search of 30 trials (`--trials`) with `--jobs 1` and `--jobs 2`: seconds on the wall, and processor time.

fed-gmf, four passes, on MovieLens 1M under TACIT_DATA, else on a town of about its size. `first_s` is the time until
the first trial was done, `trial_s` that of each later one: the difference is what comes before (start of the workers,
imports, kernels, data). On a machine that others use too, the wall says little: `by_processor` is the processor time of
one process with one job, over that of the busier worker (and of the process that asks) with two. `--epochs 1` shows
what all that does to short trials.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from tacit.lab.jobs import JobsConfig
from tacit.lab.tuning import Tuning, tune

TRIALS = 30


def processor_seconds() -> dict[int, float]:
    """Return the processor time of this process and of those that it has started, by id."""
    tick, found = os.sysconf("SC_CLK_TCK"), {os.getpid(): time.process_time()}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[1]) == os.getpid():
            found[int(stat.parent.name)] = (int(fields[11]) + int(fields[12])) / tick
    return found


def search(jobs: int, trials: int, epochs: int, source: str) -> dict[str, Any]:
    """Run the search; return what it took."""
    rates = [round(0.01 * (1 + i), 2) for i in range(trials)]
    tuning = Tuning.model_validate(
        {
            "data": {"source": source},
            "method": {"name": "fed-gmf", "epochs": epochs},
            "search": {"method.learning_rate": rates},
            "split": {"validation": True},
        }
    )
    used: dict[int, float] = {}

    ends: list[float] = []

    def watch(what: str, done: int, total: int) -> None:
        used.update(processor_seconds())
        if not ends and (what.startswith("2/") if jobs == 1 else done):
            ends.append(time.perf_counter() - started)

    before, started = time.process_time(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        found = tune(tuning, Path(folder), watch, jobs=JobsConfig(jobs))
    used[os.getpid()] = time.process_time() - before
    own = used.pop(os.getpid())
    values = [trial.value for trial in found.trials]
    wall = time.perf_counter() - started
    apart = {"first_s": ends[0], "trial_s": (wall - ends[0]) / max(1, trials - jobs) * jobs}
    return {"wall_s": wall, **apart, "own_s": own, "workers_s": list(used.values()), "values": values}


def main() -> None:
    """Print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--trials", type=int, default=TRIALS)
    options = parser.parse_args()
    source = "ml-1m" if (Path(os.environ.get("TACIT_DATA", "none")) / "ml-1m").is_dir() else "town"
    two, one = (search(jobs, options.trials, options.epochs, source) for jobs in (2, 1))
    assert one.pop("values") == two.pop("values"), "jobs changed a result"
    busiest = two["own_s"] + max(two["workers_s"])
    shown = {"bench": "tune-jobs", "data": source, "trials": options.trials, "epochs": options.epochs}
    shown |= {"one": one, "two": two, "by_processor": one["own_s"] / busiest, "by_wall": one["wall_s"] / two["wall_s"]}
    print(json.dumps(shown, default=float), flush=True)


if __name__ == "__main__":
    main()
