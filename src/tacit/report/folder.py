"""A run folder: the resolved configuration, metrics per user, curves, the model, what was sent, where it ran.

experiment.yaml    run it again and get the same numbers
result.json        the summary that `tacit run --json` prints, with confidence intervals and data statistics
users.parquet      one row per user with held-out items: the user's label and every metric
items.parquet      one row per item: label, title, how often it occurs in training, how often it is recommended
curve.parquet      one row per checkpoint (present when there were any)
ledger.parquet     what left users' devices
events.parquet     every single release (present with runtime.ledger=events)
weights.parquet    who counted how much in each round, and why (present with runtime.rounds.criteria)
model/             everything `Recommender.load` needs
environment.json   versions and machine
log.txt            what happened, with times
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tacit.config import Experiment, read_config, to_yaml
from tacit.errors import StorageError
from tacit.evaluation import Evaluation
from tacit.lab.events import Events
from tacit.lab.shard_worker import WorkerIdentity
from tacit.serving.lists import ListFilter, Recommendations
from tacit.serving.recommender import Recommender, read_users
from tacit.types import Label, notice_former_name

RUNS_NAMED = 3  # in a hint
PACKAGES = ("tacit", "numpy", "scipy", "numba", "polars", "pydantic")


@dataclass(frozen=True, repr=False)
class Run:
    """One finished run: its numbers, and the model that made them."""

    experiment: Experiment
    result: dict[str, Any]
    users: pl.DataFrame
    items: pl.DataFrame
    curve: pl.DataFrame
    ledger: pl.DataFrame
    log: list[str] = field(default_factory=list)
    folder: Path | None = None
    trained: Recommender | None = None  # present, like `evaluation`, when the run was made by this process
    evaluation: Evaluation | None = None
    released: Events | None = None  # every release of this run, if it was to keep them
    weighed: pl.DataFrame | None = None  # who counted how much in each round, if users count by criteria

    def __repr__(self) -> str:
        """Return a summary of a few lines."""
        result, primary = self.result, self.experiment.evaluation.primary
        leak = result.get("leak")
        verdict = (
            "leak check not made" if leak is None or leak["ok"] is None else "leaks" if not leak["ok"] else "clean"
        )
        others = ", ".join(f"{name} {value:.4f}" for name, value in [*self.metrics.items()][:6] if name != primary)
        where = "in memory" if self.folder is None else str(self.folder)
        return (
            f"Run({result['method']} on {result['data']}, seed {result['seed']}: "
            f"{primary} {self.metrics[primary]:.4f}; {others}; {verdict}; {where})"
        )

    def _repr_html_(self) -> str:
        head = f"{escape(str(self.result['method']))} on {escape(str(self.result['data']))}"
        rows = "".join(f"<tr><th>{escape(name)}</th><td>{value:.4f}</td></tr>" for name, value in self.metrics.items())
        return f"<p>{head}, seed {self.result['seed']}</p><table><tbody>{rows}</tbody></table>"

    @property
    def people(self) -> pl.DataFrame:
        """The former name of `users`."""
        notice_former_name("run.people", "run.users")
        return self.users

    @property
    def events(self) -> pl.LazyFrame | None:
        """Every release: round, user, the items sent as positives and as negatives, bytes; none unless it was kept."""
        if self.released is not None:
            return self.released.scan()
        file = None if self.folder is None else self.folder / "events.parquet"
        return pl.scan_parquet(file) if file is not None and file.exists() else None

    @property
    def weights(self) -> pl.DataFrame | None:
        """Who counted how much in each round, and why; none unless users count by criteria."""
        if self.weighed is not None:
            return self.weighed
        file = None if self.folder is None else self.folder / "weights.parquet"
        return pl.read_parquet(file) if file is not None and file.exists() else None

    @property
    def metrics(self) -> dict[str, float]:
        """The mean of every metric."""
        metrics: dict[str, float] = self.result["metrics"]
        return metrics

    def load_evaluation(self) -> Evaluation:
        """The evaluation as the folder holds it: every metric of every user, without the lists themselves."""
        labels = [str(label) for label in self.users["user"].to_list()]
        users = np.array([zlib.crc32(label.encode()) for label in labels], np.int64)  # only ever compared for equality
        values = {name: self.users[name].to_numpy() for name in self.users.columns if name != "user"}
        config = self.experiment.evaluation
        return Evaluation(str(self.result["protocol"]), config.k, users, np.arange(len(users)), values, self.metrics)

    @cached_property
    def recommender(self) -> Recommender:
        """The model that serves; read from the folder when the run was opened from disk."""
        if self.trained is not None:
            return self.trained
        if self.folder is None:
            raise StorageError("This run has neither a model in memory nor a folder.")
        return Recommender.load(self.folder / "model")

    def recommend(self, user: Label, k: int = 10, among: ListFilter | None = None) -> Recommendations:
        """Return the k best items for a user, with reasons; `among` says which items may be listed."""
        return self.recommender.recommend(user, k, among)

    def save(self, folder: Path | str) -> Run:
        """Write the run folder, whole or not at all, in place of an earlier one."""
        folder = Path(folder)
        with whole_folder(folder) as partial:
            (partial / "experiment.yaml").write_text(to_yaml(self.experiment), encoding="utf-8")
            write_json(partial / "result.json", {**self.result, "run": str(folder)})
            write_json(partial / "environment.json", environment())
            self.users.write_parquet(partial / "users.parquet")
            self.items.write_parquet(partial / "items.parquet")
            self.ledger.write_parquet(partial / "ledger.parquet")
            if self.released is not None:
                self.released.save(partial / "events.parquet")
            if self.weighed is not None:
                self.weighed.write_parquet(partial / "weights.parquet")
            if len(self.curve):
                self.curve.write_parquet(partial / "curve.parquet")
            (partial / "log.txt").write_text("\n".join(self.log) + "\n", encoding="utf-8")
            self.recommender.save(partial / "model")
        return replace(self, folder=folder, result={**self.result, "run": str(folder)})

    @classmethod
    def open(cls, folder: Path | str) -> Run:
        """Read a run folder back."""
        folder = Path(folder)
        if (folder / "comparison.yaml").is_file():
            hint = f"Give the folder of one of its runs: {_runs_of(folder)}."
            raise StorageError(f"'{folder}' is the folder of a comparison, which has several models.", hint)
        if not (folder / "result.json").is_file():
            hint = "Give the folder that `tacit run` printed."
            raise StorageError(f"'{folder}' is not a run folder: it has no result.json.", hint)
        try:
            curve = folder / "curve.parquet"
            return cls(
                read_config(Experiment, folder / "experiment.yaml"),
                _read_result(folder / "result.json"),
                read_users(folder),
                pl.read_parquet(folder / "items.parquet"),
                pl.read_parquet(curve) if curve.exists() else pl.DataFrame(),
                pl.read_parquet(folder / "ledger.parquet"),
                (folder / "log.txt").read_text(encoding="utf-8").splitlines(),
                folder,
            )
        except (OSError, ValueError, pl.exceptions.PolarsError) as error:
            raise StorageError(f"'{folder}' cannot be read: {error}.", "Run the experiment again.") from None


def open_recommender(folder: Path) -> Recommender:
    """Return the model of a run folder, or of a folder that `Recommender.save` wrote."""
    return Recommender.load(folder) if (folder / "method.json").is_file() else Run.open(folder).recommender


def _runs_of(comparison: Path) -> str:
    """Name the run folders of a comparison, as it recorded them."""
    try:
        rows = json.loads((comparison / "result.json").read_text(encoding="utf-8"))["rows"]
        found = [str(name) for row in rows for name in row["runs"] if name]
    except (OSError, ValueError, KeyError, TypeError):
        found = []
    shown = ", ".join(found[:RUNS_NAMED]) + (f" and {len(found) - RUNS_NAMED} more" if len(found) > RUNS_NAMED else "")
    return shown or "`tacit compare` writes them beside it"


def _read_result(path: Path) -> dict[str, Any]:
    """Read the summary of a run under today's names: passes, `local_only` and users had other keys before."""
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if "passes" not in result and "rounds" in result:
        result |= {"passes": result["rounds"], "rounds": None}
    leak = result.get("leak")
    if leak and "twin" in leak:
        leak.setdefault("local_only", leak["twin"])
    for found in (leak or {}, result.get("about_data", {}).get("counts", {})):
        found |= {name.replace("people", "users"): found.pop(name) for name in [*found] if name.startswith("people")}
    return result


