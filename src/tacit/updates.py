"""The nouns of learning together: what was learnt, what may leave, and the sum of it.

    Update     what a cohort learnt; stays on the device
    Outgoing   what may be sent: made by `seal` only, whole numbers of the ring
    Total      the sum of many; `+` is associative and has a zero

Sums are exact. A value v travels as round(v * 2^fraction), an integer modulo 2^bits, so the order of arrival cannot
change a sum and masks cancel exactly. A value that does not fit is an error, never a silent wrap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tacit.errors import DivergedError
from tacit.types import Array, Config, Floats, offsets, ragged_rows

SpeaksOf: TypeAlias = Callable[[NDArray[np.bool_]], NDArray[np.bool_]]


class Ring(Config):
    """Fixed-point numbers modulo 2^bits, the same in simulation and in the field."""

    bits: Literal[32, 64] = Field(64, description="width of the ring that sums live in")
    fraction: int = Field(20, ge=4, le=23, description="bits behind the point: the grid is 2^-fraction")

    @property
    def scale(self) -> np.float32:
        """How many steps of the grid make 1."""
        return np.float32(2.0**self.fraction)

    @property
    def largest(self) -> float:
        """The largest value of a single number: a float32 on the grid is exact up to 2^24 steps."""
        return float(2.0 ** (24 - self.fraction))

    def encode(self, values: Floats) -> NDArray[np.int64]:
        """Return values as whole numbers; too large ones mean that learning has run away."""
        if len(values):
            self.fits(float(np.abs(values).max()))
        numbers: NDArray[np.int64] = np.rint(values * self.scale).astype(np.int64)
        return numbers

    def holds(self, largest: Array) -> NDArray[np.bool_]:
        """Say which values the grid can hold; NaN is none of them."""
        found: NDArray[np.bool_] = largest <= self.largest
        return found

    def fits(self, largest: float) -> None:
        """Refuse a value that the grid cannot hold; NaN is none that it can."""
        if not largest <= self.largest:
            raise DivergedError(
                f"Learning has run away: a value of {largest:.3g} does not fit the ring, which holds {self.largest:g}.",
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
class Rows:
    """Ragged rows of one table: client c speaks of rows `ids[ptr[c]:ptr[c + 1]]`; a row may occur more than once."""

    ptr: NDArray[np.int64]  # [C + 1]
    ids: NDArray[np.int32]  # [R]
    values: Floats  # [R, D]

    def take(self, clients: Array) -> Rows:
        """Return the rows of some clients, in that order."""
        at = ragged_rows(self.ptr, clients)
        return Rows(offsets(np.diff(self.ptr)[clients]), self.ids[at], self.values[at])

    def keep(self, mask: NDArray[np.bool_]) -> Rows:
        """Return the rows where `mask` [R] is true."""
        owner = np.repeat(np.arange(len(self.ptr) - 1), np.diff(self.ptr))
        counts = np.bincount(owner[mask], minlength=len(self.ptr) - 1)
        return Rows(offsets(counts), self.ids[mask], self.values[mask])


def _narrowed(speaks_of: SpeaksOf, rows: Array) -> SpeaksOf:
    return lambda is_meant: speaks_of(is_meant)[rows]


@dataclass(frozen=True)
class Update:
    """What a cohort learnt in a round. `sensitive` marks the rows that speak of something a person did.

    Where every row is made of all that a person did, a row that leaves would speak of those that do not: then `remake`
    says what the remaining rows are for somebody who has done nothing else. A row speaks of the item of its number;
    where rows are something else, `speaks_of` says which of them [R] speak of one of her items in a set [n_items].
    """

    clients: NDArray[np.int64]  # [C] ids
    tables: Mapping[str, Rows]
    sensitive: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)  # per table, [R]
    remake: Callable[[Update], Update] | None = field(default=None, compare=False)
    speaks_of: Mapping[str, SpeaksOf] = field(default_factory=dict, compare=False)  # tables whose rows are not items

    def take(self, positions: Array) -> Update:
        """Return the update of some clients, in that order."""
        at = {name: ragged_rows(rows.ptr, positions) for name, rows in self.tables.items()}
        return Update(
            self.clients[positions],
            {name: rows.take(positions) for name, rows in self.tables.items()},
            {name: mask[at[name]] for name, mask in self.sensitive.items()},
            self.remake,
            {name: _narrowed(of, at[name]) for name, of in self.speaks_of.items()},
        )

    def keep(self, kept: Mapping[str, NDArray[np.bool_]]) -> Update:
        """Return the update with the kept rows only, [R] per table."""
        rest = Update(
            self.clients,
            {name: rows.keep(kept[name]) for name, rows in self.tables.items()},
            {name: mask[kept[name]] for name, mask in self.sensitive.items()},
            self.remake,
            {name: _narrowed(of, kept[name]) for name, of in self.speaks_of.items()},
        )
        return rest if self.remake is None else self.remake(rest)


@dataclass(frozen=True)
class Release:
    """What the reader of an Outgoing learns of its senders, in counts."""

    positives: NDArray[np.int64]  # [C] rows sent that speak of something a person did
    negatives: NDArray[np.int64]  # [C] other rows sent
    bytes: NDArray[np.int64]  # [C]


@dataclass(frozen=True)
class Outgoing:
    """The only thing that may be sent: rows as whole numbers of the ring.

    `release` and `sensitive` are for the device's own ledger and are not part of what travels. `withheld` are clients
    whose update the ring cannot hold (NaN, or far too large): nothing of theirs is in it.
    """

    clients: NDArray[np.int64]
    tables: Mapping[str, tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]]  # ptr, ids, numbers [R, D]
    release: Release
    sensitive: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)  # per table, [R]
    withheld: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))  # ids


@dataclass
class Total:
    """Sums over clients, table by table, and how often each row was spoken of."""

    sums: Mapping[str, NDArray[np.int64]]  # [n, D]
    counts: Mapping[str, NDArray[np.int64]]  # [n]
    n_clients: int = 0

    @classmethod
    def zero(cls, shapes: Mapping[str, tuple[int, ...]]) -> Total:
        """Return the sum of nobody."""
        return cls(
            {name: np.zeros(shape, np.int64) for name, shape in shapes.items()},
            {name: np.zeros(shape[0], np.int64) for name, shape in shapes.items()},
        )

    def __add__(self, other: Total) -> Total:
        return Total(
            {name: sums + other.sums[name] for name, sums in self.sums.items()},
            {name: counts + other.counts[name] for name, counts in self.counts.items()},
            self.n_clients + other.n_clients,
        )

    def add(self, message: Outgoing) -> None:
        """Add one more message in place."""
        for name, (_, ids, numbers) in message.tables.items():
            np.add.at(self.sums[name], ids, numbers)
            np.add.at(self.counts[name], ids, 1)
        self.n_clients += len(message.clients)

    def received(self, message: Outgoing) -> Total:
        """Return the sum with one more message in it."""
        sums = {name: array.copy() for name, array in self.sums.items()}
        counts = {name: array.copy() for name, array in self.counts.items()}
        result = Total(sums, counts, self.n_clients)
        result.add(message)
        return result


@dataclass(frozen=True)
class Letters:
    """Whole models on their way from node to node, one per sender: all that a reader learns of her.

    `samples` and `ages` are what senders say of themselves: how much they have learnt from, and how often.
    """

    senders: NDArray[np.int64]  # [L] ids
    tables: Mapping[str, Array]  # each [L, ...]
    samples: NDArray[np.int64]  # [L]
    ages: NDArray[np.int64]  # [L]

    def __len__(self) -> int:
        return len(self.senders)

    def take(self, positions: Array) -> Letters:
        """Return copies of some letters, in that order."""
        tables = {name: table[positions] for name, table in self.tables.items()}
        return Letters(self.senders[positions], tables, self.samples[positions], self.ages[positions])

    @property
    def bytes_each(self) -> int:
        """What one letter weighs: its tables, and three numbers of eight bytes."""
        return sum(table[:1].nbytes for table in self.tables.values()) + 24
