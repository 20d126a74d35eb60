"""One triple of FPL on whole rows: the preference of a client, its step, and the gradients of the two items.

A row of the item table is [q, 0.., b] and a client's is [p, 0.., 1]: zeros fill it up to whole vectors, and the bias
comes last. `pad_rows` and `unpad_rows` lead there and back. Every operation is elementwise or in one fixed order, so a
triple gives the same bits wherever it is computed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from tacit.kernels.llvm.rowsum import square
from tacit.kernels.llvm.rowvec import RowCode, broadcast, chunks
from tacit.kernels.sampling import U64
from tacit.types import Array, Floats

_F32 = ir.FloatType()
_I32 = ir.IntType(32)
_I64 = ir.IntType(64)
_VECTOR = 8  # floats
_LINE = 64  # bytes


def pad_rows(rows: Floats) -> Floats:
    """Return rows [n, F + 1] with zeros before the last column, so that they are whole vectors in aligned memory."""
    n, width = rows.shape
    result = empty_rows(n, -(-width // _VECTOR) * _VECTOR)
    _pad(rows, result)
    return result


@njit(cache=True, nogil=True)
def _pad(rows, result):
    width, last = U64(rows.shape[1] - 1), U64(result.shape[1] - 1)
    for r in range(U64(rows.shape[0])):
        for d in range(width):
            result[r, d] = rows[r, d]
        for d in range(width, last):
            result[r, d] = 0.0
        result[r, last] = rows[r, width]


def empty_rows(n: int, width: int) -> Floats:
    """Return room for n rows, aligned."""
    return _align_rows(np.empty, n, width)


def zero_rows(n: int, width: int) -> Floats:
    """Return n rows of zeros, aligned."""
    return _align_rows(np.zeros, n, width)


def _align_rows(make: Any, n: int, width: int) -> Floats:
    room: Floats = make(n * width + _LINE // 4, np.float32)
    start = -room.ctypes.data % _LINE // 4
    return room[start : start + n * width].reshape(n, width)


def unpad_rows(rows: Array, width: int) -> Array:
    """Return padded rows as [n, width]."""
    result = np.empty((len(rows), width), rows.dtype)
    _unpad(rows, result)
    return result


@njit(cache=True, nogil=True)
def _unpad(rows, result):
    width, last = U64(result.shape[1] - 1), U64(rows.shape[1] - 1)
    for r in range(U64(rows.shape[0])):
        for d in range(width):
            result[r, d] = rows[r, d]
        result[r, width] = rows[r, last]


def _call(builder: Any, name: str, *args: Any) -> Any:
    """Code for an LLVM intrinsic on equal vectors."""
    kind = args[0].type
    function = ir.FunctionType(kind, [kind] * len(args))
    return builder.call(cgutils.get_or_insert_function(builder.module, function, f"{name}.v{kind.count}f32"), args)


def fma(builder: Any, a: list[Any], b: list[Any], c: list[Any]) -> list[Any]:
    """Code for a b + c of rows, rounded once."""
    return [_call(builder, "llvm.fma", x, y, z) for x, y, z in zip(a, b, c, strict=True)]


def minus(builder: Any, a: list[Any], b: list[Any]) -> list[Any]:
    """Code for a - b of rows."""
    return [builder.fsub(x, y) for x, y in zip(a, b, strict=True)]


def fill(builder: Any, scalar: Any, like: list[Any], last: float | None = None) -> list[Any]:
    """Code for a row that holds one number everywhere, with `last` in the place of the bias."""
    row = [broadcast(builder, scalar, vector.type.count) for vector in like]
    if last is not None:
        at = ir.Constant(_I32, row[-1].type.count - 1)
        row[-1] = builder.insert_element(row[-1], ir.Constant(_F32, last), at)
    return row


def dot(builder: Any, a: list[Any], b: list[Any]) -> Any:
    """Code for a dot product in one fixed order: halves of the widest chunk, joined by the narrower ones on the way."""
    total = builder.fmul(a[0], b[0])
    for x, y in zip(a[1:], b[1:], strict=True):
        while total.type.count > x.type.count:
            total = _halve(builder, total)
        total = _call(builder, "llvm.fma", x, y, total)
    while total.type.count > 1:
        total = _halve(builder, total)
    return builder.extract_element(total, ir.Constant(_I32, 0))


def _halve(builder: Any, vector: Any) -> Any:
    half = vector.type.count // 2
    kind = ir.VectorType(_I32, half)
    lower = builder.shuffle_vector(vector, vector, ir.Constant(kind, list(range(half))))
    upper = builder.shuffle_vector(vector, vector, ir.Constant(kind, list(range(half, 2 * half))))
    return builder.fadd(lower, upper)


def round_to_grid(builder: Any, scalar: Any, row: list[Any], last: float | None = None) -> list[Any]:
    """Code for round(scalar row): whole numbers, still as floats."""
    products = zip(fill(builder, scalar, row, last), row, strict=True)
    return [_call(builder, "llvm.rint", builder.fmul(factor, vector)) for factor, vector in products]


def _keep_largest(context: Any, builder: Any, peaks: Any, value: Any, row: list[Any]) -> None:
    """Code for peaks = max(peaks, |row|), place by place."""
    store = RowCode(context, builder, peaks, value, ir.Constant(_I64, 0))
    store.store(larger(builder, store.load(), row))


def larger(builder: Any, largest: list[Any], row: list[Any]) -> list[Any]:
    """Code for max(largest, |row|), place by place.

    The bits of a float without its sign are ordered as whole numbers, with NaN above all others: it is never lost.
    """
    found = []
    for old, vector in zip(largest, row, strict=True):
        kind = ir.VectorType(_I32, vector.type.count)
        without_sign = ir.Constant(kind, [0x7FFFFFFF] * kind.count)
        size = builder.and_(builder.bitcast(vector, kind), without_sign)
        function = ir.FunctionType(kind, [kind, kind])
        maximum = cgutils.get_or_insert_function(builder.module, function, f"llvm.smax.v{kind.count}i32")
        found.append(builder.bitcast(builder.call(maximum, [builder.bitcast(old, kind), size]), vector.type))
    return found


@intrinsic
def preference(typing_context, left, u, right, i, j):
    """Return left[u] . (right[i] - right[j])."""

    def generate(context, builder, signature, args):
        p = RowCode(context, builder, left, args[0], args[1]).load()
        q_i = RowCode(context, builder, right, args[2], args[3]).load()
        q_j = RowCode(context, builder, right, args[2], args[4]).load()
        return dot(builder, p, minus(builder, q_i, q_j))

    return types.float32(left, types.uint64, right, types.uint64, types.uint64), generate


def advance(builder: Any, moved: list[Any], p: list[Any], difference: list[Any], step: Any, shrink: Any) -> list[Any]:
    """Code for a client's row after a triple: += step (q_i - q_j) - shrink p, but for the last place, which stays 1."""
    kept = fma(builder, fill(builder, builder.fneg(shrink), p, last=0.0), p, moved)
    return fma(builder, fill(builder, step, p, last=0.0), difference, kept)


