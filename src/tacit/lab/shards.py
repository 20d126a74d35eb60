"""A shard: some of the clients of a simulation, with their private part, which stays where the shard is.

A request goes to every shard that has clients in it; each lets its clients learn and answers with a sum. Sums are
exact and chance is keyed, so the totals of shards add up to the same bits however clients are cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import DivergedError
from tacit.privacy.update_sink import Stage
from tacit.protocols.federated import UpdatePath, device_round
from tacit.protocols.secure_aggregation.encoding import count_mentions
from tacit.random import Key
from tacit.types import Array, Clients, Model
from tacit.updates import Message, Release, Total

CHUNK_ROWS = 2**18  # rows made in one chunk: what is drawn for them stays in cache
ROWS_PER_ITEM = 8  # in one chunk at least: touching the whole table once for it must be worth while
Part = tuple[Array | slice, Clients]  # where some clients stand in a shard, and they
Learnt = list[tuple[Array | slice, Mapping[str, Array]]]  # new private parts, by positions in the shard


@dataclass(frozen=True)
class ShardRequest:
    """What clients are asked in a round: those at some positions (none: all), by sums or message by message."""

    number: int
    who: NDArray[np.int64] | None
    by_message: bool = False  # messages come back whole, and are added by whoever asked
    counts_mentions: bool = False  # of every row, by how many clients it is mentioned
    is_bare: bool = False  # without any stage, and nothing is kept: for criteria that ask what clients learnt
    weighing: Stage | None = None  # of this round alone

    def of(self, who: NDArray[np.int64] | None) -> ShardRequest:
        """Return the same of the clients at some positions in one shard."""
        return self if who is self.who else replace(self, who=who)


@dataclass
class ShardAnswer:
    """What the clients of a request answered, by position among all clients; nothing of it has been believed yet."""

    total: Total | None = None  # none: message by message
    sent: list[tuple[Array | slice, Release]] = field(default_factory=list)
    refused: list[NDArray[np.int64]] = field(default_factory=list)
    mentions: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    messages: list[tuple[NDArray[np.int64], Message]] = field(default_factory=list)


@dataclass
class Shard:
    """Some clients, the `first` of which has that position among all clients; `private` is changed in place."""

    path: UpdatePath
    key: Key
    first: int
    clients: Clients
    private: Mapping[str, Array]
    _whole: list[Part] = field(default_factory=list)  # the chunks of all clients, cut once

    def answer(self, request: ShardRequest, shared: Mapping[str, Array]) -> tuple[ShardAnswer, Learnt]:
        """Let clients learn: all added up at once, or message by message where a client's numbers do not fit."""
        path = self.path
        if request.is_bare:
            path = replace(path, stages=())
        elif request.weighing is not None:
            path = replace(path, stages=(request.weighing, *path.stages))
        if not request.by_message:
            try:
                return self._add_cohorts(path, request, shared)
            except DivergedError:
                pass  # messages tell whose numbers they were
        return self._add_messages(path, request, shared)

    def keep(self, learnt: Learnt) -> None:
        """Put what clients learnt in the place of their private part."""
        for positions, arrays in learnt:
            for name, array in arrays.items():
                self.private[name][positions] = array

    def _add_cohorts(
        self, path: UpdatePath, request: ShardRequest, shared: Mapping[str, Array]
    ) -> tuple[ShardAnswer, Learnt]:
        total = Total.zero(path.method.shapes(shared))
        answer, learnt = ShardAnswer(total), []
        for positions, clients in self._parts(path, shared, request.who):
            model = self._model_of(path, shared, positions, clients)
            given = device_round(path, model, clients, self.key, request.number, total)
            places, fit = self._places(positions), given.is_fit
            if not fit.all():
                places = self._positions(positions)
                answer.refused.append(places[~fit])
                places = places[fit]
            learnt.append((positions, given.private))
            answer.sent.append((places, given.release))
        if request.counts_mentions:
            answer.mentions = {name: counts.copy() for name, counts in total.counts.items()}
        return answer, learnt

    def _add_messages(
        self, path: UpdatePath, request: ShardRequest, shared: Mapping[str, Array]
    ) -> tuple[ShardAnswer, Learnt]:
        total = Total.zero(path.method.shapes(shared))
        answer, learnt = ShardAnswer(None if request.by_message else total), []
        mentions = {name: np.zeros(len(counts), np.int64) for name, counts in total.counts.items()}
        for positions, clients in self._parts(path, shared, request.who):
            model = self._model_of(path, shared, positions, clients)
            given = device_round(path, model, clients, self.key, request.number)
            assert given.message is not None
            learnt.append((positions, given.private))
            places, message = self._positions(positions), given.message
            if request.by_message:
                answer.messages.append((places, message))
                continue
            total.add(message)
            if request.counts_mentions:
                speaking = count_mentions(message, {name: len(counts) for name, counts in total.counts.items()})
                mentions = {name: counts + speaking[name] for name, counts in mentions.items()}
            answer.sent.append((places[given.is_fit], message.release))
            answer.refused.append(places[~given.is_fit])
        if request.counts_mentions and not request.by_message:
            answer.mentions = mentions
        return answer, learnt

    def _places(self, positions: Array | slice) -> Array | slice:
        """Return positions among all clients; a range stays a range."""
        if isinstance(positions, slice):
            return slice(positions.start + self.first, positions.stop + self.first)
        return positions + self.first

    def _positions(self, positions: Array | slice) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self.first + np.arange(len(self.clients))[positions]
        return found

    def _model_of(
        self, path: UpdatePath, shared: Mapping[str, Array], positions: Array | slice, clients: Clients
    ) -> Model:
        """Return what some clients learn from: what they receive, and their private part."""
        part = {name: array[positions] for name, array in self.private.items()}
        return Model(path.method.spec.received(shared, clients.ids), part)

    def _parts(self, path: UpdatePath, shared: Mapping[str, Array], who: NDArray[np.int64] | None) -> Iterator[Part]:
        """Cut a cohort, or all clients, into chunks of a useful size."""
        n_clients, method = len(self.clients), path.method
        every = sum(shape[0] for name, shape in method.shapes(shared).items() if name not in method.spec.client_tables)
        size = max(1, max(CHUNK_ROWS, ROWS_PER_ITEM * every) // max(1, method.rows_per_client(shared)))
        if who is not None:
            for start in range(0, len(who), size):
                part = who[start : start + size]
                yield part, self.clients.take(part)
            return
        if not self._whole:
            cuts = [slice(start, min(start + size, n_clients)) for start in range(0, n_clients, size)]
            self._whole = [(cut, self.clients.take(np.arange(cut.start, cut.stop))) for cut in cuts]
        yield from self._whole


def cut_evenly(clients: Clients, n_shards: int) -> NDArray[np.int64]:
    """Return where shards begin, and the end [n + 1]: each has some clients, and about as much to learn from."""
    n_clients, n = len(clients), max(1, min(n_shards, len(clients)))
    work = clients.ptr[1:] - clients.ptr[0] + np.arange(1, n_clients + 1)
    wanted = np.searchsorted(work, work[-1] * np.arange(1, n) / n) + 1 if n_clients else np.zeros(0, np.int64)
    cuts = np.concatenate([[0], wanted, [n_clients]]).astype(np.int64)
    for at in range(1, n):  # every shard has a client, however uneven histories are
        cuts[at] = max(cuts[at], cuts[at - 1] + 1)
    for at in range(n - 1, 0, -1):
        cuts[at] = min(cuts[at], cuts[at + 1] - 1)
    return cuts


def cut_clients(clients: Clients, cut: slice) -> Clients:
    """Return a range of clients; histories are views of those of all."""
    low, high = int(clients.ptr[cut.start]), int(clients.ptr[cut.stop])
    parts: dict[str, Any] = {"ids": clients.ids[cut], "ptr": clients.ptr[cut.start : cut.stop + 1] - low}
    if clients.avoid is not None:
        parts["avoid"] = cut_clients(clients.avoid, cut)
    for column in fields(clients):  # whatever else there is has a place for each interaction
        value = getattr(clients, column.name)
        if column.init and column.name not in parts and isinstance(value, np.ndarray):
            parts[column.name] = value[low:high]
    return replace(clients, **parts)
