"""Workers that exist already: the process pools of Python, and Dask."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, Protocol

from tacit.errors import EngineError
from tacit.lab.engine import EngineConfig
from tacit.lab.shard_worker import WorkerIdentity, begin_worker, forget_shards

REACH_SECONDS = 15
TRIES = 3  # a task whose workers die so often is too large for them


class Workers(Protocol):
    """Processes that do tasks. A shard has a worker of its own as long as that one lives."""

    @property
    def n_workers(self) -> int:
        """How many there are."""
        ...

    def submit(self, shard: int, work: Callable[[Any], Any], task: object) -> Any:
        """Begin a task; return what has `result()`."""
        ...

    def is_lost(self, error: Exception) -> bool:
        """Whether an error means that a worker has died, so that its task can be done again."""
        ...

    def renew(self, shard: int) -> None:
        """Put a new worker in the place of one that has died."""
        ...

    def forget(self, folder: str) -> None:
        """Let the workers drop the shards of a simulation that has ended."""
        ...

    def close(self) -> None:
        """End the workers, or leave those of others."""
        ...


def usable_cores() -> int:
    """Return how many cores this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)  # not on every system
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1


def start_workers(config: EngineConfig) -> Workers:
    """Start the workers of an engine, or reach those of a cluster, however many it has."""
    n_cores = usable_cores()
    n_workers = min(config.shards or n_cores, n_cores)
    return DaskWorkers(config.address, n_workers) if config.kind == "dask" else ProcessWorkers(n_workers)


@contextmanager
def open_workers(config: EngineConfig) -> Iterator[Workers]:
    """Give the workers of an engine: those that it was given, or new ones, which end afterwards."""
    if config.workers is not None:
        yield config.workers
        return
    workers = start_workers(config)
    try:
        yield workers
    finally:
        workers.close()


class ProcessWorkers:
    """One process of Python's own pool for each worker, so that a shard stays where it is."""

    def __init__(self, n_workers: int) -> None:
        self._pools = [_start_pool() for _ in range(n_workers)]

    @property
    def n_workers(self) -> int:
        """How many processes there are."""
        return len(self._pools)

    def submit(self, shard: int, work: Callable[[Any], Any], task: object) -> Future[Any]:
        """Begin a task in the process of a shard."""
        try:
            return self._pools[shard % len(self._pools)].submit(work, task)
        except BrokenProcessPool as error:
            failed: Future[Any] = Future()
            failed.set_exception(error)
            return failed

    def is_lost(self, error: Exception) -> bool:
        """Whether the process has died."""
        return isinstance(error, BrokenProcessPool)

    def renew(self, shard: int) -> None:
        """Start a new process."""
        at = shard % len(self._pools)
        self._pools[at].shutdown(wait=False, cancel_futures=True)
        self._pools[at] = _start_pool()

    def forget(self, folder: str) -> None:
        """Let every process drop the shards of a simulation."""
        for pool in self._pools:
            with contextlib.suppress(BrokenProcessPool):
                pool.submit(forget_shards, folder)

    def close(self) -> None:
        """End all processes, also in the midst of a task: nothing is written that is not in the scratch folder."""
        for pool in self._pools:
            processes = list((getattr(pool, "_processes", None) or {}).values())
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.terminate()
            for process in processes:
                process.join(5)
                if process.is_alive():
                    process.kill()


def _start_pool() -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")  # a fork of a process with threads may stand still
    return ProcessPoolExecutor(1, context, initializer=begin_worker, initargs=(os.getpid(),))


