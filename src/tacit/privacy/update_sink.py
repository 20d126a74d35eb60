"""The way out: rows pass the stages and become whole numbers, in a message or in a total, and in no other way.

    plan      which rows an update will have (`UpdatePlan`); stages narrow it before any arithmetic
    values    the method computes its rows into an `UpdateSink`
    stages    shape the values: clip, weigh
    numbers   what the ring can hold is written into a `Message` or added to a `Total`; other clients are withheld

A device has a cohort of one and writes a message; a simulation adds thousands of clients to a total. Both run this
file, so their sums agree to the last bit. Where nothing shapes the values, a method may add to the total itself
(`direct`), which a law holds to the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tacit.errors import MethodError
from tacit.kernels.llvm.rowvec import rows_of
from tacit.kernels.update_sink import (
    add_dense,
    add_outer,
    add_repeated,
    add_rows,
    clip_dense,
    clip_outer,
    clip_rows,
    count_kept,
    count_rows,
    largest_dense,
    largest_outer,
    multiply_rows,
    write_dense,
)
from tacit.random import Key
from tacit.types import Array, Floats, offsets
from tacit.updates import Message, PlannedRows, Release, Ring, Total, UpdatePlan

ID_BYTES = 4
NARROW = 128  # numbers of a row that is taken whole: code is compiled for its width
BLOCK_BYTES = 2**21  # of values that are written, measured and added together: they stay in the second cache
_EVERY = np.zeros(0, np.uint8)
_ONES = np.zeros(0, np.float32)
Shapes = Mapping[str, tuple[int, ...]]


class Stage:
    """One step on the way out. Override `narrow`, or `shape` (then `shapes_values` is true), or both."""

    shapes_values: bool = False

    def narrow(self, plan: UpdatePlan, key: Key) -> UpdatePlan:
        """Return the plan with fewer rows kept. Decide from the plan alone: values do not exist yet."""
        return plan

    def shape(self, draft: Draft, key: Key) -> None:
        """Change the values of kept rows, in place."""


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
    factors: Floats = field(default_factory=lambda: _ONES)  # [R]; empty: all 1

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
        return _EVERY if self.planned.kept is None else self.planned.kept

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
        with _any_numbers():
            return weights * self.factors

    def clip(self, limit: float, squares: NDArray[np.float64]) -> None:
        """Let no row be longer than `limit`; add squared lengths to `squares` [C]."""
        planned = self.planned
        if not len(self.factors):
            self.factors = np.ones(planned.n_rows, np.float32)
        if self.is_narrow:
            clip_rows(planned.ptr, self.kept, rows_of(self.values), self.factors, limit, squares)
            return
        if not self.is_outer:
            clip_dense(planned.ptr, self.kept, self.values, self.factors, limit, squares)
            return
        if self.weights is None:
            self.weights = np.ones_like(self.factors)
        elif self.by_row:
            self.weights, self.by_row = self.weights[self.ids], False
        clip_outer(planned.ptr, self.kept, self.weights, self.values, self.factors, limit, squares)

    def multiply(self, by: Floats) -> None:
        """Multiply the rows of each client by a number [C]."""
        if not len(self.factors):
            self.factors = np.ones(self.planned.n_rows, np.float32)
        multiply_rows(self.planned.ptr, by, self.factors)

    def bound(self) -> float:
        """Return a number that nothing in these rows exceeds, cheaply; it is none where one of them is none."""
        with _any_numbers():
            most = _largest(self.values) * (1.0 if self.weights is None else _largest(self.weights))
            return most * _largest(self.factors) if len(self.factors) else most

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
            with _any_numbers():
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
        with _any_numbers():
            return DraftRows(self.planned, self.row_weights()[:, None] * self.values[owner])


@dataclass
class Draft:
    """What some clients of a cohort would send, part by part, before it is whole numbers."""

    clients: NDArray[np.int64]  # [C] ids
    parts: list[DraftRows]
    largest: float = np.inf  # no number is larger than that, if a stage has seen to it,
    is_bounded: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))  # of these clients, [C]

    def clip(self, row: float, client: float) -> None:
        """Let no row be longer than `row`, and no client's rows of all tables together longer than `client`."""
        squares = np.zeros(len(self.clients))
        for part in self.parts:
            part.clip(row, squares)
        lengths = np.sqrt(squares)
        self.largest, self.is_bounded = min(row, client), np.isfinite(lengths)
        if client < np.inf and (lengths > client).any():
            by = np.minimum(1.0, client / np.maximum(lengths, client)).astype(np.float32)
            for part in self.parts:
                part.multiply(by)

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


