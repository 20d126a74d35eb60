"""A participant's rows as one dense vector of whole numbers, and the sum as a `Total` again.

`Message` already holds whole numbers on the ring's grid, so nothing is rounded here, and the decoded sum is the plain
sum bit for bit. A table travels as up to three parts:

    numbers    [rows, width]  the rows' numbers, added up per row, in the ring's 32 or 64 bits; a table of one row
                              (dense layers, weighted by samples) always in 64
    mentions       [rows]     how often the participant mentions a row; under differential privacy what the row counts,
                              as a number of the ring, and only where the server reads counts
    participants   [rows]     1 if the participant mentions it at all; the sum counts participants

Every part has a bound on what one participant adds to a number, and a sum stays in the ring because `n_participants *
bound < 2^(bits - 1)`. Server and device both check it before a key is made.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tacit.errors import RangeError
from tacit.protocols.secure_aggregation.bytes import ByteReader, ByteWriter
from tacit.protocols.secure_aggregation.masks import WIDTHS, Vector
from tacit.reasons import ReasonCode
from tacit.types import Array
from tacit.updates import Message, Ring, Total

MOST_SEGMENTS = 256
MOST_CELLS = 2**27
MOST_MENTIONS = 2**15  # of one row by one participant in one round


class SegmentKind(IntEnum):
    """What a part of a vector counts."""

    NUMBERS = 1
    MENTIONS = 2
    COUNTS = 3


@dataclass(frozen=True)
class Segment:
    """One part of a vector: all rows of a table, or some of them."""

    table: str
    kind: SegmentKind
    n_rows: int  # of the table
    width: int  # numbers per row
    bits: int
    bound: int  # largest absolute value that one participant adds to a number
    rows: tuple[int, ...] | None = None  # ascending; None: all

    @property
    def n_listed(self) -> int:
        """How many rows it has."""
        return self.n_rows if self.rows is None else len(self.rows)

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return self.n_listed * self.width

    @cached_property
    def listed(self) -> NDArray[np.int64]:
        """The rows it has."""
        return np.arange(self.n_rows) if self.rows is None else np.array(self.rows, np.int64)

    @cached_property
    def place(self) -> NDArray[np.int64]:
        """Where each row of the table stands in it, -1 for rows it has not."""
        place = np.full(self.n_rows, -1, np.int64)
        place[self.listed] = np.arange(self.n_listed)
        return place


@dataclass(frozen=True)
class VectorLayout:
    """The parts of a vector, wider numbers first."""

    segments: tuple[Segment, ...]

    @classmethod
    def of(cls, segments: Sequence[Segment]) -> VectorLayout:
        """Put parts into the order in which they travel."""
        return cls(tuple(sorted(segments, key=lambda part: (-part.bits, part.table, part.kind))))

    @property
    def sizes(self) -> tuple[int, int, int]:
        """How many numbers there are of each width."""
        wide, middle, narrow = (sum(part.size for part in self.segments if part.bits == bits) for bits in WIDTHS)
        return wide, middle, narrow

    def check(self, n_participants: int) -> None:
        """Refuse a layout in which a sum over `n_participants` could leave the ring."""
        for part in self.segments:
            if n_participants * part.bound >= 2 ** (part.bits - 1):
                raise RangeError.because(
                    ReasonCode.SUM_OVERFLOW, table=part.table, cohort=n_participants, bound=part.bound, bits=part.bits
                )

    def views(self, vector: Vector) -> dict[tuple[str, SegmentKind], Array]:
        """Return each part of a vector as an array [rows, width] of its numbers, signed."""
        starts = dict.fromkeys(WIDTHS, 0)
        found = {}
        for part in self.segments:
            start = starts[part.bits]
            numbers = vector.parts[WIDTHS.index(part.bits)][start : start + part.size]
            found[part.table, part.kind] = numbers.view(np.dtype(f"<i{part.bits // 8}")).reshape(-1, part.width)
            starts[part.bits] = start + part.size
        return found

    def write(self, writer: ByteWriter) -> None:
        """Add the layout to a message."""
        writer.number(len(self.segments), 2)
        for part in self.segments:
            writer.text(part.table).number(part.kind, 1).number(part.n_rows, 4).number(part.width, 4)
            writer.number(part.bits, 1).number(part.bound, 8).number(part.rows is not None, 1)
            if part.rows is not None:
                writer.block(np.array(part.rows, "<u4").tobytes())

    @classmethod
    def read(cls, reader: ByteReader) -> VectorLayout:
        """Take a layout out of a message; one that is not in its one form is refused."""
        segments = [_segment(reader) for _ in range(reader.number(2, MOST_SEGMENTS, 1))]
        layout = cls(tuple(segments))
        if layout != cls.of(segments) or len({(part.table, part.kind) for part in segments}) != len(segments):
            raise reader.wrong("the parts of a vector stand out of order or twice")
        if sum(layout.sizes) > MOST_CELLS:
            raise reader.wrong(f"a vector of {sum(layout.sizes):,} numbers is too long")
        return layout


def _segment(reader: ByteReader) -> Segment:
    table, kind = reader.text(), SegmentKind(reader.number(1, max(SegmentKind), min(SegmentKind)))
    n_rows, width = reader.number(4, MOST_CELLS, 1), reader.number(4, MOST_CELLS, 1)
    bits, bound = reader.number(1), reader.number(8, 2**63 - 1, 1)
    if bits not in WIDTHS:
        raise reader.wrong(f"there are no numbers of {bits} bits")
    rows = None
    if reader.number(1, 1):
        data = reader.block(4 * n_rows)
        if len(data) % 4:
            raise reader.wrong("a list of rows is cut off")
        ids = np.frombuffer(data, "<u4").astype(np.int64)
        if len(ids) and (ids[-1] >= n_rows or (np.diff(ids) <= 0).any()):
            raise reader.wrong("a list of rows is not ascending within its table")
        rows = tuple(ids.tolist())
    return Segment(table, kind, n_rows, width, bits, bound, rows)


def rows_layout(
    shapes: Mapping[str, tuple[int, ...]],
    ring: Ring,
    n_participants: int,
    listed: Mapping[str, Array] | None = None,
    counted: Collection[str] | None = None,
) -> VectorLayout:
    """Return the parts for rows and mentions of all tables; with `listed`, for those rows, which were counted before.

    Under differential privacy only `counted` tables have mentions, and these are numbers of the ring.

    One participant's number may be as large as the ring allows for so many participants: 2^(bits - 1) / n_participants.
    A table of one row holds dense layers: every participant moves all of it, weighted by samples, so that it has the
    room of 64 bits.
    """
    segments = []
    for name, shape in shapes.items():
        rows = None if listed is None else tuple(np.asarray(listed[name]).tolist())
        if rows is None or rows:
            width = int(np.prod(shape[1:], dtype=np.int64))
            wide = ring.bits if shape[0] > 1 else 64
            most = (2 ** (wide - 1) - 1) // n_participants
            segments.append(Segment(name, SegmentKind.NUMBERS, shape[0], width, wide, most, rows))
            if counted is not None:
                segments += [Segment(name, SegmentKind.MENTIONS, shape[0], 1, wide, most)] if name in counted else []
            elif listed is None:
                bits = 32 if n_participants * MOST_MENTIONS < 2**31 else 64
                segments.append(Segment(name, SegmentKind.MENTIONS, shape[0], 1, bits, MOST_MENTIONS))
    return VectorLayout.of(segments)


def counts_layout(shapes: Mapping[str, tuple[int, ...]], n_participants: int) -> VectorLayout:
    """Return the parts that count participants per row: two bytes a row, four in very large cohorts."""
    bits = 16 if n_participants < 2**15 else 32
    return VectorLayout.of([Segment(name, SegmentKind.COUNTS, shape[0], 1, bits, 1) for name, shape in shapes.items()])


def encode_message(message: Message, layout: VectorLayout, client: int = 0) -> Vector:
    """Write one client's part of a message as a vector; rows that the layout does not list are not sent."""
    vector = Vector(layout.sizes)
    views = layout.views(vector)
    for part in layout.segments:
        ptr, ids, numbers = message.tables[part.table]
        own = slice(int(ptr[client]), int(ptr[client + 1]))
        ids, numbers = ids[own], numbers[own]
        at = part.place[ids]
        ids_here, into = at[at >= 0], views[part.table, part.kind]
        if part.kind is SegmentKind.COUNTS:
            into[ids_here] = 1
            continue
        if part.kind is SegmentKind.NUMBERS:
            values = numbers[at >= 0]
        else:
            weighed = message.counts.get(part.table)
            values = np.ones(len(ids_here), np.int64) if weighed is None else weighed[own][at >= 0]
        distinct, where = np.unique(ids_here, return_inverse=True)
        sums = np.zeros((len(distinct), part.width), np.int64)
        np.add.at(sums, where, values.reshape(len(values), part.width))
        largest = int(np.abs(sums).max(initial=0))
        if largest > part.bound:
            raise RangeError.because(ReasonCode.VALUE_OUT_OF_RANGE, table=part.table, bound=part.bound, largest=largest)
        into[distinct] = sums
    return vector


