"""The data types of federated learning: what was learnt, what may leave, and the sum of it.

    UpdatePlan   which rows an update will have; stages narrow it before any arithmetic
    Message      what may be sent: whole numbers of the ring, made by an `UpdateSink` only
    Total        the sum of many; `+` is associative and has a zero

Sums are exact. A value v travels as round(v * 2^fraction), an integer modulo 2^bits, so the order of arrival cannot
change a sum and masks cancel exactly. A value that does not fit is an error; it never wraps around.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tacit.errors import DivergedError
from tacit.types import Array, Config, Floats, offsets

MentionsItems: TypeAlias = Callable[[NDArray[np.bool_]], NDArray[np.bool_]]


class Ring(Config):
    """Fixed-point numbers modulo 2^bits, the same in simulation and in the field."""

    bits: Literal[32, 64] = Field(64, description="bits of the ring: sums are taken modulo 2^bits")
    fraction: int = Field(20, ge=4, le=23, description="bits behind the binary point: the grid is 2^-fraction")

    @property
    def scale(self) -> np.float32:
        """How many steps of the grid make 1."""
        return np.float32(2.0**self.fraction)

    @property
    def largest(self) -> float:
        """The largest value of a single number: a float32 on the grid is exact up to 2^24 steps."""
        return float(2.0 ** (24 - self.fraction))

    def encode(self, values: Floats) -> NDArray[np.int64]:
        """Return values as whole numbers; values that are too large mean that learning diverged."""
        if len(values):
            self.fits(float(np.abs(values).max()))
        numbers: NDArray[np.int64] = np.rint(values * self.scale).astype(np.int64)
        return numbers

    def holds(self, largest: Array) -> NDArray[np.bool_]:
        """Say which values the grid can hold; NaN is none of them."""
        found: NDArray[np.bool_] = largest <= self.largest
        return found

    def fits(self, largest: float) -> None:
        """Refuse a value that the grid cannot hold, such as NaN."""
        if not largest <= self.largest:
            raise DivergedError(
                f"Learning diverged: {largest:.3g} does not fit the ring, whose largest value is {self.largest:g}.",
                "Lower method.learning_rate (updates are summed over clients), or use fewer bits behind the point "
                "(runtime.ring.fraction).",
            )

    def decode(self, sums: NDArray[np.int64]) -> Floats:
        """Return sums as floats."""
        return sums.astype(np.float32) * np.float32(1.0 / self.scale)

    def check(self, sums: NDArray[np.int64]) -> None:
        """Refuse a sum that would have wrapped around in this ring."""
        if self.bits == 32 and len(sums) and int(np.abs(sums).max()) >= 2**31:
            raise DivergedError(
                "A sum of updates does not fit into 32 bits.",
                "Use runtime.ring.bits=64, fewer fraction bits, or fewer clients per round.",
            )


@dataclass(frozen=True)
class PlannedRows:
    """Rows of one table that the updates of a cohort will have: client c those from `ptr[c]` to `ptr[c + 1]`.

    `sensitive` marks rows about something a client did. Row i of an item table is about item i; of other tables,
    `mentions` says which rows [R] are about one of the client's items in a set [n_items].
    """

    table: str
    ptr: NDArray[np.int64]  # [C + 1]
    ids: NDArray[np.int32] | None  # [R] rows of the table; None: all of them, in order, for every client
    sensitive: NDArray[np.bool_] | bool  # [R], or the same for all
    mentions: MentionsItems | None = field(default=None, compare=False)
    kept: NDArray[np.uint8] | None = None  # [R] which rows may leave; None: all

    @property
    def n_rows(self) -> int:
        """R, kept or not."""
        return int(self.ptr[-1] - self.ptr[0])

    def marks(self) -> NDArray[np.bool_]:
        """Return which rows are sensitive, [R]."""
        return np.full(self.n_rows, self.sensitive) if isinstance(self.sensitive, bool) else self.sensitive

    def kept_sizes(self) -> NDArray[np.int64]:
        """Return how many rows of each client may leave, [C]."""
        if self.kept is None:
            return np.diff(self.ptr)
        before = offsets(self.kept)
        return before[self.ptr[1:]] - before[self.ptr[:-1]]

    def cut(self, clients: slice) -> PlannedRows:
        """Return the rows of a range of clients."""
        start, stop = int(self.ptr[clients.start]), int(self.ptr[clients.stop])
        return PlannedRows(
            self.table,
            self.ptr[clients.start : clients.stop + 1] - start,
            None if self.ids is None else self.ids[start:stop],
            self.sensitive if isinstance(self.sensitive, bool) else self.sensitive[start:stop],
            None,
            None if self.kept is None else self.kept[start:stop],
        )


@dataclass(frozen=True)
class UpdatePlan:
    """Which rows the updates of a cohort will have, decided before any arithmetic; stages narrow it.

    A message holds the parts of a table one after the other. `work` holds the method's own draws; no other code reads
    it.
    """

    clients: NDArray[np.int64]  # [C] ids
    parts: tuple[PlannedRows, ...]
    work: Any = field(default=None, compare=False)


@dataclass(frozen=True)
class Rows:
    """Ragged rows of one table: client c sends rows `ids[ptr[c]:ptr[c + 1]]`; a row may occur more than once."""

    ptr: NDArray[np.int64]  # [C + 1]
    ids: NDArray[np.int32]  # [R]
    values: Floats  # [R, D]


@dataclass(frozen=True)
class Update:
    """A message read as numbers: the input of criteria and of attacks."""

    clients: NDArray[np.int64]  # [C] ids
    tables: Mapping[str, Rows]
    sensitive: Mapping[str, NDArray[np.bool_]]  # per table, [R]


@dataclass(frozen=True)
class Release:
    """What the reader of a message learns of its senders, in counts."""

    positives: NDArray[np.int64]  # [C] rows sent about something the client did
    negatives: NDArray[np.int64]  # [C] other rows sent
    bytes: NDArray[np.int64]  # [C]


@dataclass(frozen=True)
class Message:
    """The only thing that may be sent: rows as whole numbers of the ring. Only an `UpdateSink` makes one.

    `release` and `sensitive` are for the device's own ledger and are not sent. `withheld` are clients whose update the
    ring cannot hold (NaN, or far too large): nothing of theirs is in it. Under differential privacy a row counts as a
    whole number of the ring (`counts`), shortened with the row.
    """

    clients: NDArray[np.int64]
    tables: Mapping[str, tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]]  # ptr, ids, numbers [R, D]
    release: Release
    sensitive: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)  # per table, [R]
    withheld: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))  # ids
    counts: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)  # per table, [R]: what a row counts; else 1

    def read(self, ring: Ring) -> Update:
        """Return its rows as floats, exactly."""
        rows = {name: Rows(ptr, ids, ring.decode(numbers)) for name, (ptr, ids, numbers) in self.tables.items()}
        return Update(self.clients, rows, self.sensitive)


@dataclass
class Total:
    """Sums over clients, table by table, and how many rows were added to each row.

    `noise` is the standard deviation of the noise in every number of the sums, in their unit; 0: the sums are exact.
    """

    sums: Mapping[str, NDArray[np.int64]]  # [n, D]
    counts: Mapping[str, NDArray[np.int64]]  # [n]
    n_clients: int = 0
    noise: float = 0.0

    @classmethod
    def zero(cls, shapes: Mapping[str, tuple[int, ...]]) -> Total:
        """Return the empty sum."""
        return cls(
            {name: np.zeros(shape, np.int64) for name, shape in shapes.items()},
            {name: np.zeros(shape[0], np.int64) for name, shape in shapes.items()},
        )

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Rows and width of each table."""
        return {name: sums.shape for name, sums in self.sums.items()}

    def __add__(self, other: Total) -> Total:
        return Total(
            {name: sums + other.sums[name] for name, sums in self.sums.items()},
            {name: counts + other.counts[name] for name, counts in self.counts.items()},
            self.n_clients + other.n_clients,
        )

    @classmethod
    def join(cls, totals: Sequence[Total]) -> Total:
        """Return the sum of some totals, at least one: the first of them, changed, unless it can only be read."""
        total, others = totals[0], list(totals[1:])
        if not all(array.flags.writeable for array in (*total.sums.values(), *total.counts.values())):
            total = total + (others.pop(0) if others else total.zero_like())
        for other in others:
            total.add_total(other)
        return total

    def add(self, message: Message) -> None:
        """Add one more message in place."""
        for name, (_, ids, numbers) in message.tables.items():
            np.add.at(self.sums[name], ids, numbers)
            np.add.at(self.counts[name], ids, message.counts.get(name, 1))
        self.n_clients += len(message.clients)

    def add_total(self, other: Total) -> None:
        """Add another sum in place."""
        for name, sums in self.sums.items():
            np.add(sums, other.sums[name], out=sums)
            np.add(self.counts[name], other.counts[name], out=self.counts[name])
        self.n_clients += other.n_clients

    def zero_like(self) -> Total:
        """Return the sum of no clients, of the same shapes."""
        return Total.zero(self.shapes)


@dataclass(frozen=True)
class PeerModels:
    """Whole models on their way from peer to peer, one per sender: all that a reader learns of the sender.

    `samples` and `ages` are what senders report of themselves: how much they have learnt from, and how often.
    """

    senders: NDArray[np.int64]  # [L] ids
    tables: Mapping[str, Array]  # each [L, ...]
    samples: NDArray[np.int64]  # [L]
    ages: NDArray[np.int64]  # [L]

    def __len__(self) -> int:
        return len(self.senders)

    def take(self, positions: Array) -> PeerModels:
        """Return copies of some peer models, in that order."""
        tables = {name: table[positions] for name, table in self.tables.items()}
        return PeerModels(self.senders[positions], tables, self.samples[positions], self.ages[positions])

    @property
    def bytes_each(self) -> int:
        """What one peer model weighs: its tables, and three numbers of eight bytes."""
        return sum(table[:1].nbytes for table in self.tables.values()) + 24
