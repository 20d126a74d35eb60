"""Ranking over an engine: users are cut into shards, and workers rank them. No bit of a metric depends on the cut.

A worker gets the users of its shard (histories, held-out items, private parts) and the shared arrays, each as a file.
It answers with lists and the metrics of each user. Shards begin at whole blocks of users, so that every user is scored
among the same others as in one process.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tacit.errors import EngineError
from tacit.evaluation.ranking import BLOCK, RankedUsers, RankingRequest
from tacit.lab.engine import EngineConfig
from tacit.lab.memory import refuse_too_large_shards
from tacit.lab.shard_worker import FileTask, TaskResult, WorkerIdentity, make_folder, read_pickle, write_pickle
from tacit.lab.workers import open_workers, run_tasks
from tacit.methods.base import Method
from tacit.numerics import one_blas_thread
from tacit.serving.recommender import Recommender, score_rows
from tacit.types import Array, Clients, Floats, Model

LEAST_SCORES = 2**30  # fewer of them are ranked sooner than workers start


@dataclass(frozen=True)
class ShardScorer:
    """The scores of some users: a method, their histories and private parts, and the tables of all."""

    method: Method
    model: Model
    clients: Clients

    def score(self, positions: Array) -> Floats:
        """Score all items for users by position in the shard."""
        return score_rows(self.method, self.model.take(positions), self.clients.take(positions))


def run_ranking(task: FileTask) -> TaskResult:
    """Rank a shard in this process."""
    folder = Path(task.folder)
    try:
        method, shared = read_pickle(folder / "shared.pickle")
        request, clients, private = read_pickle(folder / f"users-{task.shard}.pickle")
        scorer = ShardScorer(method, Model(shared, private), clients)
        with one_blas_thread():
            found = request.rank(scorer.score, None, 1)  # lists need all scores
        file = folder / f"ranked-{task.shard}.pickle"
        write_pickle(file, found)
    except MemoryError:
        raise EngineError(
            f"A worker ran out of memory while it ranked shard {task.shard + 1}.",
            "Cut the users into more shards (runtime.shards), or use fewer workers.",
        ) from None
    return TaskResult(WorkerIdentity.of_this_process(), str(file))


@dataclass(frozen=True)
class SpreadRanking:
    """Ranks the users of an evaluation in the workers of an engine."""

    engine: EngineConfig
    recommender: Recommender

    def __call__(self, request: RankingRequest, positions: NDArray[np.int64]) -> RankedUsers:
        """Rank users; those of the request stand at these positions of the recommender."""
        engine, recommender = self.engine, self.recommender
        folder = make_folder("tacit-ranking-", engine.folder)
        try:
            with open_workers(engine) as workers:
                cuts = _cut_users(request, engine.shards or workers.n_workers)
                if not engine.address:
                    self._refuse_too_large(request, cuts, workers.n_workers)
                write_pickle(folder / "shared.pickle", (recommender.method, dict(recommender.model.shared)))
                n_shards = len(cuts) - 1
                tasks = {at: self._write(folder, request, positions, cuts[at : at + 2], at) for at in range(n_shards)}
                found = run_tasks(workers, run_ranking, tasks, n_shards)
                return RankedUsers.join([read_pickle(Path(found[at].file)) for at in range(n_shards)])
        except OSError as error:
            raise EngineError(
                f"Shards cannot be written to '{folder}': {error}.", "Set runtime.folder to another folder."
            ) from None
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _write(self, folder: Path, request: RankingRequest, positions: Array, ends: Sequence[int], at: int) -> FileTask:
        part = slice(*ends)
        users = positions[part]
        private = dict(self.recommender.model.take(users).private)
        write_pickle(folder / f"users-{at}.pickle", (request.of(part), self.recommender.clients.take(users), private))
        return FileTask(str(folder), at)

    def _refuse_too_large(self, request: RankingRequest, cuts: Sequence[int], n_workers: int) -> None:
        model, clients, data = self.recommender.model, self.recommender.clients, request.data
        tables = sum(array.nbytes for array in model.shared.values()) + 4 * BLOCK * request.n_items
        of_users = sum(array.nbytes for array in model.private.values()) + 4 * len(clients.items)
        of_users += 4 * len(data.seen) + 20 * len(data.truth)
        share = max(np.diff(cuts), default=0) / max(1, len(clients))
        refuse_too_large_shards(tables, of_users * share, min(n_workers, len(cuts) - 1), len(cuts) - 1)


def _cut_users(request: RankingRequest, n_shards: int) -> list[int]:
    """Return where shards begin among users, and the end; blocks are of those who are ranked."""
    ranked = np.arange(len(request.data)) if request.lists else request.data.with_truth
    return [0, *np.append(ranked, len(request.data))[cut_blocks(len(ranked), n_shards)[1:]].tolist()]


def cut_blocks(n_users: int, n_shards: int) -> list[int]:
    """Return where shards begin, and the end: at whole blocks, about as many in each."""
    n_blocks = max(1, -(-n_users // BLOCK))
    n = max(1, min(n_shards, n_blocks))
    return [min(n_users, BLOCK * (at * n_blocks // n)) for at in range(n + 1)]
