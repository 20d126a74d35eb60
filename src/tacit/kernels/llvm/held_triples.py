"""One client's triples one after the other, with its row in registers, and a round's sums applied row by row.

Bits are those of `triples`. A step waits for the one before it: through registers that takes a tenth less time than
through memory.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tacit.kernels.llvm.rowvalue import join_vectors, vectors_of
from tacit.kernels.llvm.rowvec import RowCode, broadcast, chunks
from tacit.kernels.llvm.triples import add_to_totals, advance, dot, fill, larger, minus, round_to_grid

_F32, _F64, _I64 = ir.FloatType(), ir.DoubleType(), ir.IntType(64)


@intrinsic
def held_preference(typing_context, p, right, i, j):
    """Return p . (right[i] - right[j]) for a row p in registers."""

    def generate(context, builder, signature, args):
        q_i, q_j = (RowCode(context, builder, right, args[1], at).load() for at in args[2:])
        return dot(builder, vectors_of(builder, args[0]), minus(builder, q_i, q_j))

    return types.float32(p, right, types.uint64, types.uint64), generate


@intrinsic
def held_step(typing_context, moved, p, table, i, j, step, shrink, z, totals, a, peak):
    """Return `moved` after a triple whose gradient is taken at p, and the largest terms so far; add what leaves.

    As `step_and_add` does, z [p, 1] is added to totals[a] and subtracted from totals[j]. All rows but those of the
    items are in registers.
    """

    def generate(context, builder, signature, args):
        i, j, step, shrink, z, target, a, peak = args[3:]
        p = vectors_of(builder, args[1])
        q_i, q_j = (RowCode(context, builder, table, args[2], at).load() for at in (i, j))
        stepped = advance(builder, vectors_of(builder, args[0]), p, minus(builder, q_i, q_j), step, shrink)
        grid = round_to_grid(builder, z, p)
        add_to_totals(context, builder, totals, target, grid, a, j)
        largest = larger(builder, vectors_of(builder, peak), grid)
        rows = [join_vectors(builder, vectors) for vectors in (stepped, largest)]
        return context.make_tuple(builder, signature.return_type, rows)

    numbers = [types.uint64] * 2 + [types.float32] * 3
    return types.UniTuple(moved, 2)(moved, p, table, *numbers, totals, types.uint64, peak), generate


@intrinsic
def settle_row(typing_context, table, totals, item, n_positive, n_negative, reg_i, reg_j, unit, rate, top):
    """Move a row of the table by rate times a round's sum of its rows, and make its total zero again.

    The sum is totals[item] less what regularisation takes from each row that was sent, counted. All of it are whole
    numbers, exact in float64; `unit` is one of them. Return the larger of `top`, a row in registers, and the sum.
    """
    bits, is_float = totals.dtype.bitwidth, isinstance(totals.dtype, types.Float)
    number = _F64 if is_float else ir.IntType(bits)

    def generate(context, builder, signature, args):
        n_positive, n_negative, reg_i, reg_j, unit, rate, top = args[3:]
        row = RowCode(context, builder, table, args[0], args[2])
        q, length = row.load(), table.dtype.size // 4
        start = context.make_array(totals)(context, builder, args[1]).data
        at = builder.gep(start, [builder.mul(args[2], ir.Constant(_I64, length))])
        totalled = []
        for offset, width in chunks(length):
            kind = ir.VectorType(number, width)
            cell = builder.bitcast(builder.gep(at, [ir.Constant(_I64, offset)]), kind.as_pointer())
            totalled.append(builder.load(cell, align=bits // 8))
            builder.store(ir.Constant(kind, None), cell, align=bits // 8)

        def as_floats(vector):
            kind = ir.VectorType(_F32, vector.type.count)
            return builder.fptrunc(vector, kind) if is_float else builder.sitofp(vector, kind)

        def less_shrunk(total, grids):
            doubles = ir.VectorType(_F64, total.type.count)
            total = total if is_float else builder.sitofp(total, doubles)
            for count, grid in zip((n_positive, n_negative), grids, strict=True):
                shrunk = builder.fmul(broadcast(builder, count, total.type.count), builder.fpext(grid, doubles))
                total = builder.fsub(total, shrunk)
            return builder.fptrunc(total, ir.VectorType(_F32, total.type.count))

        zero = ir.Constant(_F32, 0.0)
        is_free = builder.and_(builder.fcmp_ordered("==", reg_i, zero), builder.fcmp_ordered("==", reg_j, zero))
        with builder.if_else(is_free) as (free, shrinking):
            with free:  # nothing to subtract: the same bits with a third of the work
                plain = [as_floats(total) for total in totalled]
                after_free = builder.block
            with shrinking:
                grids = zip(*[round_to_grid(builder, reg, q, last=0.0) for reg in (reg_i, reg_j)], strict=True)
                shrunk = [less_shrunk(*pair) for pair in zip(totalled, grids, strict=True)]
                after_shrinking = builder.block
        sums = []
        for one, other in zip(plain, shrunk, strict=True):
            sums.append(builder.phi(one.type))
            sums[-1].add_incoming(one, after_free)
            sums[-1].add_incoming(other, after_shrinking)
        units, rates = fill(builder, unit, sums), fill(builder, rate, sums)
        moves = [builder.fmul(r, builder.fmul(f, u)) for f, u, r in zip(sums, units, rates, strict=True)]
        row.store([builder.fadd(old, by) for old, by in zip(q, moves, strict=True)])
        return join_vectors(builder, larger(builder, vectors_of(builder, top), sums))

    numbers = [types.float64] * 2 + [types.float32] * 4
    return top(table, totals, types.uint64, *numbers, top), generate