def refuse_foreign(folder: Path) -> None:
    """Refuse to put a run where something else is: only what an earlier run left is ever replaced."""
    for _ in range(5):  # while another process puts its own run there, a single check can see neither of the two
        if not _is_foreign(folder):
            return
        time.sleep(0.01)
    hint = "Give another name, or another folder with --out."
    raise StorageError(f"'{folder}' already exists and is not a run folder.", hint)


def _is_foreign(folder: Path) -> bool:
    try:
        return (
            folder.exists()
            and not (folder / "result.json").is_file()
            and (not folder.is_dir() or any(folder.iterdir()))
        )
    except FileNotFoundError:  # moved away just now
        return False


def check_writable(folder: Path) -> None:
    """Refuse a folder in which nothing can be made, before anything is learnt for it; leave nothing behind."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    probe = folder / f".probe-{os.getpid()}"
    try:
        probe.mkdir(parents=True)
    except OSError as error:
        hint = "Choose another folder with --out."
        raise StorageError(f"Nothing can be written to '{folder}': {error.strerror or error}.", hint) from None
    finally:
        for made in (probe, *missing):
            with suppress(OSError):
                made.rmdir()


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Give a scratch folder that takes the place of `folder` when all went well, and vanishes otherwise.

    Two processes may write the same folder: each writes its own scratch folder, and the last one stays.
    """
    refuse_foreign(folder)
    mark = f"{_host()}-{os.getpid()}-{next(_SCRATCH)}"
    partial, old = (folder.parent / f".{folder.name}.{kind}-{mark}" for kind in ("partial", "old"))
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        yield partial
        _replace_folder(folder, partial, old)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        hint = "Free some space or choose another folder with --out."
        raise StorageError(f"'{folder}' cannot be written: {error.strerror or error}.", hint) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


