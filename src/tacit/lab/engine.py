"""Where the clients of a simulation learn: in this process, in others, or on a cluster. No engine changes a bit.

An engine holds shards and asks them. What clients learnt is kept in the shard, and counts only when the round does
(`settle`): a round that is abandoned leaves every private part as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from tacit.lab.shards import Learnt, Shard, ShardAnswer, ShardRequest, cut_clients, cut_evenly
from tacit.protocols.federated import UpdatePath
from tacit.random import Key
from tacit.types import Array, Clients

if TYPE_CHECKING:
    from tacit.lab.workers import Workers

LEAST_IN_SHARD = 512  # clients: fewer of them are not worth a thread of their own, nor a second total


@dataclass(frozen=True)
class EngineConfig:
    """Which engine, over how many shards (0: as many as it has threads or workers)."""

    kind: Literal["local", "processes", "dask"] = "local"
    shards: int = 0
    threads: int = 1
    address: str = ""  # of a Dask scheduler; empty: workers on this machine
    folder: str = ""  # that all workers see; empty: a temporary one of this machine
    workers: Workers | None = None  # that go on afterwards; None: new ones, for this simulation alone


@dataclass(frozen=True)
class ShardedClients:
    """What an engine cuts into shards: all clients, with the private part that they begin with."""

    path: UpdatePath
    clients: Clients
    key: Key
    private: Mapping[str, Array]

    def cut(self, cuts: NDArray[np.int64]) -> list[Shard]:
        """Return the shards; their arrays are views of those of all clients."""
        found = []
        for low, high in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
            part = slice(low, high)
            clients = self.clients if len(cuts) == 2 else cut_clients(self.clients, part)
            private = {name: array[part] for name, array in self.private.items()}
            found.append(Shard(self.path, self.key, low, clients, private))
        return found


class Engine(Protocol):
    """Shards of clients, wherever they are."""

    clients: Clients
    n_cores: int  # of this machine that its clients use; idle while none of them learns

    def ask(self, request: ShardRequest, shared: Mapping[str, Array]) -> tuple[int, list[ShardAnswer]]:
        """Ask the shards that have clients in a request; return a ticket, and their answers in order of clients."""
        ...

    def settle(self, tickets: Sequence[int]) -> None:
        """Keep what clients learnt for these tickets, and drop what they learnt for others."""
        ...

    def here(self) -> Mapping[str, Array] | None:
        """Return the private part of all clients to change in place; None where it is in other processes."""
        ...

    def private(self) -> Mapping[str, Array]:
        """Return the private part of all clients, to read; it may be fetched when it is first read."""
        ...

    def largest(self) -> dict[str, float]:
        """Return the largest absolute number of each private array of floats; indices may be large."""
        ...


def largest_numbers(private: Mapping[str, Array]) -> dict[str, float]:
    """Return the largest absolute number of each array of floats."""
    return {name: float(np.abs(array).max(initial=0.0)) for name, array in private.items() if array.dtype.kind == "f"}


def split_request(request: ShardRequest, cuts: NDArray[np.int64]) -> dict[int, NDArray[np.int64] | None]:
    """Return for each shard that has clients in a request their positions in it; None: all of them."""
    n_shards = len(cuts) - 1
    if request.who is None:
        return dict.fromkeys(range(n_shards))
    found: dict[int, NDArray[np.int64] | None] = {}
    bounds = np.searchsorted(request.who, cuts)
    for shard in range(n_shards):
        if bounds[shard] < bounds[shard + 1]:
            found[shard] = request.who[bounds[shard] : bounds[shard + 1]] - cuts[shard]
    return found


class LocalEngine:
    """Shards in threads of this process. Their private parts are views of one whole."""

    def __init__(self, config: EngineConfig, sharded: ShardedClients) -> None:
        self.clients, self._private = sharded.clients, sharded.private
        self._is_automatic, self.n_cores = not config.shards, config.threads
        self.cuts = cut_evenly(sharded.clients, config.shards or config.threads)
        self._shards = sharded.cut(self.cuts)
        self._whole = sharded.cut(self.cuts[[0, -1]])[0] if len(self._shards) > 1 else self._shards[0]
        n_threads = min(config.threads, len(self._shards))
        self._pool = ThreadPoolExecutor(n_threads) if n_threads > 1 else None
        self._learnt: list[list[tuple[Shard, Learnt]]] = []  # by ticket, since the last round

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def ask(self, request: ShardRequest, shared: Mapping[str, Array]) -> tuple[int, list[ShardAnswer]]:
        """Ask the shards side by side."""
        asked = self._asked(request)

        def answer(shard: Shard, part: ShardRequest) -> tuple[ShardAnswer, Learnt]:
            return shard.answer(part, shared)

        run = map if self._pool is None or len(asked) < 2 else self._pool.map
        found = list(run(answer, *zip(*asked, strict=True))) if asked else []
        self._learnt.append([(shard, learnt) for (shard, _), (_, learnt) in zip(asked, found, strict=True)])
        return len(self._learnt) - 1, [answered for answered, _ in found]

    def _asked(self, request: ShardRequest) -> list[tuple[Shard, ShardRequest]]:
        n_asked = len(self.clients) if request.who is None else len(request.who)
        if self._is_automatic and n_asked < LEAST_IN_SHARD * len(self._shards):
            return [(self._whole, request)] if n_asked else []
        parts = split_request(request, self.cuts)
        return [(self._shards[shard], request.of(who)) for shard, who in parts.items()]

    def settle(self, tickets: Sequence[int]) -> None:
        """Keep what was learnt for these tickets."""
        for ticket in tickets:
            for shard, learnt in self._learnt[ticket]:
                shard.keep(learnt)
        self._learnt = []

    def here(self) -> Mapping[str, Array]:
        """Return the whole private part."""
        return self._private

    def private(self) -> Mapping[str, Array]:
        """Return the whole private part."""
        return self._private

    def largest(self) -> dict[str, float]:
        """Measure the whole private part."""
        return largest_numbers(self._private)


@contextmanager
def open_engine(config: EngineConfig, sharded: ShardedClients) -> Iterator[Engine]:
    """Start an engine, and end it with all its threads, processes and files, whatever happens."""
    if config.kind == "local":
        local = LocalEngine(config, sharded)
        try:
            yield local
        finally:
            local.close()
        return
    from tacit.lab.remote_engine import RemoteEngine  # here, because few runs need it

    remote = RemoteEngine(config, sharded)
    try:
        yield remote
    finally:
        remote.close()
