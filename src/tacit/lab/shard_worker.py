"""A worker of an engine: it holds shards, and does what tasks say.

A task tells all that is needed to have its shard as it should be: what clients learnt since the last checkpoint, as
the requests they learnt it from. A worker that holds the shard already only does what is new; any other loads the
shard and learns the same again. Chance is keyed, so that gives the same bits, and a lost worker costs time only.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import platform
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tacit.errors import EngineError
from tacit.lab.array_files import map_array, write_value
from tacit.lab.engine import largest_numbers
from tacit.lab.shards import Learnt, Shard, ShardRequest
from tacit.numerics import one_blas_thread
from tacit.protocols.federated import UpdatePath
from tacit.random import Key
from tacit.types import Array, Clients

LARGEST_KEPT = 2**25 - 2**16  # bytes; of larger blocks glibc keeps none
PACKAGES = ("numpy", "scipy", "numba", "llvmlite", "polars")


@dataclass(frozen=True)
class SharedFile:
    """The file of a shared array; the digest of its bits where a disk of other machines could hold others."""

    name: str
    digest: str = ""


@dataclass(frozen=True)
class PastRequest:
    """A request with its ticket and the shared arrays that it was made with."""

    ticket: int
    request: ShardRequest
    shared: Mapping[str, SharedFile]


@dataclass(frozen=True)
class ShardTask:
    """What a worker shall do with a shard, and how the shard came to be as it is."""

    folder: str
    shard: int
    action: Literal["answer", "largest", "fetch"]
    checkpoint: int  # how many kept requests are in the file that the private part is loaded from
    past: tuple[PastRequest, ...] = ()  # kept since then
    pending: frozenset[int] = frozenset()  # tickets that are not decided yet
    now: PastRequest | None = None
    saves: bool = False  # write a checkpoint first


@dataclass(frozen=True)
class TaskResult:
    """Who did a task, and what came of it; large results are in a file."""

    worker: WorkerIdentity
    file: str = ""
    largest: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class WorkerIdentity:
    """A process, and the versions and the processor on which the bits of its arithmetic depend."""

    pid: int
    host: str
    bits: tuple[tuple[str, str], ...]

    @classmethod
    def of_this_process(cls) -> WorkerIdentity:
        """Return that of the process that asks."""
        return cls(os.getpid(), platform.node(), _versions())


@dataclass(frozen=True)
class FileTask:
    """Which shard of a folder of files a worker shall work on."""

    folder: str
    shard: int


@lru_cache(maxsize=1)
def _versions() -> tuple[tuple[str, str], ...]:
    from llvmlite import binding

    from tacit import __version__

    found = {name: metadata.version(name) for name in PACKAGES}
    sources = hashlib.blake2b(digest_size=8)
    for file in sorted(Path(__file__).parent.parent.rglob("*.py")):
        sources.update(file.read_bytes())
    found |= {
        "tacit": f"{__version__} ({sources.hexdigest()})",
        "python": platform.python_version(),
        "processor": f"{platform.machine()} {binding.get_host_cpu_name()}",
    }
    return tuple(sorted(found.items()))


@dataclass
class _HeldShard:
    shard: Shard
    done: int  # kept requests that the private part has
    learnt: dict[int, Learnt] = field(default_factory=dict)  # by ticket, not yet decided


_SHARDS: dict[tuple[str, int], _HeldShard] = {}
_LOCK = threading.Lock()


def run_task(task: ShardTask) -> TaskResult:
    """Do a task in this process."""
    with _LOCK, one_blas_thread():
        try:
            return _run_task(task)
        except MemoryError:
            raise EngineError(
                f"A worker ran out of memory with shard {task.shard + 1}.",
                "Cut the clients into more shards (runtime.shards), or use fewer workers.",
            ) from None


def forget_shards(folder: str) -> None:
    """Forget the shards of a simulation that has ended."""
    with _LOCK:
        for key in [key for key in _SHARDS if key[0] == folder]:
            del _SHARDS[key]
        for path in [path for path in _ARRAYS if str(path.parent) == folder]:
            del _ARRAYS[path]


def _run_task(task: ShardTask) -> TaskResult:
    identity, folder = WorkerIdentity.of_this_process(), Path(task.folder)
    held = _SHARDS.get((task.folder, task.shard))
    if held is None or not task.checkpoint <= held.done <= task.checkpoint + len(task.past):
        held = _SHARDS[task.folder, task.shard] = _HeldShard(_load_shard(folder, task), task.checkpoint)
    for one in task.past[held.done - task.checkpoint :]:
        learnt = held.learnt.pop(one.ticket, None)
        if learnt is None:  # in another worker: learn it again
            _, learnt = held.shard.answer(one.request, _read_shared(folder, one.shared))
        held.shard.keep(learnt)
        held.done += 1
    held.learnt = {ticket: learnt for ticket, learnt in held.learnt.items() if ticket in task.pending}
    if task.saves:
        write_pickle(checkpoint_path(folder, task.shard, held.done), dict(held.shard.private))
    if task.action == "largest":
        return TaskResult(identity, largest=largest_numbers(held.shard.private))
    file = folder / f"{task.action}-{task.shard}.arrays"
    if task.action == "fetch":
        write_value(file, dict(held.shard.private))
        return TaskResult(identity, str(file))
    assert task.now is not None
    answer, learnt = held.shard.answer(task.now.request, _read_shared(folder, task.now.shared))
    if not task.now.request.is_bare:
        held.learnt[task.now.ticket] = learnt
    write_value(file, answer)
    return TaskResult(identity, str(file))


def _load_shard(folder: Path, task: ShardTask) -> Shard:
    np.empty(LARGEST_KEPT, np.uint8)  # glibc keeps freed blocks up to the largest it has seen freed; others do as ever
    path, key = read_pickle(folder / "path.pickle")
    assert isinstance(path, UpdatePath)
    assert isinstance(key, Key)
    first, clients = read_pickle(folder / f"shard-{task.shard}.pickle")
    assert isinstance(clients, Clients)
    private = read_pickle(checkpoint_path(folder, task.shard, task.checkpoint))
    return Shard(path, key, first, clients, private)


def checkpoint_path(folder: Path, shard: int, done: int) -> Path:
    """Return where the private part of a shard is, after so many kept requests."""
    return folder / f"private-{shard}-{done}.pickle"


def _read_shared(folder: Path, files: Mapping[str, SharedFile]) -> dict[str, Array]:
    for path in _ARRAYS.keys() - {folder / file.name for file in files.values()}:
        del _ARRAYS[path]  # first: a worker holds the tables of one round
    return {name: _read_array(folder / file.name, file.digest) for name, file in files.items()}


_ARRAYS: dict[Path, Array] = {}  # the shared arrays of the last request


def _read_array(path: Path, digest: str) -> Array:
    if path not in _ARRAYS:
        try:
            # a copy: rows are read in any order, and memory of a process has larger pages than a mapped file
            array = np.load(path, allow_pickle=False) if digest else np.array(map_array(path))
        except (OSError, ValueError) as error:
            raise unreadable(path, error) from None
        if digest and digest_array(array) != digest:
            raise EngineError(
                f"'{path}' does not hold what was written: its digest differs.", "Check the disk of runtime.folder."
            )
        array.flags.writeable = False
        _ARRAYS[path] = array
    return _ARRAYS[path]


def digest_array(array: Array) -> str:
    """Return the digest of an array: its kind, its shape and its bytes."""
    whole = np.ascontiguousarray(array)
    found = hashlib.blake2b(f"{whole.dtype.str} {array.shape}".encode(), digest_size=16)
    found.update(whole.reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def make_folder(prefix: str, parent: str) -> Path:
    """Make a folder for files on their way, in `parent` or, if that is empty, where the system keeps such ones."""
    try:
        return Path(tempfile.mkdtemp(prefix=prefix, dir=parent or None))
    except OSError as error:
        raise EngineError(
            f"No folder can be made in '{parent or tempfile.gettempdir()}': {error}.",
            "Set runtime.folder to another folder.",
        ) from None


def write_pickle(path: Path, value: object) -> None:
    """Write a file whole or not at all."""
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    with partial.open("wb") as file:
        pickle.dump(value, file, protocol=5)
    partial.replace(path)


def read_pickle(path: Path) -> Any:
    """Read what `write_pickle` wrote; both ends are processes of one simulation."""
    try:
        with path.open("rb") as file:
            return pickle.load(file)
    except OSError as error:
        raise unreadable(path, error) from None


def unreadable(path: Path, error: Exception) -> EngineError:
    """Return what to say of a file that this process cannot read."""
    return EngineError(
        f"Worker {os.getpid()} on {platform.node()} cannot read '{path}': {error}.",
        "Set runtime.folder to a folder that all machines of the cluster share.",
    )


def begin_worker(parent: int) -> None:
    """Leave Ctrl-C to the parent, and end when it has ended: a worker is never left behind."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    if sys.platform != "win32":
        threading.Thread(target=watch, daemon=True).start()