class UpdateSink:
    """Where a method puts the values of its planned rows. Every part of the plan is put once, for all rows of it.

    `put` takes dense rows, `put_outer` rows that are a weight times the client's vector. Long cohorts may be put block
    by block (`blocks`). Rows that are not kept may hold anything.
    """

    def __init__(
        self,
        plan: UpdatePlan,
        stages: Sequence[tuple[Stage, Key]],
        ring: Ring,
        shapes: Shapes,
        total: Total | None = None,
    ) -> None:
        """With a `total`, rows are added to it; without, they are written into a message."""
        self._plan, self._stages, self._ring, self._shapes, self._total = plan, stages, ring, shapes, total
        self._is_fit = np.ones(len(plan.clients), np.bool_)
        self._drafts: dict[int, DraftRows] = {}
        self._block = slice(0, len(plan.clients))
        self._is_direct = False
        self._factors: dict[int, Floats] = {}
        self._cells: dict[int, Array] = {}  # by part: sums of narrow rows, as wide as these, in 32 bits where they fit

    @property
    def ring(self) -> Ring:
        """The grid that numbers are rounded to."""
        return self._ring

    def direct(self) -> Total | None:
        """Return the total, if a method may add its kept rows to it by itself: nothing shapes the values.

        Whoever does adds the same whole numbers and counts as the rows would, and hands the largest to `check`.
        """
        if self._total is None or any(stage.shapes_values for stage, _ in self._stages):
            return None
        if any(part.kept is not None and part.sensitive is False for part in self._plan.parts):
            return None  # methods drop sensitive rows themselves, and no others
        self._is_direct = True
        return self._total

    def check(self, largest: float) -> None:
        """Refuse numbers, added directly, that the ring cannot hold: the round is then made client by client."""
        self._ring.fits(largest)

    def blocks(self, bytes_per_client: int) -> Iterator[slice]:
        """Yield ranges of clients to put values for; one range where messages are written."""
        n_clients = len(self._plan.clients)
        size = n_clients if self._total is None else max(1, BLOCK_BYTES // max(1, bytes_per_client))
        for start in range(0, n_clients, size):
            self._block = slice(start, min(start + size, n_clients))
            yield self._block
            if self._total is not None:
                self._finish_block()
        self._block = slice(0, n_clients)

    def put(self, part: int, values: Floats) -> None:
        """Put the values [R, D] of part number `part` of the plan."""
        planned = self._of_block(part)
        width = self._shapes[planned.table][1]
        if len(values) != planned.n_rows or values.shape[1] < width:
            raise MethodError(
                f"Part {part} of the plan has {planned.n_rows} rows of '{planned.table}', {width} numbers each, but "
                f"'learn' put values of shape {values.shape}.",
                "Put one row of values for every planned row, in the order of the plan.",
            )
        self._keep(part, DraftRows(planned, values, factors=self._ones(part, planned.n_rows)))

    def put_outer(self, part: int, vectors: Floats, weights: Floats | None = None, *, by_row: bool = False) -> None:
        """Put rows that are `weights` [R] times the client's vector [C, D].

        Without weights every row is the vector; `by_row` takes one weight per row of the table.
        """
        self._keep(part, DraftRows(self._of_block(part), vectors, weights, by_row, is_outer=True))

    def finish(self) -> tuple[Message | None, Release, NDArray[np.bool_]]:
        """Return the message (none where rows went into a total), what was released, and whose numbers fit [C]."""
        if self._total is not None:
            if self._drafts:
                self._finish_block()
            self._move_cells(self._total)
            self._total.n_clients += int(self._is_fit.sum())
            return None, self._release(), self._is_fit
        draft = self._draft()
        self._is_fit = draft.fits(self._ring)
        release = self._release()
        return self._message(draft, release), release, self._is_fit

    # --- inside -------------------------------------------------------------------------------------------------------

    def _of_block(self, part: int) -> PlannedRows:
        if not 0 <= part < len(self._plan.parts):
            raise MethodError(f"'learn' put part {part}; the plan has {len(self._plan.parts)} parts.")
        planned = self._plan.parts[part]
        if self._block.stop - self._block.start == len(self._plan.clients):
            return planned
        return planned.cut(self._block)

    def _ones(self, part: int, n_rows: int) -> Floats:
        """Return factors of 1 for the rows of a block, if a stage will change them; the last block's are used again."""
        if not any(stage.shapes_values for stage, _ in self._stages):
            return _ONES
        room = self._factors.get(part, _ONES)
        if len(room) < n_rows:
            room = self._factors[part] = np.empty(n_rows, np.float32)
        room[:n_rows] = 1.0
        return room[:n_rows]

    def _keep(self, part: int, rows: DraftRows) -> None:
        if part in self._drafts:
            raise MethodError(f"'learn' put part {part} of its plan twice.", "Put each part once.")
        self._check(part, rows)
        self._drafts[part] = rows

    def _check(self, part: int, rows: DraftRows) -> None:
        """Refuse a plan or values that do not fit together: kernels do not check again."""
        planned, table = rows.planned, rows.planned.table
        n_clients, (n_rows, width) = self._block.stop - self._block.start, self._shapes[table][:2]
        sizes, n = np.diff(planned.ptr), planned.n_rows
        lengths = [len(one) for one in (planned.ids, planned.kept) if one is not None]
        lengths += [] if isinstance(planned.sensitive, bool) else [len(planned.sensitive)]
        wrong = ""
        if len(planned.ptr) != n_clients + 1 or planned.ptr[0] != 0 or (sizes < 0).any():
            wrong = f"'ptr' must begin with 0, rise, and have one place more than there are clients ({n_clients})"
        elif any(length != n for length in lengths):
            wrong = f"ids, kept and sensitive must have {n} places, as many as there are rows"
        elif planned.ids is None and (sizes != n_rows).any():
            wrong = f"without ids every client sends all {n_rows} rows"
        elif planned.ids is not None and n and not 0 <= planned.ids.min() <= planned.ids.max() < n_rows:
            wrong = f"it names rows that the table does not have: it has {n_rows}"
        elif rows.values.dtype != np.float32 or rows.values.ndim != 2:
            wrong = f"values must be rows of float32, not {rows.values.dtype} of {rows.values.ndim} axes"
        elif rows.is_outer and rows.values.shape != (n_clients, width):
            wrong = f"vectors must be {n_clients} x {width}, one for each client, not {rows.values.shape}"
        elif rows.weights is not None and rows.weights.shape != ((n_rows if rows.by_row else n),):
            wrong = f"weights must be {n_rows if rows.by_row else n} numbers, not {rows.weights.shape}"
        if wrong:
            raise MethodError(f"Part {part} of the plan, rows of '{table}': {wrong}.", "Correct 'plan' or 'learn'.")

    def _draft(self) -> Draft:
        missing = [n for n in range(len(self._plan.parts)) if n not in self._drafts]
        if missing:
            table = self._plan.parts[missing[0]].table
            raise MethodError(f"'learn' put no values for part {missing[0]} of its plan, rows of '{table}'.")
        draft = Draft(self._plan.clients[self._block], [self._drafts[n] for n in range(len(self._plan.parts))])
        self._drafts = {}
        for stage, key in self._stages:
            if stage.shapes_values:
                stage.shape(draft, key)
        return draft

    def _finish_block(self) -> None:
        assert self._total is not None
        if self._is_direct and not self._drafts:
            return
        planned = [part for part in range(len(self._plan.parts)) if part in self._drafts]
        draft = (
            Draft(self._plan.clients[self._block], [self._drafts.pop(n) for n in planned])
            if self._is_direct
            else self._draft()
        )
        fit = draft.fits(self._ring)
        if self._is_direct and not fit.all():
            self._ring.fits(np.inf)
        self._is_fit[self._block] = fit
        for number, part in zip(planned, draft.parts, strict=True):
            if part.is_narrow:
                rows = part.planned.ptr, part.ids, part.kept, rows_of(part.values), part.factors
                add_rows(*rows, fit, self._ring.scale, self._cells_of(number, part, draft.largest))
            else:
                part.add(fit, self._ring, self._total)

    def _cells_of(self, number: int, part: DraftRows, largest: float) -> Array:
        """Return where the whole numbers of a part's narrow rows are added; the last block moves them to the total."""
        if number not in self._cells:
            n_rows, planned = self._shapes[part.planned.table][0], self._plan.parts[number]
            counts = np.zeros(n_rows, np.int64)
            whole = DraftRows(planned, part.values)
            count_rows(planned.ptr, whole.ids, whole.kept, np.ones(len(self._plan.clients), np.bool_), counts)
            most = largest * float(self._ring.scale) + 1  # rounding included
            is_small = most * float(counts.max(initial=0)) < 2**31
            self._cells[number] = np.zeros((n_rows, part.values.shape[1]), np.int32 if is_small else np.int64)
        return self._cells[number]

    def _move_cells(self, total: Total) -> None:
        for number, cells in self._cells.items():
            planned = self._plan.parts[number]
            sums, width = total.sums[planned.table], self._shapes[planned.table][1]
            sums[:, : width - 1] += cells[:, : width - 1]
            sums[:, width - 1] += cells[:, -1]
            rows = DraftRows(planned, _ONES)
            count_rows(planned.ptr, rows.ids, rows.kept, self._is_fit, total.counts[planned.table])

    def _release(self) -> Release:
        n_clients, fit = len(self._plan.clients), self._is_fit
        counts, size = np.zeros((2, n_clients), np.int64), np.zeros(n_clients, np.int64)
        for part in self._plan.parts:
            each = row_bytes(self._shapes[part.table][1], self._ring)
            if isinstance(part.sensitive, bool):
                n_rows = part.kept_sizes()
                counts[0 if part.sensitive else 1] += n_rows
                size += n_rows * each
            else:
                here = np.zeros_like(counts)
                count_kept(part.ptr, _EVERY if part.kept is None else part.kept, part.sensitive, here)
                counts += here
                size += (here[0] + here[1]) * each
        if not fit.all():
            counts, size = counts[:, fit], size[fit]
        return Release(counts[0], counts[1], size)

    def _message(self, draft: Draft, release: Release) -> Message:
        tables, sensitive = {}, {}
        for name in dict.fromkeys(part.planned.table for part in draft.parts):
            parts = [part.dense() for part in draft.parts if part.planned.table == name]
            sizes = [np.where(self._is_fit, part.planned.kept_sizes(), 0) for part in parts]
            ptr = offsets(np.sum(sizes, axis=0))
            width = self._shapes[name][1]
            out = np.zeros(ptr[-1], np.int32), np.zeros((ptr[-1], width), np.int64), np.zeros(ptr[-1], np.bool_)
            starts = ptr[:-1].copy()
            for part, size in zip(parts, sizes, strict=True):
                rows = part.planned.ptr, part.ids, part.kept, part.planned.marks()
                last = part.values.shape[1] - 1
                write_dense(*rows, part.values, last, part.factors, self._is_fit, self._ring.scale, starts, out)
                starts += size
            tables[name] = (ptr if self._is_fit.all() else offsets(np.diff(ptr)[self._is_fit]), out[0], out[1])
            sensitive[name] = out[2]
        clients = self._plan.clients
        return Message(clients[self._is_fit], tables, release, sensitive, clients[~self._is_fit])


def _any_numbers() -> np.errstate:
    """Withheld clients and rows that are not sent may have any values: suppress warnings about them."""
    return np.errstate(invalid="ignore", over="ignore")


def _largest(values: Floats) -> float:
    """Return the largest absolute value, NaN where one is no number."""
    return float(np.maximum(values.max(initial=0.0), -values.min(initial=0.0)))


def row_bytes(width: int, ring: Ring) -> int:
    """Return how many bytes a row takes on the wire: its id and its numbers."""
    return ID_BYTES + width * ring.bits // 8