def add_to_totals(context: Any, builder: Any, totals: Any, value: Any, grid: list[Any], to: Any, of: Any) -> None:
    """Code for totals[to] += grid and totals[of] -= grid; totals are of 32 or 64 bits, or of 53 in float64."""
    bits, is_float = totals.dtype.bitwidth, isinstance(totals.dtype, types.Float)
    number = ir.DoubleType() if is_float else ir.IntType(bits)
    length, pull = sum(vector.type.count for vector in grid), []
    for vector in grid:
        kind = ir.VectorType(number, vector.type.count)
        if is_float:
            pull.append(builder.fpext(vector, kind))
            continue
        whole = builder.fptosi(vector, ir.VectorType(_I32, vector.type.count))
        pull.append(builder.sext(whole, kind) if bits > 32 else whole)
    start = context.make_array(totals)(context, builder, value).data
    subtract, add = (builder.fsub, builder.fadd) if is_float else (builder.sub, builder.add)
    for item, operation in ((of, subtract), (to, add)):
        at = builder.gep(start, [builder.mul(item, ir.Constant(_I64, length))])
        for (offset, width), whole in zip(chunks(length), pull, strict=True):
            cell = builder.gep(at, [ir.Constant(_I64, offset)])
            cell = builder.bitcast(cell, ir.VectorType(number, width).as_pointer())
            builder.store(operation(builder.load(cell, align=bits // 8), whole), cell, align=bits // 8)


class _Step:
    """Code for one triple: the rows it reads, the client's step, and z [p, 1] on the grid."""

    def __init__(self, context: Any, builder: Any, kinds: Any, args: Any) -> None:
        moved, users, table = kinds
        self.builder = builder
        self.row = RowCode(context, builder, moved, args[0], args[3])
        self.p = RowCode(context, builder, users, args[1], args[3]).load()
        self.q_i = RowCode(context, builder, table, args[2], args[4]).load()
        self.q_j = RowCode(context, builder, table, args[2], args[5]).load()

    def advance(self, step: Any, shrink: Any) -> None:
        """Move the client."""
        difference = minus(self.builder, self.q_i, self.q_j)
        self.row.store(advance(self.builder, self.row.load(), self.p, difference, step, shrink))

    def scaled_row(self, z: Any) -> list[Any]:
        """Return round(z [p, 1])."""
        return round_to_grid(self.builder, z, self.p)


_STEP = [types.uint64] * 3 + [types.float32] * 3


@intrinsic
def step_and_write(typing_context, moved, users, table, c, i, j, step, shrink, z, reg_i, reg_j, unit, rows, a, b):
    """Move client c by a triple, and write its rows to rows[a] and rows[b]; z and both regs come times the scale."""

    def generate(context, builder, signature, args):
        triple = _Step(context, builder, (moved, users, table), args)
        step, shrink, z, reg_i, reg_j, unit, target, a, b = args[6:]
        pull = triple.scaled_row(z)
        push = [builder.fneg(vector) for vector in pull]
        for at, row, reg, q in ((a, pull, reg_i, triple.q_i), (b, push, reg_j, triple.q_j)):
            whole = minus(builder, row, round_to_grid(builder, reg, q, last=0.0))
            value = [builder.fmul(x, y) for x, y in zip(whole, fill(builder, unit, whole), strict=True)]
            RowCode(context, builder, rows, target, at).store(value)
        triple.advance(step, shrink)
        return context.get_dummy_value()

    more = [types.float32] * 3 + [rows] + [types.uint64] * 2
    return types.void(moved, users, table, *_STEP, *more), generate


@intrinsic
def step_and_measure(typing_context, moved, users, table, c, i, j, step, shrink, z, reg_i, reg_j, rows, a, b):
    """Move client c by a triple, write its rows as whole numbers, and return their squared lengths in these.

    rows[a] is the positive's row, rows[b] minus the negative's: adding it with a negative factor costs nothing.
    """

    def generate(context, builder, signature, args):
        triple = _Step(context, builder, (moved, users, table), args)
        step, shrink, z, reg_i, reg_j, target, a, b = args[6:]
        pull = triple.scaled_row(z)
        positive = minus(builder, pull, round_to_grid(builder, reg_i, triple.q_i, last=0.0))
        grids = zip(pull, round_to_grid(builder, reg_j, triple.q_j, last=0.0), strict=True)
        negative = [builder.fadd(x, y) for x, y in grids]
        RowCode(context, builder, rows, target, a).store(positive)
        RowCode(context, builder, rows, target, b).store(negative)
        triple.advance(step, shrink)
        squares = [square(builder, row) for row in (positive, negative)]
        return context.make_tuple(builder, signature.return_type, squares)

    more = [types.float32] * 2 + [rows] + [types.uint64] * 2
    return types.UniTuple(types.float32, 2)(moved, users, table, *_STEP, *more), generate


@intrinsic
def step_and_add(typing_context, moved, users, table, c, i, j, step, shrink, z, totals, a, peaks):
    """Move client c by a triple; add z [p, 1] to totals[a], subtract it from totals[j], keep the largest in peaks[0].

    `a` is i, or a row that is never read where the positive must not leave: no branch, so none is guessed wrongly.
    """

    def generate(context, builder, signature, args):
        triple = _Step(context, builder, (moved, users, table), args)
        step, shrink, z, target, a, largest = args[6:]
        grid = triple.scaled_row(z)
        triple.advance(step, shrink)
        _keep_largest(context, builder, peaks, largest, grid)
        add_to_totals(context, builder, totals, target, grid, a, args[5])
        return context.get_dummy_value()

    return types.void(moved, users, table, *_STEP, totals, types.uint64, peaks), generate


@intrinsic
def step_and_apply(typing_context, moved, users, table, c, i, j, step, shrink, z, reg_i, reg_j, gain, is_sent, peaks):
    """Move client c by a triple, and the two items by gain times their rows: a whole round of one triple."""

    def generate(context, builder, signature, args):
        triple = _Step(context, builder, (moved, users, table), args)
        step, shrink, z, reg_i, reg_j, gain, sent, largest = args[6:]
        pull = triple.scaled_row(z)
        push = [builder.fneg(vector) for vector in pull]
        triple.advance(step, shrink)

        def change(item, row, reg, q):
            whole = minus(builder, row, round_to_grid(builder, reg, q, last=0.0))
            _keep_largest(context, builder, peaks, largest, whole)
            moved_by = zip(fill(builder, gain, whole), whole, q, strict=True)
            RowCode(context, builder, table, args[2], item).store(
                [builder.fadd(r, builder.fmul(g, w)) for g, w, r in moved_by]
            )

        change(args[5], push, reg_j, triple.q_j)
        with builder.if_then(builder.icmp_unsigned("!=", sent, sent.type(0))):
            change(args[4], pull, reg_i, triple.q_i)
        return context.get_dummy_value()

    return types.void(moved, users, table, *_STEP, *[types.float32] * 3, types.uint8, peaks), generate
