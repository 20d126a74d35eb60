"""Whole runs side by side: tasks of processes, of a Dask cluster, or of any executor of `concurrent.futures`.

A job names its data instead of holding it: a worker loads and cuts it, and keeps it for the next job. Held-out items
never travel. A job that fails is a result like any other, so that it does not stop the rest.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from tacit.config import Experiment, to_yaml
from tacit.data import Dataset
from tacit.errors import DataError, EngineError, TacitError
from tacit.lab.engine import EngineConfig
from tacit.lab.experiments import PreparedData, prepare_data, silent
from tacit.lab.shard_worker import WorkerIdentity
from tacit.lab.training import RuntimeConfig
from tacit.lab.workers import Workers, refuse_other_bits, start_workers, usable_cores
from tacit.types import Progress

TRIES = 3  # a job whose workers die so often is too large for them
CUTS_KEPT = 2  # in a worker: a sweep seldom has more than one
REPORT_SECONDS = 0.5


@dataclass(frozen=True)
class JobsConfig:
    """How many jobs run side by side, and where; in this process if it is one."""

    n: int = 1
    engine: Literal["processes", "dask"] = "processes"
    address: str = ""  # of a Dask scheduler; empty: workers on this machine
    executor: Executor | None = None  # of the caller; it goes on afterwards
    again: bool = False  # make finished runs anew
    folder: str = ""  # that all machines of a cluster share; data that a program hands over travels through it

    @classmethod
    def of(cls, n: int, runtime: RuntimeConfig, again: bool = False) -> JobsConfig:
        """Spread jobs over the engine that an experiment names."""
        engine: Literal["processes", "dask"] = "dask" if runtime.engine == "dask" else "processes"
        return cls(n, engine, runtime.address, again=again, folder=runtime.folder)

    @property
    def is_spread(self) -> bool:
        """Whether jobs leave this process."""
        return self.n > 1 or self.executor is not None

    def place(self, experiment: Experiment) -> Experiment:
        """Return an experiment as a job: its clients learn where the job runs."""
        if not self.is_spread:
            return experiment
        local = experiment.runtime.model_copy(update={"engine": "local", "address": "", "folder": ""})
        return experiment.model_copy(update={"runtime": local})


ONE_AT_A_TIME = JobsConfig()


class PreparedParts:
    """Data that was loaded and cut, kept for the next run on it."""

    def __init__(self, data: Dataset | None = None, prepared: PreparedData | None = None, kept: int = 0) -> None:
        self._data, self._prepared, self._kept = data, prepared, kept
        self._found: dict[str, PreparedData] = {}

    def prepare(self, experiment: Experiment, progress: Progress = silent) -> PreparedData:
        """Return the data of an experiment; `prepared` takes its place."""
        if self._prepared is not None:
            return self._prepared
        by_chance = str(experiment.seed) if experiment.split.kind == "random" else ""
        cut = to_yaml(experiment.data) + to_yaml(experiment.split) + by_chance
        if cut not in self._found:
            while self._kept and len(self._found) >= self._kept:
                self._found.pop(next(iter(self._found)))
            self._found[cut] = prepare_data(experiment, self._data, progress)
        return self._found[cut]


class Job(Protocol):
    """A run or a trial, as what a worker must know of it."""

    @property
    def label(self) -> str:
        """What it is called in progress and messages."""
        ...

    def run(self, parts: PreparedParts, progress: Progress) -> Any:
        """Do it, and return what can travel."""
        ...


@dataclass(frozen=True)
class JobFailure:
    """Why a job has no result."""

    label: str
    error: Exception


@dataclass(frozen=True)
class _Source:
    """Where jobs find data that a program handed over, if it did; `call` tells one call of `run_jobs` from the next."""

    handed: str
    call: str = field(default_factory=lambda: uuid.uuid4().hex)  # files can be others by the next call


@dataclass(frozen=True)
class _Answer:
    worker: WorkerIdentity
    result: Any = None
    error: Exception | None = None


def run_jobs(
    jobs: Sequence[Job],
    config: JobsConfig,
    progress: Progress = silent,
    data: Dataset | None = None,
    prepared: PreparedData | None = None,
) -> list[Any]:
    """Run jobs and return their results in order; a `JobFailure` stands for one that failed.

    `data` takes the place of the configured source. `prepared` spares jobs in this process the preparation; others
    prepare their data themselves.
    """
    if config.is_spread and jobs:
        with _handed_over(data, config) as handed:
            return _spread(jobs, config, progress, handed)
    parts, found = PreparedParts(data, prepared), list[Any]()
    for number, job in enumerate(jobs, 1):

        def shown(what: str, done: int, total: int, label: str = f"{number}/{len(jobs)} {job.label}") -> None:
            progress(f"{label}: {what}", done, total)

        try:
            found.append(job.run(parts, shown if len(jobs) > 1 else progress))
        except Exception as error:  # whatever it is, the others go on
            found.append(JobFailure(job.label, error))
    return found


def raise_failures(found: Sequence[Any]) -> None:
    """Raise the first failure, with how many there were; results of the others are kept."""
    failed = [one for one in found if isinstance(one, JobFailure)]
    if not failed:
        return
    first = failed[0].error
    if len(found) == 1 or not isinstance(first, TacitError):
        raise first
    others = "" if len(failed) == 1 else f" {len(failed) - 1} more failed: {', '.join(f.label for f in failed[1:])}."
    first.message = f"{failed[0].label}: {first.message}{others}"
    first.args = (first.message,)
    if len(failed) < len(found):
        first.hint = f"{first.hint} The {len(found) - len(failed)} finished runs are kept.".strip()
    raise first


@contextmanager
def _handed_over(data: Dataset | None, config: JobsConfig) -> Iterator[str]:
    """Write data that a program hands over where workers can read it."""
    if data is None:
        yield ""
        return
    with tempfile.TemporaryDirectory(prefix="tacit-data-", dir=config.folder or None) as folder:
        path = Path(folder) / "data.pickle"
        path.write_bytes(pickle.dumps(data, protocol=5))
        yield str(path)


# --- in workers ------------------------------------------------------------------------------------------------------

_PARTS: dict[_Source, PreparedParts] = {}
_LOCK = threading.Lock()


def run_job(task: tuple[Job, _Source]) -> _Answer:
    """Do a job in this process, with the data that it has loaded before."""
    job, source = task
    with _LOCK, _unwind_when_stopped():  # one at a time: a worker has one core, and the memory for one job
        try:
            result = job.run(_parts_of(source), silent)
        except Exception as error:
            return _Answer(WorkerIdentity.of_this_process(), error=_portable(error))
    return _Answer(WorkerIdentity.of_this_process(), result)


def _parts_of(source: _Source) -> PreparedParts:
    if source not in _PARTS:
        _PARTS.clear()
        data = None
        if source.handed:
            try:
                data = pickle.loads(Path(source.handed).read_bytes())
            except OSError as error:
                raise EngineError(
                    f"A worker cannot read the data '{source.handed}': {error.strerror}.",
                    "Set runtime.folder to a folder that all machines of the cluster share.",
                ) from None
        _PARTS[source] = PreparedParts(data, kept=CUTS_KEPT)
    return _PARTS[source]


def _portable(error: Exception) -> Exception:
    """Return an error that survives the way to another process."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return EngineError(f"{type(error).__name__}: {error}")
    return error


