"""The update sink: rows pass the privacy stages and become whole numbers, in a message or in a total.

    plan      which rows an update will have (`UpdatePlan`); stages narrow it before any arithmetic
    values    the method computes its rows into an `UpdateSink`
    stages    shape the values: clip, weigh
    numbers   what the ring can hold is written into a `Message` or added to a `Total`; other clients are withheld

A device has a cohort of one and writes a message; a simulation adds thousands of clients to a total. Both run this
file, so their sums agree to the last bit. Where nothing shapes the values, or only a clip that the method's kernel can
do (`Limits`), a method may add to the total itself (`direct`), which a law holds to the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tacit.errors import MethodError
from tacit.kernels.llvm.rowvec import rows_of
from tacit.kernels.update_sink import (
    add_rows,
    count_release,
    count_rows,
    count_weighted,
    write_dense,
)
from tacit.privacy.draft import EVERY, ONES, Draft, DraftRows, Limits
from tacit.random import Key
from tacit.types import Array, Floats, offsets
from tacit.updates import Message, PlannedRows, Release, Ring, Total, UpdatePlan

ID_BYTES = 4
BLOCK_BYTES = 2**21  # of values that are written, measured and added together: they stay in the second cache
_UNMARKED = np.zeros(0, np.bool_)
Shapes = Mapping[str, tuple[int, ...]]


class Stage:
    """A privacy stage. Override `narrow`, or `shape` (then `shapes_values` is true), or both.

    A stage that clips and does nothing else overrides `limits` in place of `shape`: a kernel may then clip by itself.
    """

    shapes_values: bool = False

    @property
    def limits(self) -> Limits | None:
        """What `shape` clips to, if it does nothing else."""
        return None

    def narrow(self, plan: UpdatePlan, key: Key) -> UpdatePlan:
        """Return the plan with fewer rows kept. Decide from the plan alone: values do not exist yet."""
        return plan

    def shape(self, draft: Draft, key: Key) -> None:
        """Change the values of kept rows, in place."""
        if self.limits is not None:
            draft.clip(*self.limits)


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
        self._is_weighted = False  # a stage has said what rows count
        self._limits = Limits()
        self._factors: dict[int, Floats] = {}
        self._cells: dict[int, Array] = {}  # by part: sums of narrow rows, as wide as these, in 32 bits where they fit

    @property
    def ring(self) -> Ring:
        """The grid that numbers are rounded to."""
        return self._ring

    @property
    def limits(self) -> Limits:
        """What rows that are added directly are clipped to; infinite where they are not."""
        return self._limits

    def direct(self, *, clips: bool = False) -> Total | None:
        """Return the total, if a method may add its kept rows to it by itself: nothing shapes the values.

        Such a method adds the same whole numbers and counts as the rows would, and passes the largest to `check`. A
        method that can clip dense rows as `clip_rows` does says `clips`. It gets the total also where one stage clips
        and no other shapes values, and then applies `limits`, which the ring can hold.
        """
        shaping = [stage for stage, _ in self._stages if stage.shapes_values]
        limits = shaping[0].limits if clips and len(shaping) == 1 else None
        if self._total is None or (shaping and (limits is None or not limits.smallest <= self._ring.largest)):
            return None
        if any(part.kept is not None and part.sensitive is False for part in self._plan.parts):
            return None  # methods drop sensitive rows themselves, and no others
        self._is_direct, self._limits = True, limits or Limits()
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
            self._total.n_clients += int(np.count_nonzero(self._is_fit))
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
            return ONES
        room = self._factors.get(part, ONES)
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
        elif planned.ids is not None and n and _largest(planned.ids) >= n_rows:
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
        total = self._total
        if draft.count_units is not None:  # what is added below counts 1 for each row: it goes nowhere
            self._is_weighted = True
            total = Total(total.sums, {name: np.zeros_like(counts) for name, counts in total.counts.items()})
        for number, part in zip(planned, draft.parts, strict=True):
            table = part.planned.table
            if draft.count_units is not None and table in draft.count_units:
                counted = part.planned.ptr, part.ids, part.kept, part.factors
                unit = self._ring.scale * np.float32(draft.count_units[table])
                count_weighted(*counted, unit, fit, self._total.counts[table])
            if part.is_narrow:
                rows = part.planned.ptr, part.ids, part.kept, rows_of(part.values), part.factors
                add_rows(*rows, fit, self._ring.scale, self._cells_of(number, part, draft.largest))
            else:
                part.add(fit, self._ring, total)

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
            if self._is_weighted:
                continue
            rows = DraftRows(planned, ONES)
            count_rows(planned.ptr, rows.ids, rows.kept, self._is_fit, total.counts[planned.table])

    def _release(self) -> Release:
        fit, counts = self._is_fit, np.zeros((3, len(self._plan.clients)), np.int64)
        for part in self._plan.parts:
            kept, marks = EVERY if part.kept is None else part.kept, part.sensitive
            some, are_all = (_UNMARKED, marks) if isinstance(marks, bool) else (marks, False)
            each = row_bytes(self._shapes[part.table][1], self._ring)
            count_release(part.ptr, kept, some, are_all, each, counts)
        return Release(*(counts if np.count_nonzero(fit) == len(fit) else counts[:, fit]))

    def _message(self, draft: Draft, release: Release) -> Message:
        tables, sensitive, counts = {}, {}, {}
        for name in dict.fromkeys(part.planned.table for part in draft.parts):
            drafts = [part for part in draft.parts if part.planned.table == name]
            parts = [part.dense() for part in drafts]
            sizes = [np.where(self._is_fit, part.planned.kept_sizes(), 0) for part in parts]
            ptr = offsets(np.sum(sizes, axis=0))
            width = self._shapes[name][1]
            out = np.zeros(ptr[-1], np.int32), np.zeros((ptr[-1], width), np.int64), np.zeros(ptr[-1], np.bool_)
            starts = ptr[:-1].copy()
            if draft.count_units is not None:
                counts[name] = np.zeros((ptr[-1], 1), np.int64)
            for part, before, size in zip(parts, drafts, sizes, strict=True):
                rows = part.planned.ptr, part.ids, part.kept, part.planned.marks()
                last = part.values.shape[1] - 1
                write_dense(*rows, part.values, last, part.factors, self._is_fit, self._ring.scale, starts, out)
                if draft.count_units is not None and name in draft.count_units:
                    unit, into = self._ring.scale * np.float32(draft.count_units[name]), (out[0], counts[name], out[2])
                    write_dense(*rows, before.factors[:, None], 0, ONES, self._is_fit, unit, starts, into)
                starts += size
            tables[name] = (ptr if self._is_fit.all() else offsets(np.diff(ptr)[self._is_fit]), out[0], out[1])
            sensitive[name] = out[2]
        clients = self._plan.clients
        weighed = {name: numbers[:, 0] for name, numbers in counts.items()}
        return Message(clients[self._is_fit], tables, release, sensitive, clients[~self._is_fit], weighed)


def row_bytes(width: int, ring: Ring) -> int:
    """Return how many bytes a row takes on the wire: its id and its numbers."""
    return ID_BYTES + width * ring.bits // 8


def _largest(ids: Array) -> int:
    """Return the largest of some row numbers in one sweep; a negative one counts as larger than any table."""
    return int(ids.view(f"u{ids.dtype.itemsize}").max())
