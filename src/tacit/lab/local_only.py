"""Local-only models: clients who learn alone, each from its own history.

Nothing leaves such a client, so no stage stands in between. Clients do not depend on one another, so they learn side by
side: in threads of this process, or in the workers of an engine, with the same bits.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tacit.errors import EngineError
from tacit.lab.engine import EngineConfig
from tacit.lab.shard_worker import FileTask, TaskResult, WorkerIdentity, make_folder, read_pickle, write_pickle
from tacit.lab.training import PassOptions, passes
from tacit.lab.workers import Workers, run_tasks
from tacit.methods.base import Method, score_clients
from tacit.numerics import one_blas_thread
from tacit.random import Key
from tacit.types import Array, Catalog, Clients, Floats, Progress
from tacit.updates import Ring

WHAT = "learning alone, to see that nothing leaks"


@dataclass(frozen=True)
class LocalOnlyTraining:
    """How a client learns alone."""

    method: Method
    catalog: Catalog
    key: Key
    ring: Ring

    def score(self, clients: Clients, position: int) -> Floats:
        """Let one client learn, and return its scores of all items."""
        client = clients.take([position])
        for model in passes(self.method, client, self.catalog, self.key, PassOptions(ring=self.ring)):
            last = model
        scores: Floats = score_clients(self.method, last, client)[0]
        return scores


def score_alone(
    training: LocalOnlyTraining,
    clients: Clients,
    positions: Array,
    engine: EngineConfig | None = None,
    progress: Progress = lambda what, done, total: None,
) -> Floats:
    """Return the scores [positions, items] of clients who learn alone, in the threads or workers of an engine."""
    engine, rows = engine or EngineConfig(), np.empty((len(positions), clients.n_items), np.float32)
    with one_blas_thread():
        if engine.workers is not None:
            return _score_in_workers(training, clients.take(positions), engine.workers, engine.folder)
        for row, scores in enumerate(_score_in_threads(training, clients, positions, engine.threads)):
            progress(WHAT, row, len(positions))
            rows[row] = scores
    return rows


def _score_in_threads(
    training: LocalOnlyTraining, clients: Clients, positions: Array, n_threads: int
) -> Iterator[Floats]:
    if n_threads < 2:
        yield from (training.score(clients, position) for position in positions)
        return
    with ThreadPoolExecutor(n_threads) as pool:
        yield from pool.map(lambda position: training.score(clients, position), positions)


def run_local_only(task: FileTask) -> TaskResult:
    """Let the clients of a shard learn alone in this process."""
    folder = Path(task.folder)
    try:
        training: LocalOnlyTraining = read_pickle(folder / "training.pickle")
        clients: Clients = read_pickle(folder / f"clients-{task.shard}.pickle")
        file = folder / f"scores-{task.shard}.pickle"
        write_pickle(file, score_alone(training, clients, np.arange(len(clients))))
    except MemoryError:
        raise EngineError(
            "A worker ran out of memory in the leak check.",
            "Use fewer workers, or fewer users (evaluation.local_only_users).",
        ) from None
    return TaskResult(WorkerIdentity.of_this_process(), str(file))


def _score_in_workers(training: LocalOnlyTraining, clients: Clients, workers: Workers, parent: str) -> Floats:
    folder = make_folder("tacit-alone-", parent)
    try:
        write_pickle(folder / "training.pickle", training)
        parts = [part for part in np.array_split(np.arange(len(clients)), workers.n_workers) if len(part)]
        for at, part in enumerate(parts):
            write_pickle(folder / f"clients-{at}.pickle", clients.take(part))
        tasks = {at: FileTask(str(folder), at) for at in range(len(parts))}
        found = run_tasks(workers, run_local_only, tasks, len(parts))
        return np.concatenate([read_pickle(Path(found[at].file)) for at in range(len(parts))])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