_SCRATCH = count()
REPLACE_TRIES = 50  # another process puts its folder there at the same moment: once or twice, not fifty times


def _replace_folder(folder: Path, partial: Path, old: Path) -> None:
    """Put `partial` in the place of `folder`, also while others do the same."""
    for tries in range(1, REPLACE_TRIES + 1):
        shutil.rmtree(old, ignore_errors=True)
        with suppress(FileNotFoundError):  # moved away by another process just now
            folder.rename(old)
        try:
            partial.rename(folder)
        except OSError:
            if not folder.exists() and old.exists():
                old.rename(folder)
                raise
            if tries == REPLACE_TRIES:
                raise
            continue
        return


def remove_partials(parent: Path) -> None:
    """Remove what processes of this machine that have ended left half-written in a folder."""
    for partial in parent.glob(f".*.partial-{_host()}-*"):
        process = partial.name.rpartition(".partial-")[2].split("-")[-2]
        if process.isdecimal() and not _is_alive(int(process)):
            shutil.rmtree(partial, ignore_errors=True)


def _host() -> str:
    return re.sub(r"[^\w.]", "_", platform.node()) or "here"


def _is_alive(process: int) -> bool:
    if sys.platform == "win32":
        return True  # asking there would end it
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def write_json(path: Path, value: Any) -> None:
    """Write JSON that users can read."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=True) + "\n", encoding="utf-8")


def write_whole(path: Path, value: Any) -> None:
    """Write JSON so that half of it is never read; the folder is made where it is missing."""
    partial = path.with_name(f".{path.name}.partial-{_host()}-{os.getpid()}-{next(_SCRATCH)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(partial, value)
        partial.replace(path)
    except OSError as error:
        raise StorageError(f"'{path}' cannot be written: {error.strerror or error}.", "Free some space.") from None
    finally:
        partial.unlink(missing_ok=True)


def environment() -> dict[str, Any]:
    """Say where the numbers were made: versions, machine, commit."""
    return {
        "python": sys.version.split()[0],
        "packages": {name: version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "commit": _commit(),
        "arithmetic": dict(WorkerIdentity.of_this_process().bits),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor())


def _commit() -> str | None:
    try:
        found = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None
