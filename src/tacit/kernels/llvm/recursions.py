"""Recursions over the steps of a history, some columns of the rows at a time, with the state in registers.

Columns do not depend on each other, so a kernel may take a few columns of all rows, and then the next ones. The part of
a table that it adds to then fits the second-level cache; for whole rows it does not. Multiplications and additions are
apart and in one fixed order, so that the bits are the same on every machine. fed-slist's rounds take a third of the
time that loops over whole rows took.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

from tacit.kernels.llvm.rowsum import rint
from tacit.kernels.llvm.rowvec import broadcast

_FLOAT, _I32, _I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)


class _Columns:
    """Code for some columns of the rows of a contiguous table [R, D]. For intrinsics only."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any, first: Any, width: int) -> None:
        array = context.make_array(kind)(context, builder, value)
        self.builder, self.is_whole = builder, isinstance(kind.dtype, types.Integer)
        self.start = builder.gep(array.data, [first])
        self.length = builder.extract_value(array.shape, 1)
        self.kind = ir.VectorType(_I64 if self.is_whole else _FLOAT, width)

    def _at(self, row: Any) -> Any:
        place = self.builder.gep(self.start, [self.builder.mul(row, self.length)])
        return self.builder.bitcast(place, self.kind.as_pointer())

    def load(self, row: Any) -> Any:
        return self.builder.load(self._at(row), align=8 if self.is_whole else 4)

    def leave(self, row: Any, vector: Any, scale: Any) -> None:
        """Write numbers to a table of floats, or add them to one of whole numbers: below 2^24 when multiplied."""
        if not self.is_whole:
            self.builder.store(vector, self._at(row), align=4)
            return
        whole = rint(self.builder, self.builder.fmul(vector, scale))
        numbers = self.builder.fptosi(whole, ir.VectorType(_I32, self.kind.count))
        wide = self.builder.sext(numbers, self.kind)
        self.builder.store(self.builder.add(self.load(row), wide), self._at(row), align=8)


class _Numbers:
    """Code that reads whole numbers of a contiguous array. For intrinsics only."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any) -> None:
        self.builder, self.start = builder, context.make_array(kind)(context, builder, value).data

    def load(self, index: Any) -> Any:
        number = self.builder.load(self.builder.gep(self.start, [index]))
        return number if number.type.width == _I64.width else self.builder.zext(number, _I64)


def _check(items: Any, places: Any, table: Any, out: Any) -> None:
    for array in (items, places):
        if not (isinstance(array, types.Array) and isinstance(array.dtype, types.Integer) and array.layout == "C"):
            raise TypingError(f"items and places are contiguous whole numbers, not {array}")
    for array in (table, out):
        if not (isinstance(array, types.Array) and array.ndim == 2 and array.layout == "C"):
            raise TypingError(f"tables are contiguous and of two axes, not {array}")
    if table.dtype != types.float32 or out.dtype not in (types.float32, types.int64):
        raise TypingError(f"a table of float32 goes to one of float32 or int64, not {table} to {out}")


def _vectors(builder: Any, width: int, numbers: Any) -> list[Any]:
    return [broadcast(builder, number, width) for number in numbers]


def make_recursion(width: int, is_forward: bool) -> Any:
    """Make an intrinsic that runs over a history and leaves, for each item, what the items before it lead to.

    From zero, at each item: r = p r + s, leave f r; s = q s + table[item]. Forwards, g s is kept in `kept` [n, width].
    """

    @intrinsic
    def run(typing_context, items, places, start, n, steps, table, column, scale, out, to, kept):
        """Items and places are those from `start` on; steps are p, q, f, g; columns from `column` go to `to` on."""
        _check(items, places, table, out)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            ids, rows = (
                _Numbers(context, builder, kind, value) for kind, value in zip((items, places), args[:2], strict=True)
            )
            start_, n_ = args[2:4]
            p, q, f, g = _vectors(builder, width, cgutils.unpack_tuple(builder, args[4], 4))
            source = _Columns(context, builder, table, args[5], args[6], width)
            target = _Columns(context, builder, out, args[8], args[9], width)
            by = broadcast(builder, args[7], width)
            room = _Columns(context, builder, kept, args[10], ir.Constant(_I64, 0), width)
            zero = ir.Constant(ir.VectorType(_FLOAT, width), None)
            reached, state = (cgutils.alloca_once_value(builder, zero) for _ in range(2))
            last = builder.sub(builder.add(start_, n_), ir.Constant(_I64, 1))
            with cgutils.for_range(builder, n_, intp=_I64) as loop:
                at = builder.add(start_, loop.index) if is_forward else builder.sub(last, loop.index)
                r = builder.fadd(builder.fmul(p, builder.load(reached)), builder.load(state))
                builder.store(r, reached)
                target.leave(rows.load(at), builder.fmul(f, r), by)
                s = builder.fadd(builder.fmul(q, builder.load(state)), source.load(ids.load(at)))
                builder.store(s, state)
                if is_forward:
                    room.leave(loop.index, builder.fmul(g, s), by)
            return context.get_dummy_value()

        index, numbers = types.uint64, types.UniTuple(types.float32, 4)
        kinds = [items, places, index, index, numbers, table, index, types.float32, out, index, kept]
        return types.void(*kinds), generate

    return run


def make_backward_recursion(width: int) -> Any:
    """Return an intrinsic that runs back over `kept` of `make_recursion` but its last row: r = p r + kept, leave r."""

    @intrinsic
    def run(typing_context, places, start, n, p, kept, scale, out, to):
        """Places are those from `start` on; columns go to `to` on."""
        _check(places, places, kept, out)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            rows = _Numbers(context, builder, places, args[0])
            room = _Columns(context, builder, kept, args[4], ir.Constant(_I64, 0), width)
            target = _Columns(context, builder, out, args[6], args[7], width)
            decay, by = _vectors(builder, width, (args[3], args[5]))
            reached = cgutils.alloca_once_value(builder, ir.Constant(ir.VectorType(_FLOAT, width), None))
            last = builder.sub(args[2], ir.Constant(_I64, 2))
            with cgutils.for_range(builder, builder.sub(args[2], ir.Constant(_I64, 1)), intp=_I64) as loop:
                t = builder.sub(last, loop.index)
                r = builder.fadd(builder.fmul(decay, builder.load(reached)), room.load(t))
                builder.store(r, reached)
                target.leave(rows.load(builder.add(args[1], t)), r, by)
            return context.get_dummy_value()

        index, number = types.uint64, types.float32
        return types.void(places, index, index, number, kept, number, out, index), generate

    return run
