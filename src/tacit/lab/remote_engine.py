"""Shards in other processes. Arrays travel as files: shared ones once per round, totals back.

Processes of this machine map these files. On a cluster shared ones are named by their digest, and checked.

What a shard must know to be made again is kept here: the requests that counted since its last checkpoint. A task that a
dead worker did not end is given to another one, with the same bits.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tacit.errors import EngineError
from tacit.lab.array_files import is_same_array, map_array, read_value, write_array
from tacit.lab.engine import EngineConfig, ShardedClients, split_request
from tacit.lab.memory import refuse_too_large_shards
from tacit.lab.shard_worker import (
    PastRequest,
    ShardTask,
    SharedFile,
    TaskResult,
    checkpoint_path,
    digest_array,
    make_folder,
    run_task,
    unreadable,
    write_pickle,
)
from tacit.lab.shards import ShardAnswer, ShardRequest, cut_evenly
from tacit.lab.workers import run_tasks, start_workers
from tacit.types import Array

KEPT_REQUESTS = 8  # of a shard, before its private part is written down


@dataclass
class _ShardHistory:
    """What makes a shard again: a checkpoint, and the requests that counted since."""

    checkpoint: int = 0
    past: list[PastRequest] = field(default_factory=list)
    pending: dict[int, PastRequest] = field(default_factory=dict)  # by ticket


class RemoteEngine:
    """Asks shards that live in workers."""

    def __init__(self, config: EngineConfig, sharded: ShardedClients) -> None:
        self.clients, self._sharded = sharded.clients, sharded
        self._has_private, self._owns_workers = bool(sharded.private), config.workers is None
        self._is_elsewhere = bool(config.address)
        self._maps = config.kind == "processes" and sys.platform != "win32"  # there a mapped file cannot be removed
        self._files: dict[str, SharedFile] = {}  # the last one of each shared array
        self._written: set[str] = set()
        self._constants: set[str] = set()  # files of arrays that no round changes
        self._n_files = 0
        self._folder = make_folder("tacit-shards-", config.folder)
        try:
            self._workers = config.workers or start_workers(config)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self.n_cores = 1 if self._is_elsewhere else self._workers.n_workers
        try:
            self.cuts = cut_evenly(sharded.clients, config.shards or self._workers.n_workers)
            self._histories = [_ShardHistory() for _ in self.cuts[:-1]]
            self._n_tickets = 0
            write_pickle(self._folder / "path.pickle", (sharded.path, sharded.key))
            for at, shard in enumerate(sharded.cut(self.cuts)):
                write_pickle(self._folder / f"shard-{at}.pickle", (shard.first, shard.clients))
                write_pickle(checkpoint_path(self._folder, at, 0), dict(shard.private))
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise EngineError(
                    f"Shards cannot be written to '{self._folder}': {error}.", "Set runtime.folder to another folder."
                ) from None
            raise

    def close(self) -> None:
        """End the workers, unless they were given, and remove the files."""
        if self._owns_workers:
            self._workers.close()
        else:
            self._workers.forget(str(self._folder))
        shutil.rmtree(self._folder, ignore_errors=True)

    def ask(self, request: ShardRequest, shared: Mapping[str, Array]) -> tuple[int, list[ShardAnswer]]:
        """Ask the shards side by side, and read their answers in order."""
        ticket, self._n_tickets = self._n_tickets, self._n_tickets + 1
        if ticket == 0 and not self._is_elsewhere:
            self._refuse_too_large(shared)
        files = self._write_shared(shared)
        asked: dict[int, ShardTask] = {}
        for at, who in split_request(request, self.cuts).items():
            history, now = self._histories[at], PastRequest(ticket, request.of(who), files)
            saves = len(history.past) >= KEPT_REQUESTS
            asked[at] = self._task(at, "answer", now, saves)
            history.pending[ticket] = now
        results = self._run(asked)
        for at, task in asked.items():
            if task.saves:
                self._trim(at)
        return ticket, [self._take(results[at].file) for at in asked]

    def settle(self, tickets: Sequence[int]) -> None:
        """Note which requests count; shards learn it with their next task."""
        for history in self._histories:
            if self._has_private:
                history.past += [one for ticket, one in history.pending.items() if ticket in tickets]
            history.pending = {}
        needed = {file.name for history in self._histories for one in history.past for file in one.shared.values()}
        for name in self._written - needed - self._constants:
            (self._folder / name).unlink(missing_ok=True)
            self._written.remove(name)

    def here(self) -> None:
        """Private parts are elsewhere."""

    def private(self) -> Mapping[str, Array]:
        """Return the private parts, fetched when one is first read."""
        return FetchedArrays(self) if self._has_private else {}

    def largest(self) -> dict[str, float]:
        """Ask every shard for its largest numbers."""
        if not self._has_private:
            return {}
        found = self._run({at: self._task(at, "largest") for at in range(len(self._histories))})
        names = next(iter(found.values())).largest
        return {name: float(np.max([result.largest[name] for result in found.values()])) for name in names}

    def fetch(self) -> dict[str, Array]:
        """Return the private part of all clients, in order."""
        found = self._run({at: self._task(at, "fetch") for at in range(len(self._histories))})
        parts = [self._take(found[at].file) for at in sorted(found)]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    # --- inside -------------------------------------------------------------------------------------------------------

    def _write_shared(self, shared: Mapping[str, Array]) -> dict[str, SharedFile]:
        """Write the arrays that clients receive, those that are not written yet."""
        spec, found = self._sharded.path.method.spec, {}
        for name in (*spec.downloads, *spec.constants, *spec.client_tables):
            array = np.asarray(shared[name])
            file = self._find_written(name, array)
            if file.name not in self._written:
                write_array(self._folder / file.name, array)
                self._written.add(file.name)
            if name in spec.constants:
                self._constants.add(file.name)
            found[name] = self._files[name] = file
        return found

    def _find_written(self, name: str, array: Array) -> SharedFile:
        """Return the file of an array, which is written if an equal one was."""
        if not self._maps:
            digest = digest_array(array)
            return SharedFile(f"{digest}.npy", digest)
        last = self._files.get(name)
        is_there = last is not None and last.name in self._written
        if last is not None and is_there and is_same_array(map_array(self._folder / last.name), array):
            return last
        self._n_files += 1
        return SharedFile(f"shared-{self._n_files}.npy")

    def _take(self, file: str) -> Any:
        """Read what a worker wrote, and remove the file."""
        path = Path(file)
        try:
            found = read_value(path, self._maps)
        except OSError as error:
            raise unreadable(path, error) from None
        path.unlink(missing_ok=True)
        return found

    def _task(
        self,
        at: int,
        action: Literal["answer", "largest", "fetch"],
        now: PastRequest | None = None,
        saves: bool = False,
    ) -> ShardTask:
        history = self._histories[at]
        pending, past = frozenset(history.pending), tuple(history.past)
        return ShardTask(str(self._folder), at, action, history.checkpoint, past, pending, now, saves)

    def _trim(self, at: int) -> None:
        """Forget the requests that a new checkpoint of a shard holds."""
        history = self._histories[at]
        old = checkpoint_path(self._folder, at, history.checkpoint)
        history.checkpoint, history.past = history.checkpoint + len(history.past), []
        old.unlink(missing_ok=True)

    def _run(self, tasks: Mapping[int, ShardTask]) -> dict[int, TaskResult]:
        return run_tasks(self._workers, run_task, tasks, len(self._histories))

    def _refuse_too_large(self, shared: Mapping[str, Array]) -> None:
        """Refuse shards that do not fit into the memory of this machine; a cluster has its own."""
        clients, n_shards = self.clients, len(self._histories)
        shapes = self._sharded.path.method.shapes(shared)
        tables = sum(array.nbytes for array in shared.values())
        tables += sum(8 * int(np.prod(shape)) for shape in shapes.values())  # the sums, as whole numbers
        of_clients = sum(array.nbytes for array in self._sharded.private.values())
        of_clients += sum(
            getattr(clients, column.name).nbytes
            for column in fields(clients)
            if column.init and isinstance(getattr(clients, column.name), np.ndarray)
        )
        n_workers = min(self._workers.n_workers, n_shards)
        refuse_too_large_shards(tables, of_clients / n_workers, n_workers)  # a worker holds all of its shards


class FetchedArrays(Mapping[str, Array]):
    """The private parts of all shards, fetched when one is first read: most passes need none of them."""

    def __init__(self, engine: RemoteEngine) -> None:
        self._engine = engine

    @cached_property
    def _arrays(self) -> dict[str, Array]:
        return self._engine.fetch()

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)