class DaskWorkers:
    """Workers of a Dask cluster: of a running scheduler, or started on this machine."""

    def __init__(self, address: str, n_workers: int) -> None:
        try:
            from distributed import Client, LocalCluster
        except ImportError:
            raise EngineError(
                "runtime.engine=dask needs Dask, which is not installed.", "Install it: pip install 'tacit[cluster]'."
            ) from None
        self._cluster = None
        try:
            if not address:
                self._cluster = LocalCluster(
                    n_workers=n_workers, threads_per_worker=1, dashboard_address=None, silence_logs=50
                )
            self._client = Client(self._cluster or address, timeout=REACH_SECONDS)
        except (OSError, TimeoutError, ValueError) as error:
            self._end_cluster()
            raise EngineError(
                f"No Dask scheduler answers at '{address}': {error}",
                "Start one with 'dask scheduler' and workers with 'dask worker', or leave runtime.address empty.",
            ) from None
        self._refuse_other_versions()

    def _refuse_other_versions(self) -> None:
        try:
            found = self._client.run(WorkerIdentity.of_this_process)
        except Exception as error:  # a worker without Tacit cannot even name its error
            self.close()
            raise EngineError(
                f"A worker of the cluster cannot run Tacit: {error}",
                "Install the same version of Tacit, from the same lock, on every machine of the cluster.",
            ) from None
        if not found:
            self.close()
            raise EngineError("The Dask scheduler has no workers.", "Start some with 'dask worker'.")
        for place, identity in found.items():
            try:
                refuse_other_bits(identity, place)
            except EngineError:
                self.close()
                raise

    @property
    def n_workers(self) -> int:
        """How many workers the scheduler knows."""
        return max(1, len(self._client.scheduler_info(n_workers=-1)["workers"]))

    def submit(self, shard: int, work: Callable[[Any], Any], task: object) -> Any:
        """Begin a task, where its shard was last if that worker lives; Dask repeats what a dead worker did not end."""
        places = sorted(self._client.scheduler_info(n_workers=-1)["workers"])
        where = {"workers": [places[shard % len(places)]], "allow_other_workers": True} if places else {}
        return self._client.submit(work, task, pure=False, key=f"tacit-{uuid.uuid4().hex}", **where)

    def is_lost(self, error: Exception) -> bool:
        """Whether Dask gave a task up because its workers died."""
        return type(error).__name__ in ("KilledWorker", "FutureCancelledError", "CancelledError")

    def renew(self, shard: int) -> None:
        """Dask has started a new worker, or has others."""

    def forget(self, folder: str) -> None:
        """Let every worker drop the shards of a simulation."""
        with contextlib.suppress(Exception):  # of workers that have gone: they hold nothing any more
            self._client.run(forget_shards, folder)

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        with contextlib.suppress(Exception):
            self._client.close(timeout=5)
        self._end_cluster()

    def _end_cluster(self) -> None:
        if self._cluster is not None:
            with contextlib.suppress(Exception):
                self._cluster.close(timeout=5)


def refuse_other_bits(worker: WorkerIdentity, place: str) -> None:
    """Refuse a worker whose arithmetic may give other bits: another version, or another processor."""
    own = dict(WorkerIdentity.of_this_process().bits)
    for name, theirs in worker.bits:
        if own.get(name) != theirs:
            raise EngineError(
                f"Worker {place} on {worker.host} has {name} {theirs}, this process {own.get(name)}: "
                "bits would differ.",
                "Use the same versions and the same kind of processor on all machines.",
            )


def run_tasks(
    workers: Workers, work: Callable[[Any], Any], tasks: Mapping[int, object], n_shards: int
) -> dict[int, Any]:
    """Do tasks side by side, by the number of their shard; those of workers that die are done again.

    An answer names its worker; one whose bits could differ is refused.
    """
    found: dict[int, Any] = {}
    for tries in range(1, TRIES + 1):
        running = {at: workers.submit(at, work, task) for at, task in tasks.items() if at not in found}
        lost = []
        for at, future in running.items():
            try:
                answer = future.result()
            except Exception as error:
                if not workers.is_lost(error):
                    raise
                lost.append(at)
                continue
            refuse_other_bits(answer.worker, str(answer.worker.pid))
            found[at] = answer
        for at in lost:
            workers.renew(at)
        if lost and tries == TRIES:
            shards = ", ".join(str(at + 1) for at in lost)
            raise EngineError(
                f"The workers of shard {shards} of {n_shards} died {TRIES} times in a row.",
                "They were killed, or ran out of memory: set runtime.shards higher, or use fewer workers.",
            ) from None
        if not lost:
            break
    return found