def decode_sum(
    vector: Vector, layout: VectorLayout, shapes: Mapping[str, tuple[int, ...]], n_participants: int
) -> Total:
    """Read the sum of so many participants' vectors as a Total; rows that the layout does not list are zero."""
    total = Total.zero(shapes)
    views = layout.views(vector)
    for part in layout.segments:
        here = views[part.table, part.kind]
        if part.kind is SegmentKind.NUMBERS:
            total.sums[part.table][part.listed] = here.reshape(-1, *shapes[part.table][1:])
        elif part.kind is SegmentKind.MENTIONS:
            total.counts[part.table][part.listed] = here[:, 0]
    total.n_clients = n_participants
    return total


def count_mentions(message: Message, n_rows: Mapping[str, int]) -> dict[str, NDArray[np.int64]]:
    """Return how many clients of a message mention each row of each table."""
    found = {}
    for name, (ptr, ids, _) in message.tables.items():
        owner = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
        once = np.unique(owner * n_rows[name] + ids)
        found[name] = np.bincount(once % n_rows[name], minlength=n_rows[name])
    return found


def decode_counts(vector: Vector, layout: VectorLayout) -> dict[str, NDArray[np.int64]]:
    """Read how many participants mention each row of each table."""
    return {table: part[:, 0].astype(np.int64) for (table, _), part in layout.views(vector).items()}
