"""Whole rows measured and added as vectors: what clipping and summing do with rows of a known width.

Multiplications and additions are apart and in one fixed order, so that the bits are the same on every machine.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tacit.kernels.llvm.rowvec import RowCode, broadcast, chunks

_I32, _I64 = ir.IntType(32), ir.IntType(64)


def rint(builder: Any, vector: Any) -> Any:
    """Code for a vector rounded to whole numbers, ties to even."""
    kind = ir.FunctionType(vector.type, [vector.type])
    name = f"llvm.rint.v{vector.type.count}f32"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [vector])


def _join(builder: Any, vectors: list[Any]) -> Any:
    """Code for the sum of all numbers: equal widths are added, then halves, from the widest down."""
    total, width = None, 16
    while width >= 1:
        for vector in vectors:
            if vector.type.count == width:
                total = vector if total is None else builder.fadd(total, vector)
        if total is not None and width > 1:
            half = width // 2
            kind = ir.VectorType(_I32, half)
            lower = builder.shuffle_vector(total, total, ir.Constant(kind, list(range(half))))
            upper = builder.shuffle_vector(total, total, ir.Constant(kind, list(range(half, width))))
            total = builder.fadd(lower, upper)
        width //= 2
    return builder.extract_element(total, ir.Constant(_I32, 0))


def square(builder: Any, row: list[Any]) -> Any:
    """Code for |row|^2 of a row in registers: whoever measures a row gets the same bits."""
    return _join(builder, [builder.fmul(vector, vector) for vector in row])


@intrinsic
def square_of_row(typing_context, rows, r):
    """Return |rows[r]|^2."""

    def generate(context, builder, signature, args):
        return square(builder, RowCode(context, builder, rows, *args).load())

    return types.float32(rows, types.uint64), generate


@intrinsic
def add_row(typing_context, rows, r, by, cells, at):
    """Add round(by rows[r]) to the row `at` of whole numbers: `cells` [n, D] of 32 or 64 bits."""
    number = ir.IntType(cells.dtype.bitwidth)

    def generate(context, builder, signature, args):
        row = RowCode(context, builder, rows, args[0], args[1]).load()
        length = rows.dtype.size // 4
        start = context.make_array(cells)(context, builder, args[3]).data
        begin = builder.gep(start, [builder.mul(args[4], ir.Constant(_I64, length))])
        for (offset, count), vector in zip(chunks(length), row, strict=True):
            whole = rint(builder, builder.fmul(vector, broadcast(builder, args[2], count)))
            numbers = builder.fptosi(whole, ir.VectorType(_I32, count))
            kind = ir.VectorType(number, count)
            if number.width > 32:
                numbers = builder.sext(numbers, kind)
            cell = builder.bitcast(builder.gep(begin, [ir.Constant(_I64, offset)]), kind.as_pointer())
            align = number.width // 8
            builder.store(builder.add(builder.load(cell, align=align), numbers), cell, align=align)
        return context.get_dummy_value()

    return types.void(rows, types.uint64, types.float32, cells, types.uint64), generate