class _StopSignal(BaseException):
    """The process was told to end."""


@contextmanager
def _unwind_when_stopped() -> Iterator[None]:
    """End a process that is told to after its half-written folder is removed."""
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise _StopSignal

    former = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except _StopSignal:
        os._exit(128 + signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, former)


# --- spreading -------------------------------------------------------------------------------------------------------


class ExecutorWorkers:
    """The executor of a program, as workers."""

    def __init__(self, executor: Executor, n_workers: int) -> None:
        self._executor, self.n_workers = executor, n_workers

    def submit(self, shard: int, work: Callable[[Any], Any], task: object) -> Future[Any]:
        """Begin a task wherever the executor likes."""
        return self._executor.submit(work, task)

    def is_lost(self, error: Exception) -> bool:
        """An executor that broke is its owner's to mend."""
        return False

    def renew(self, shard: int) -> None:
        """Leave the executor as it is."""

    def forget(self, folder: str) -> None:
        """Leave the executor as it is."""

    def close(self) -> None:
        """Leave the executor to its owner."""


@dataclass
class _Spreading:
    """Workers, and which of them are free."""

    workers: Workers
    source: _Source
    is_cluster: bool
    free: queue.SimpleQueue[int] = field(default_factory=queue.SimpleQueue)
    stopped: threading.Event = field(default_factory=threading.Event)

    def do(self, job: Job) -> Any:
        at = self.free.get()
        try:
            return self._try(at, job)
        finally:
            self.free.put(at)

    def _try(self, at: int, job: Job) -> Any:
        for _ in range(TRIES):
            try:
                answer: _Answer = self.workers.submit(at, run_job, (job, self.source)).result()
                refuse_other_bits(answer.worker, str(answer.worker.pid))
            except Exception as error:
                if self.stopped.is_set() or not self.workers.is_lost(error):
                    broken = isinstance(error, BrokenExecutor)
                    return JobFailure(job.label, EngineError(f"The executor broke: {error}") if broken else error)
                self.workers.renew(at)
                continue
            return answer.result if answer.error is None else JobFailure(job.label, self._placed(answer))
        text = f"The worker of this run died {TRIES} times in a row."
        return JobFailure(job.label, EngineError(text, "It was killed, or ran out of memory: use fewer --jobs."))

    def _placed(self, answer: _Answer) -> Exception:
        """Say of missing data on which machine it is missing."""
        error = answer.error
        assert error is not None
        if not self.is_cluster or not isinstance(error, DataError):
            return error
        return EngineError(
            f"Worker {answer.worker.pid} on {answer.worker.host} cannot use the data: {error.message}",
            "All machines of a cluster need the data at the same path, or by name under TACIT_DATA.",
        )


def _spread(jobs: Sequence[Job], config: JobsConfig, progress: Progress, handed: str) -> list[Any]:
    n_wanted = min(config.n, len(jobs))
    if config.executor is not None:
        workers: Workers = ExecutorWorkers(config.executor, n_wanted)
    else:
        if not config.address:  # more than there are cores would only take memory
            n_wanted = min(n_wanted, usable_cores())
        workers = start_workers(EngineConfig(config.engine, n_wanted, address=config.address))
    n_slots = min(n_wanted, workers.n_workers)
    spreading = _Spreading(workers, _Source(handed), config.executor is None and config.engine == "dask")
    for at in range(n_slots):
        spreading.free.put(at)
    pool = ThreadPoolExecutor(n_slots, thread_name_prefix="tacit-job")
    try:
        asked = [pool.submit(spreading.do, job) for job in jobs]
        waiting = set(asked)
        while waiting:
            waiting = wait(waiting, REPORT_SECONDS, FIRST_COMPLETED).not_done
            progress(f"{len(jobs)} jobs, {min(n_slots, len(waiting))} at a time", len(jobs) - len(waiting), len(jobs))
        return [one.result() for one in asked]
    finally:
        spreading.stopped.set()
        pool.shutdown(wait=False, cancel_futures=True)
        workers.close()
        pool.shutdown(wait=True)
