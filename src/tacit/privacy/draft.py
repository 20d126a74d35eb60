"""What clients would send, before it is whole numbers: rows that stages multiply, clip and bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.kernels.llvm.rowvec import rows_of
from tacit.kernels.update_sink import (
    add_dense,
    add_outer,
    add_repeated,
    clip_clients,
    clip_dense,
    clip_outer,
    clip_rows,
    count_repeats,
    largest_dense,
    largest_outer,
    multiply_rows,
    square_counts,
    square_sums,
)
from tacit.types import Floats, offsets
from tacit.updates import PlannedRows, Ring, Total

NARROW = 128  # numbers of a row that is taken whole: code is compiled for its width
LONGEST = 2.0**60  # of what a client adds: the factor that shortens it is a normal number of single precision
SLACK = 2**12  # lengths in single precision are off by less than one part in it: see `bound_contributions`
EVERY = np.zeros(0, np.uint8)  # kept rows: all
ONES = np.zeros(0, np.float32)  # factors: all 1
_NO_SQUARES = np.zeros(0)


class Limits(NamedTuple):
    """How long what leaves may be: a row, and all rows of a client together.

    With `in_sum` the second is what the client's rows add up to in a sum, where rows with the same number meet. Their
    lengths are added, so it bounds what one client moves there, up to the rounding to the grid.
    """

    row: float = np.inf
    client: float = np.inf
    in_sum: bool = False

    @property
    def smallest(self) -> float:
        """No number that leaves is larger."""
        return min(self.row, self.client)


@dataclass
class DraftRows:
    """The values of one part of the plan for some clients: dense [R, D'], or a weight [R] times the client's vector.

    Dense rows may be padded with zeros before their last number.
    """

    planned: PlannedRows
    values: Floats  # [R, D'], or [C, D] where rows are outer
    weights: Floats | None = None  # [R], or one per row of the table where `by_row`
    by_row: bool = False
    is_outer: bool = False
    factors: Floats = field(default_factory=lambda: ONES)  # [R]; empty: all 1

    @property
    def ids(self) -> NDArray[np.int32]:
        """Rows of the table [R]."""
        planned = self.planned
        if planned.ids is not None:
            return planned.ids
        every = np.arange(planned.n_rows) - np.repeat(planned.ptr[:-1], np.diff(planned.ptr))
        return every.astype(np.int32)

    @property
    def is_narrow(self) -> bool:
        """Whether rows are dense and short enough to be taken whole."""
        return not self.is_outer and self.values.shape[1] <= NARROW and bool(self.values.flags.c_contiguous)

    @property
    def kept(self) -> NDArray[np.uint8]:
        """Which rows leave [R]; empty: all."""
        return EVERY if self.planned.kept is None else self.planned.kept

    def row_weights(self) -> Floats:
        """Return the weights of outer rows [R], factors included; these are not used any more then."""
        n_rows = self.planned.n_rows
        if self.weights is None:
            weights = np.ones(n_rows, np.float32)
        elif self.by_row:
            weights = self.weights[self.ids]
        else:
            weights = self.weights
        if not len(self.factors):
            return weights
        with allow_any_numbers():
            return weights * self.factors

    def clip(self, limit: float, squares: NDArray[np.float64], of_rows: NDArray[np.float64] = _NO_SQUARES) -> None:
        """Let no row be longer than `limit`; add squared lengths to `squares` [C], and write those `of_rows` [R]."""
        planned = self.planned
        if not len(self.factors):
            self.factors = np.ones(planned.n_rows, np.float32)
        if self.is_narrow:
            clip_rows(planned.ptr, self.kept, rows_of(self.values), self.factors, limit, squares, of_rows)
            return
        if not self.is_outer:
            clip_dense(planned.ptr, self.kept, self.values, self.factors, limit, squares, of_rows)
            return
        if self.weights is None:
            self.weights = np.ones_like(self.factors)
        elif self.by_row:
            self.weights, self.by_row = self.weights[self.ids], False
        clip_outer(planned.ptr, self.kept, self.weights, self.values, self.factors, limit, squares, of_rows)

    def multiply(self, by: Floats) -> None:
        """Multiply the rows of each client by a number [C]."""
        if not len(self.factors):
            self.factors = np.ones(self.planned.n_rows, np.float32)
        multiply_rows(self.planned.ptr, by, self.factors)

    def sum_magnitudes(self, unit: float) -> NDArray[np.float64]:
        """Return the sum of the magnitudes of all numbers in each client's kept rows [C]; a row also counts `unit`."""
        with allow_any_numbers():
            of_values = np.abs(self.values, dtype=np.float64).sum(axis=1)
            if self.is_outer:
                of_rows = np.repeat(of_values, np.diff(self.planned.ptr)) * np.abs(self.row_weights(), dtype=np.float64)
            else:
                of_rows = of_values * np.abs(self.factors, dtype=np.float64)
            of_rows += unit * np.abs(self.factors, dtype=np.float64)
            leaving = np.where(self.kept, of_rows, 0.0) if len(self.kept) else of_rows
            owner = np.repeat(np.arange(len(self.planned.ptr) - 1), np.diff(self.planned.ptr))
            found: NDArray[np.float64] = np.bincount(owner, leaving, len(self.planned.ptr) - 1).astype(np.float64)
            return found

    def add_square_counts(self, unit: float, squares: NDArray[np.float64]) -> None:
        """Add to `squares` [C] those of what each client's kept rows count: `unit`, by factors of earlier stages."""
        square_counts(self.planned.ptr, self.kept, self.factors, unit * unit, squares)

    def count_repeats(self, times: NDArray[np.int64]) -> None:
        """Add to `times` [C] how often each client sends the same row at most."""
        planned = self.planned
        if planned.ids is None:
            times += 1
        else:
            seen = np.zeros(int(planned.ids.max(initial=-1)) + 1, np.int64)
            count_repeats(planned.ptr, planned.ids, self.kept, seen, times)

    def bound(self) -> float:
        """Return a cheap upper bound of the numbers in these rows; NaN if one of them is NaN."""
        with allow_any_numbers():
            most = largest_of(self.values) * (1.0 if self.weights is None else largest_of(self.weights))
            return most * largest_of(self.factors) if len(self.factors) else most

    def raise_largest(self, largest: Floats) -> None:
        """Raise `largest` [C] to the largest number that a kept row holds."""
        if not self.is_outer:
            largest_dense(self.planned.ptr, self.kept, self.values, self.factors, largest)
            return
        found = np.zeros_like(largest)
        largest_outer(self.planned.ptr, self.kept, self.row_weights(), self.values, found)
        np.maximum(largest, found, out=largest)  # NaN wins

    def add(self, is_fit: NDArray[np.bool_], ring: Ring, total: Total) -> None:
        """Add the kept rows of clients whose numbers fit."""
        planned, sums, counts = self.planned, total.sums[self.planned.table], total.counts[self.planned.table]
        rows = planned.ptr, self.ids, self.kept
        if not self.is_outer:
            last = self.values.shape[1] - 1
            add_dense(*rows, self.values, last, self.factors, is_fit, ring.scale, sums, counts)
        elif self.weights is None and not len(self.factors):
            with allow_any_numbers():
                numbers = np.rint(self.values * ring.scale).astype(np.int64)
            add_repeated(*rows, numbers, is_fit, sums, counts)
        else:
            by_row = self.by_row and not len(self.factors)
            weights = self.weights if by_row and self.weights is not None else self.row_weights()
            add_outer(*rows, weights, by_row, self.values, is_fit, ring.scale, sums, counts)

    def dense(self) -> DraftRows:
        """Return the same rows with all their numbers written out."""
        if not self.is_outer:
            return self
        owner = np.repeat(np.arange(len(self.values)), np.diff(self.planned.ptr))
        with allow_any_numbers():
            return DraftRows(self.planned, self.row_weights()[:, None] * self.values[owner])


@dataclass
class Draft:
    """What some clients of a cohort would send, part by part, before it is whole numbers."""

    clients: NDArray[np.int64]  # [C] ids
    parts: list[DraftRows]
    largest: float = np.inf  # no number is larger than that, if a stage has seen to it,
    is_bounded: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))  # of these clients, [C]
    count_units: Mapping[str, float] | None = None  # by table: what a row counts, others nothing; None: 1 each

    def clip(self, row: float, client: float, in_sum: bool = False) -> None:
        """Let no row be longer than `row`, and no client's rows of all tables together longer than `client`.

        With `in_sum` no client's rows can add up to more than `client`: see `Limits`.
        """
        squares = np.zeros(len(self.clients))
        of_rows = [np.empty(part.planned.n_rows) if in_sum else _NO_SQUARES for part in self.parts]
        for part, of_part in zip(self.parts, of_rows, strict=True):
            part.clip(row, squares, of_part)
        if in_sum:
            squares = self._squares_in_sum(of_rows)
        by = np.empty(len(squares), np.float32)
        clip_clients(squares, client, by)
        self.largest, self.is_bounded = min(row, client), np.isfinite(squares)
        if (by < 1).any():
            for part in self.parts:
                part.multiply(by)

    def _squares_in_sum(self, of_rows: list[NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return the squared length that each client's rows have at most when they are added up, [C]."""
        squares, tables = np.zeros(len(self.clients)), dict.fromkeys(part.planned.table for part in self.parts)
        for table in tables:
            at = [n for n, part in enumerate(self.parts) if part.planned.table == table]
            parts = [self.parts[n] for n in at]
            starts = offsets(np.array([part.planned.n_rows for part in parts]))[:-1]
            ptrs = np.array([part.planned.ptr + start for part, start in zip(parts, starts, strict=True)])
            ids = np.concatenate([part.ids for part in parts])
            leaves = [
                np.ones(part.planned.n_rows, np.uint8) if part.planned.kept is None else part.kept for part in parts
            ]
            lengths = np.zeros(int(ids.max(initial=-1)) + 1)
            square_sums(ptrs, ids, np.concatenate(leaves), np.concatenate([of_rows[n] for n in at]), lengths, squares)
        return squares

    def bound_contributions(self, limit: float, count_units: Mapping[str, float], repeats: bool, ring: Ring) -> None:
        """Let what each client adds to a sum be no longer than `limit` as whole numbers, counts included.

        A row counts `count_units` of its table, and its count is shortened with it. Where rows repeat, lengths of rows
        add up (triangle inequality). The proof is in docs/privacy.md: rounding moves each number by half a step at
        most, and single precision moves a length by less than one part in `SLACK`.
        """
        n_clients = len(self.clients)
        squares, numbers, times = np.zeros(n_clients), np.zeros(n_clients), np.zeros(n_clients, np.int64)
        for part in self.parts:
            sizes, is_counted = part.planned.kept_sizes(), part.planned.table in count_units
            part.clip(np.inf, squares)
            if is_counted:
                part.add_square_counts(count_units[part.planned.table], squares)
            numbers += sizes * (part.values.shape[1] + is_counted)
            if repeats:
                part.count_repeats(times)
        if repeats:  # a row that is sent k times: |a1 + ... + ak|^2 <= k (|a1|^2 + ... + |ak|^2)
            squares *= np.maximum(times, 1)
            numbers *= np.maximum(times, 1)
        lengths = np.sqrt(squares)
        self.largest, self.is_bounded, self.count_units = limit, lengths < LONGEST, count_units
        room = np.maximum(limit * (1.0 - 1.0 / SLACK) - np.sqrt(numbers) / (2.0 * float(ring.scale)), 0.0)
        by = np.minimum(1.0, room / np.maximum(lengths, np.finfo(np.float64).tiny)).astype(np.float32)
        by[~self.is_bounded] = np.nan  # also where the ring asks how large single numbers are
        for part in self.parts:
            part.multiply(by)

    def bound_magnitudes(self, limit: float, count_units: Mapping[str, float], ring: Ring) -> None:
        """Let the magnitudes of what each client adds to a sum add up to no more than `limit`, as whole numbers.

        The same as `bound_contributions` in the L1 norm: rounding moves each number by half a step at most, and rows
        that repeat add up to no more than their magnitudes do.
        """
        lengths, numbers = np.zeros(len(self.clients)), np.zeros(len(self.clients))
        for part in self.parts:
            is_counted = part.planned.table in count_units
            part.multiply(np.ones(len(self.clients), np.float32))  # so that there are factors
            lengths += part.sum_magnitudes(count_units.get(part.planned.table, 0.0))
            numbers += part.planned.kept_sizes() * (part.values.shape[1] + is_counted)
        self.largest, self.is_bounded, self.count_units = limit, lengths < LONGEST, count_units
        room = np.maximum(limit * (1.0 - 1.0 / SLACK) - numbers / (2.0 * float(ring.scale)), 0.0)
        by = np.minimum(1.0, room / np.maximum(lengths, np.finfo(np.float64).tiny)).astype(np.float32)
        by[~self.is_bounded] = np.nan
        for part in self.parts:
            part.multiply(by)

    def replace_by_bits(self) -> None:
        """Let every kept row be a 1: what leaves is which rows a client has, and no row is counted beside it."""
        for part in self.parts:
            part.values = np.ones_like(part.values)
            part.weights, part.by_row = None, False
            part.factors = np.ones(part.planned.n_rows, np.float32)
        self.largest, self.is_bounded, self.count_units = 1.0, np.ones(len(self.clients), np.bool_), {}

    def multiply(self, by: Floats) -> None:
        """Multiply all that each client sends by a number [C]."""
        self.largest = np.inf
        for part in self.parts:
            part.multiply(by)

    def fits(self, ring: Ring) -> NDArray[np.bool_]:
        """Say whose numbers the ring can hold, [C]."""
        if self.largest <= ring.largest:
            return self.is_bounded
        largest = np.zeros(len(self.clients), np.float32)
        for part in self.parts:
            if not part.bound() <= ring.largest:
                part.raise_largest(largest)
        return ring.holds(largest)


def allow_any_numbers() -> np.errstate:
    """Withheld clients and rows that are not sent may have any values: suppress warnings about them."""
    return np.errstate(invalid="ignore", over="ignore")


def largest_of(values: Floats) -> float:
    """Return the largest absolute value; NaN if one value is NaN."""
    return float(np.maximum(values.max(initial=0.0), -values.min(initial=0.0)))
