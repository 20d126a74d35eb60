"""The largest number of each group of a long array, and which of 64 numbers reach a bound, as bits of one word.

numba vectorises both only inside a slice, with a test for overlap before each, and keeps the maxima in memory. With
the maxima in registers a row is ranked in three quarters of the time.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 64  # numbers that are compared at once
_I32, _I64 = ir.IntType(32), ir.IntType(64)
_VECTOR = ir.VectorType(_I32, LANES)


def _load(builder, start, index):
    """Code for LANES numbers from an index on."""
    return builder.load(builder.bitcast(builder.gep(start, [index]), _VECTOR.as_pointer()), align=4)


@intrinsic
def raise_groups(typing_context, keys, tops):
    """tops[g] = the largest of keys[g], keys[g + n], keys[g + 2 n], ... for n tops, a multiple of 64; ints of 32 bits.

    `keys` has a whole number of rows of n, at least one.
    """

    def generate(context, builder, signature, args):
        all_keys, all_tops = (
            context.make_array(kind)(context, builder, value) for kind, value in zip((keys, tops), args, strict=True)
        )
        source, n_keys, target, n_tops = all_keys.data, all_keys.nitems, all_tops.data, all_tops.nitems
        lanes = ir.Constant(_I64, LANES)
        kind = ir.FunctionType(_VECTOR, [_VECTOR, _VECTOR])
        largest = cgutils.get_or_insert_function(builder.module, kind, f"llvm.smax.v{LANES}i32")
        held = cgutils.alloca_once(builder, _VECTOR)
        with cgutils.for_range_slice(builder, ir.Constant(_I64, 0), n_tops, lanes, _I64) as (group, _):
            builder.store(_load(builder, source, group), held)
            first = builder.add(group, n_tops)
            with cgutils.for_range_slice(builder, first, n_keys, n_tops, _I64) as (at, _):
                builder.store(builder.call(largest, [builder.load(held), _load(builder, source, at)]), held)
            place = builder.bitcast(builder.gep(target, [group]), _VECTOR.as_pointer())
            builder.store(builder.load(held), place, align=4)
        return context.get_dummy_value()

    return types.void(keys, tops), generate


@intrinsic
def reaching(typing_context, numbers, start, least):
    """Return which of 64 numbers from `start` on are `least` or larger: bit b is that of numbers[start + b]."""

    def generate(context, builder, signature, args):
        start = context.make_array(numbers)(context, builder, args[0]).data
        found = _load(builder, start, args[1])
        same = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), args[2], ir.Constant(_I32, 0))
        bound = builder.shuffle_vector(same, same, ir.Constant(_VECTOR, [0] * LANES))
        return builder.bitcast(builder.icmp_signed(">=", found, bound), _I64)

    return types.uint64(numbers, types.int64, types.int32), generate


@intrinsic
def lowest_bit(typing_context, word):
    """Return the place of the lowest bit that is set in a word that is not zero."""

    def generate(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate
