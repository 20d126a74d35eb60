"""A federation in one process: thousands of devices, a chunk of them at a time, bit for bit what real ones would do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.errors import DivergedError
from tacit.methods.base import Cohort, CountsRows, Distributes, Federated, RunsRounds, Schedule, SumsCohorts
from tacit.privacy.disclosure import Disclosure
from tacit.privacy.outbound import Stage
from tacit.protocols.federated import device_round
from tacit.protocols.selection import asked
from tacit.random import Key
from tacit.runtimes.events import Events
from tacit.types import Array, Catalog, Clients, Model
from tacit.updates import Release, Ring, Total

EXPLODED = 1e3  # vectors that rank well stay far below
CHUNK_ROWS = 2**18  # rows made in one chunk: what is drawn for them stays in cache
ROWS_PER_ITEM = 8  # in one chunk at least: touching the whole table once for it must be worth while


@dataclass
class Traffic:
    """What each client was asked for and sent, summed over rounds, by position in the cohort."""

    rounds: NDArray[np.int64]
    positives: NDArray[np.int64]
    negatives: NDArray[np.int64]
    bytes_up: NDArray[np.int64]
    bytes_down: NDArray[np.int64]

    @classmethod
    def none(cls, n_clients: int) -> Traffic:
        """Return the traffic before the first round."""
        return cls(*(np.zeros(n_clients, np.int64) for _ in range(5)))

    def add(self, positions: Array | slice, release: Release, rounds: Array | int, down: int) -> None:
        """Count what the clients at some positions (each once) received and sent."""
        self.rounds[positions] += rounds
        self.positives[positions] += release.positives
        self.negatives[positions] += release.negatives
        self.bytes_up[positions] += release.bytes
        self.bytes_down[positions] += rounds * down


def simulate(
    method: Federated,
    stages: Sequence[Stage],
    ring: Ring,
    clients: Clients,
    catalog: Catalog,
    key: Key,
    traffic: Traffic | None = None,
    *,
    plainly: bool = False,
    events: Events | None = None,
) -> Iterator[Model]:
    """Yield the model after each pass; its arrays go on changing.

    `plainly` writes every message out and adds them one by one, as devices and a server do; otherwise a method that
    can adds up cohorts at once. A law holds the two together, bit for bit. `events` are told of every message; they
    are written from the messages themselves, so a simulation that keeps them runs plainly.
    """
    schedule = method.schedule(clients)
    model = method.init(clients, catalog, key.child("init"))
    shared, private = dict(model.shared), {name: array.copy() for name, array in model.private.items()}
    traffic = Traffic.none(len(clients)) if traffic is None else traffic
    federation = _Federation(method, stages, ring, clients, key, schedule, traffic, plainly, events)
    for number in range(schedule.passes):
        shared = federation.run(shared, private, schedule.rounds_of(number))
        _refuse_if_diverged(method, shared, private, number)
        yield Model(shared, private)


class _Federation:
    """The rounds of one simulation; `private` is changed in place."""

    def __init__(
        self,
        method: Federated,
        stages: Sequence[Stage],
        ring: Ring,
        clients: Clients,
        key: Key,
        schedule: Schedule,
        traffic: Traffic,
        plainly: bool,
        events: Events | None,
    ) -> None:
        self.method, self.stages, self.ring, self.clients, self.key = method, stages, ring, clients, key
        self.schedule, self.traffic, self.events = schedule, traffic, events
        only = stages[0] if len(stages) == 1 else None
        self.disclosure = only if isinstance(only, Disclosure) else None
        self.is_fast = not plainly and events is None and len(stages) == (self.disclosure is not None)
        self.summing = (
            method if self.is_fast and isinstance(method, SumsCohorts) else None
        )  # looked up once: it is slow
        self.downloads = method.downloads if isinstance(method, Distributes) else method.tables
        self.whole: list[tuple[slice, Clients]] = []  # the chunks of everybody, cut once

    def run(self, shared: dict[str, Array], private: dict[str, Array], rounds: range) -> dict[str, Array]:
        method = self.method
        if self.is_fast and isinstance(method, RunsRounds) and self.schedule.clients_per_round == 1:
            release, times = method.run_rounds(
                shared, private, self.clients, self.ring, self.disclosure, self.key, rounds
            )
            self.traffic.add(slice(None), release, times, self._down(shared))
            return shared
        for number in rounds:
            shared = self.one(shared, private, number)
        return shared

    def one(self, shared: dict[str, Array], private: dict[str, Array], number: int) -> dict[str, Array]:
        """Run one round: every chunk learns and is added, then the server applies the sum."""
        method, key = self.method, self.key
        total = Total.zero({name: shared[name].shape for name in method.tables})
        for positions, clients in self._chunks(number, shared):
            part = {name: array[positions] for name, array in private.items()}
            if self.summing is not None:
                keys = key.child("learn", number), key.child("seal", number, 0)
                cohort = Cohort(shared, part, clients, self.ring, self.disclosure, *keys)
                release, moved = self.summing.sum_cohort(cohort, total)
            else:
                message, moved = device_round(method, self.stages, self.ring, shared, part, clients, key, number)
                total.add(message)
                release = message.release
                if self.events is not None:
                    self.events.write(number, message, self._about_items(shared))
            for name, array in moved.items():
                private[name][positions] = array
            self.traffic.add(positions, release, 1, self._down(shared))
        for sums in total.sums.values():
            self.ring.check(sums)
        return dict(method.apply(shared, total, self.ring))

    def _chunks(self, number: int, shared: dict[str, Array]) -> Iterator[tuple[Array | slice, Clients]]:
        n_clients = len(self.clients)
        every = sum(len(shared[name]) for name in self.method.tables)
        each = self.method.rows_per_client(shared) if isinstance(self.method, CountsRows) else every
        size = max(1, max(CHUNK_ROWS, ROWS_PER_ITEM * every) // max(1, each))
        if self.schedule.clients_per_round < n_clients:
            positions = asked(self.schedule, self.key.child("choose"), number, n_clients)
            for start in range(0, len(positions), size):
                part = positions[start : start + size]
                yield part, self.clients.take(part)
            return
        if not self.whole:
            cuts = [slice(start, min(start + size, n_clients)) for start in range(0, n_clients, size)]
            self.whole = [(cut, self.clients.take(np.arange(cut.start, cut.stop))) for cut in cuts]
        yield from self.whole

    def _about_items(self, shared: dict[str, Array]) -> list[str]:
        return [name for name in self.method.tables if len(shared[name]) == self.clients.n_items]

    def _down(self, shared: dict[str, Array]) -> int:
        return sum(shared[name].nbytes for name in self.downloads)


def _refuse_if_diverged(method: Federated, shared: dict[str, Array], private: dict[str, Array], number: int) -> None:
    for array in (*(shared[name] for name in method.tables), *private.values()):
        largest = float(np.abs(array).max(initial=0.0))
        if not largest < EXPLODED:
            rate = getattr(getattr(method, "config", None), "learning_rate", None)
            raise DivergedError(
                f"Learning diverged in pass {number + 1}: a learnt number reached {largest:.3g}.",
                f"Updates are summed over clients, so a step that suits one is too large for many: lower "
                f"method.learning_rate{'' if rate is None else f' (now {rate:g})'} or method.clients_per_round.",
            )
