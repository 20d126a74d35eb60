"""Whole rows of a float32 table as vectors: what keeps numba's inner loops as fast as hand-written C.

A loop over F floats of several arrays is compiled with checks whether they overlap, or stays scalar. The intrinsics
here load whole rows into registers, compute and store them. A row is cut into power-of-two chunks (20 = 16 + 4):
odd vector lengths would be split so that a load does not match the store before it, which costs a factor of two.

`rows_of(table)` gives a table the type of "n rows of F floats"; the length is part of that type, so numba compiles
and caches one version per F by itself. All sums have one fixed order: the same bits on every run. Indices are
unsigned (no wrap-around branch) and are not checked.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

from tacit.types import Array, Floats

_FLOAT = ir.FloatType()
_BYTE = ir.IntType(8)
_I32 = ir.IntType(32)
_I64 = ir.IntType(64)
_CACHE_LINE = 64
_FUSE = ("contract",)  # multiply and add may become one instruction; nothing else may be rearranged


def rows_of(table: Floats) -> Array:
    """View a contiguous float32 table [n, F] as n rows, [n]: what the intrinsics of this file take."""
    return table.view(_row_type(table.shape[1])).reshape(len(table))


@cache
def _row_type(length: int) -> np.dtype[Any]:
    return np.dtype([("row", np.float32, (length,))])


def chunks(length: int) -> list[tuple[int, int]]:
    """Cut a row into (offset, width) with widths 16, 8, 4, 2, 1, widest first."""
    cuts, at = [], 0
    for width in (16, 8, 4, 2, 1):
        while length - at >= width:
            cuts.append((at, width))
            at += width
    return cuts


class RowCode:
    """Code for one row of one table: its address, and its floats as a list of vectors. For intrinsics only."""

    def __init__(self, context: Any, builder: Any, table: Any, value: Any, index: Any) -> None:
        self.builder = builder
        self.cuts = chunks(table.dtype.size // 4)
        start = builder.bitcast(context.make_array(table)(context, builder, value).data, _BYTE.as_pointer())
        shift = builder.mul(index, ir.Constant(_I64, table.dtype.size))
        self.start = builder.bitcast(builder.gep(start, [shift]), _FLOAT.as_pointer())

    def _chunk(self, offset: int, width: int) -> Any:
        address = self.builder.gep(self.start, [ir.Constant(_I64, offset)])
        return self.builder.bitcast(address, ir.VectorType(_FLOAT, width).as_pointer())

    def load(self) -> list[Any]:
        """Code that reads the row."""
        return [self.builder.load(self._chunk(*cut), align=4) for cut in self.cuts]

    def store(self, vectors: list[Any]) -> None:
        """Code that writes the row."""
        for cut, vector in zip(self.cuts, vectors, strict=True):
            self.builder.store(vector, self._chunk(*cut), align=4)


def _each(builder: Any, operation: str, left: list[Any], right: list[Any]) -> list[Any]:
    """Code for an elementwise fadd, fsub or fmul of two rows."""
    apply = getattr(builder, operation)
    return [apply(a, b, flags=_FUSE) for a, b in zip(left, right, strict=True)]


def broadcast(builder: Any, scalar: Any, width: int) -> Any:
    """Code for a vector of `width` equal numbers."""
    empty = ir.Constant(ir.VectorType(scalar.type, width), ir.Undefined)
    first = builder.insert_element(empty, scalar, ir.Constant(_I32, 0))
    return builder.shuffle_vector(first, empty, ir.Constant(ir.VectorType(_I32, width), [0] * width))


def _times(builder: Any, scalar: Any, vectors: list[Any]) -> list[Any]:
    """Code for scalar * row."""
    return [builder.fmul(broadcast(builder, scalar, v.type.count), v, flags=_FUSE) for v in vectors]


def _sum(builder: Any, vectors: list[Any]) -> Any:
    """Code for the sum of a row: equal widths are added, then halves, from the widest down."""
    total, width = None, 16
    while width >= 1:
        for vector in vectors:
            if vector.type.count == width:
                total = vector if total is None else builder.fadd(total, vector, flags=_FUSE)
        if total is not None and width > 1:
            half = width // 2
            kind = ir.VectorType(_I32, half)
            lower = builder.shuffle_vector(total, total, ir.Constant(kind, list(range(half))))
            upper = builder.shuffle_vector(total, total, ir.Constant(kind, list(range(half, width))))
            total = builder.fadd(lower, upper, flags=_FUSE)
        width //= 2
    return builder.extract_element(total, ir.Constant(_I32, 0))


def _need_rows(*tables: Any) -> None:
    for table in tables:
        if not (isinstance(table, types.Array) and isinstance(table.dtype, types.Record) and table.layout == "C"):
            raise TypingError(f"a table must come from rows_of(), not {table}")


@intrinsic
def dot_difference(typing_context, left, u, right, i, j):
    """Return left[u] . (right[i] - right[j])."""
    _need_rows(left, right)

    def generate(context, builder, signature, args):
        p = RowCode(context, builder, left, args[0], args[1]).load()
        q_i = RowCode(context, builder, right, args[2], args[3]).load()
        q_j = RowCode(context, builder, right, args[2], args[4]).load()
        return _sum(builder, _each(builder, "fmul", p, _each(builder, "fsub", q_i, q_j)))

    return types.float32(left, types.uint64, right, types.uint64, types.uint64), generate


@intrinsic
def step_pair(typing_context, left, u, right, i, j, step, keep_u, keep_i, keep_j):
    """Move three rows at once, each from the old values of the others.

    left[u] = keep_u left[u] + step (right[i] - right[j]); right[i] = keep_i right[i] + step left[u];
    right[j] = keep_j right[j] - step left[u].
    """
    _need_rows(left, right)

    def generate(context, builder, signature, args):
        row_u = RowCode(context, builder, left, args[0], args[1])
        row_i = RowCode(context, builder, right, args[2], args[3])
        row_j = RowCode(context, builder, right, args[2], args[4])
        p, q_i, q_j = row_u.load(), row_i.load(), row_j.load()
        step, keep_u, keep_i, keep_j = args[5:]
        pull = _times(builder, step, p)
        push = _times(builder, step, _each(builder, "fsub", q_i, q_j))
        row_u.store(_each(builder, "fadd", _times(builder, keep_u, p), push))
        row_i.store(_each(builder, "fadd", _times(builder, keep_i, q_i), pull))
        row_j.store(_each(builder, "fsub", _times(builder, keep_j, q_j), pull))
        return context.get_dummy_value()

    numbers = [types.float32] * 4
    return types.void(left, types.uint64, right, types.uint64, types.uint64, *numbers), generate


def _ask(builder: Any, start: Any, offsets: list[int], for_writing: bool) -> None:
    """Code that asks for the cache lines at some offsets from an address."""
    kind = ir.FunctionType(ir.VoidType(), [_BYTE.as_pointer(), _I32, _I32, _I32])
    ask = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    how = [ir.Constant(_I32, number) for number in (int(for_writing), 3, 1)]  # 3: keep near; 1: data
    address = builder.bitcast(start, _BYTE.as_pointer())
    for offset in offsets:
        builder.call(ask, [builder.gep(address, [ir.Constant(_I64, offset)]), *how])


@intrinsic
def prefetch(typing_context, table, row):
    """Prefetch a row that will be needed soon."""
    _need_rows(table)

    def generate(context, builder, signature, args):
        size = table.dtype.size
        offsets = [*range(0, size - 1, _CACHE_LINE), size - 1]
        _ask(builder, RowCode(context, builder, table, *args).start, offsets, for_writing=True)
        return context.get_dummy_value()

    return types.void(table, types.uint64), generate


@intrinsic
def prefetch_one(typing_context, array, index):
    """Ask for one element of a contiguous array, counted as if it had one dimension; it will only be read."""

    def generate(context, builder, signature, args):
        start = context.make_array(array)(context, builder, args[0]).data
        _ask(builder, builder.gep(start, [args[1]]), [0], for_writing=False)
        return context.get_dummy_value()

    return types.void(array, types.uint64), generate
