"""Small matrix products with samples side by side: the layers of a device, a few units wide, at near full speed.

Matrices are stored with one row per unit and one column per sample, all in flat float32 arrays. So every loop runs
along the samples, and it does not matter how narrow a layer is. A tile holds some outputs of some samples in registers
while it runs over the inputs. Multiply and add are one instruction, in one fixed order, so the bits are the same on
every machine that has it. Libraries for large matrices spend most of their time here on getting ready.

Offsets are in numbers from the start of the flat array and are not checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

from tacit.kernels.llvm.rowvec import broadcast

LANES = 16  # samples in a tile: buffers hold a multiple of them
_OUTPUTS = 6  # units in a tile: 12 of 16 registers on processors with 8 numbers in one
_DOT = 8  # samples at a time where the sum runs over them
_DOT_ROWS, _DOT_COLUMNS = 2, 6  # as many sums, with the rows beside them: one more would not stay in registers
_FLOAT, _I32, _I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_INDEX = types.uint64


def _need_floats(*arrays: Any) -> None:
    for array in arrays:
        if not (isinstance(array, types.Array) and array.dtype == types.float32 and array.ndim == 1):
            raise TypingError(f"a tile reads flat arrays of float32, not {array}")


class _Flat:
    """Code that reads and writes vectors in a flat array. For intrinsics only."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any) -> None:
        self.builder, self.start = builder, context.make_array(kind)(context, builder, value).data

    def _at(self, index: Any, kind: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(self.start, [index]), kind.as_pointer())

    def load(self, index: Any, width: int) -> Any:
        return self.builder.load(self._at(index, ir.VectorType(_FLOAT, width)), align=4)

    def everywhere(self, index: Any, width: int) -> Any:
        """Code for a vector of one number."""
        return broadcast(self.builder, self.builder.load(self.builder.gep(self.start, [index])), width)

    def store(self, vector: Any, index: Any) -> None:
        self.builder.store(vector, self._at(index, vector.type), align=4)


def emit_fused(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """Code for a b + c of vectors, rounded once."""
    kind = ir.FunctionType(a.type, [a.type] * 3)
    name = f"llvm.fma.v{a.type.count}f32"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [a, b, c])


def _plus(builder: Any, index: Any, times: int, step: Any) -> Any:
    """Code for index + times * step."""
    return builder.add(index, builder.mul(step, ir.Constant(_I64, times)))


def _product_tile(outputs: int, after: str) -> Any:
    """Make an intrinsic: z[j, :] = sum over i of w[i, j] a[i, :], for some j and LANES samples.

    `after` is "relu" (start from other[j], cut at zero), "mask" (zero where other[j, :] is not positive) or "plain".
    """

    @intrinsic
    def tile(typing_context, w, at, step, leap, n, a, a_at, a_step, other, o_at, o_step, z, z_at, z_step):
        """w[i, j] is at `at + i step + j leap`, a[i, :] at `a_at + i a_step`; other and z likewise, by j."""
        _need_floats(w, a, other, z)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            w_, at_, step_, leap_, n_, a_, a_at_, a_step_, other_, o_at_, o_step_, z_, z_at_, z_step_ = args
            flat_w, flat_a = _Flat(context, builder, w, w_), _Flat(context, builder, a, a_)
            flat_o, flat_z = _Flat(context, builder, other, other_), _Flat(context, builder, z, z_)
            vector = ir.VectorType(_FLOAT, LANES)
            zero = ir.Constant(vector, None)
            sums = [cgutils.alloca_once(builder, vector) for _ in range(outputs)]
            for j, total in enumerate(sums):
                first = flat_o.everywhere(_plus(builder, o_at_, j, o_step_), LANES) if after == "relu" else zero
                builder.store(first, total)
            with cgutils.for_range(builder, n_, intp=_I64) as loop:
                x = flat_a.load(builder.add(a_at_, builder.mul(loop.index, a_step_)), LANES)
                row = builder.add(at_, builder.mul(loop.index, step_))
                for j, total in enumerate(sums):
                    weight = flat_w.everywhere(_plus(builder, row, j, leap_), LANES)
                    builder.store(emit_fused(builder, weight, x, builder.load(total)), total)
            for j, total in enumerate(sums):
                found = builder.load(total)
                if after == "relu":
                    found = builder.select(builder.fcmp_ordered(">", found, zero), found, zero)
                elif after == "mask":
                    unit = flat_o.load(_plus(builder, o_at_, j, o_step_), LANES)
                    found = builder.select(builder.fcmp_ordered(">", unit, zero), found, zero)
                flat_z.store(found, _plus(builder, z_at_, j, z_step_))
            return context.get_dummy_value()

        kinds = [w, _INDEX, _INDEX, _INDEX, _INDEX, a, _INDEX, _INDEX, other, _INDEX, _INDEX, z, _INDEX, _INDEX]
        return types.void(*kinds), generate

    return tile


def _dot_tile(rows: int, columns: int) -> Any:
    """Make an intrinsic: out[i, j] = sum over samples of a[i, :] d[j, :], for some i and j."""

    @intrinsic
    def tile(typing_context, a, a_at, a_step, d, d_at, d_step, n, out, o_at, o_step):
        """a[i, :] is at `a_at + i a_step`, d likewise, out[i, j] at `o_at + i o_step + j`; n is a multiple of 8."""
        _need_floats(a, d, out)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            a_, a_at_, a_step_, d_, d_at_, d_step_, n_, out_, o_at_, o_step_ = args
            flat_a, flat_d = _Flat(context, builder, a, a_), _Flat(context, builder, d, d_)
            flat_o = _Flat(context, builder, out, out_)
            vector = ir.VectorType(_FLOAT, _DOT)
            sums = [[cgutils.alloca_once(builder, vector) for _ in range(columns)] for _ in range(rows)]
            for total in (total for line in sums for total in line):
                builder.store(ir.Constant(vector, None), total)
            parts = builder.udiv(n_, ir.Constant(_I64, _DOT))
            with cgutils.for_range(builder, parts, intp=_I64) as loop:
                k = builder.mul(loop.index, ir.Constant(_I64, _DOT))
                xs = [flat_a.load(builder.add(k, _plus(builder, a_at_, i, a_step_)), _DOT) for i in range(rows)]
                for j in range(columns):
                    y = flat_d.load(builder.add(k, _plus(builder, d_at_, j, d_step_)), _DOT)
                    for i, x in enumerate(xs):
                        builder.store(emit_fused(builder, x, y, builder.load(sums[i][j])), sums[i][j])
            for i, line in enumerate(sums):
                for j, total in enumerate(line):
                    place = builder.add(_plus(builder, o_at_, i, o_step_), ir.Constant(_I64, j))
                    builder.store(sum_of(builder, [builder.load(total)]), builder.gep(flat_o.start, [place]))
            return context.get_dummy_value()

        kinds = [a, _INDEX, _INDEX, d, _INDEX, _INDEX, _INDEX, out, _INDEX, _INDEX]
        return types.void(*kinds), generate

    return tile


def sum_of(builder: Any, vectors: list[Any]) -> Any:
    """Code for the sum of all numbers of vectors, widest first: what there is is folded until the next one fits."""
    total = vectors[0]
    for vector in vectors[1:]:
        total = builder.fadd(_fold(builder, total, vector.type.count), vector)
    return builder.extract_element(_fold(builder, total, 1), ir.Constant(_I32, 0))


def _fold(builder: Any, vector: Any, width: int) -> Any:
    """Code that adds the halves of a vector until it is as narrow."""
    while vector.type.count > width:
        half = vector.type.count // 2
        kind = ir.VectorType(_I32, half)
        lower = builder.shuffle_vector(vector, vector, ir.Constant(kind, list(range(half))))
        upper = builder.shuffle_vector(vector, vector, ir.Constant(kind, list(range(half, 2 * half))))
        vector = builder.fadd(lower, upper)
    return vector


@intrinsic
def _transpose_tile(typing_context, source, i0, i1, i2, i3, target, j, leap):
    """Write four rows of four numbers, which begin at i0, ..., i3, as columns: row k of the result is at j + k leap."""
    _need_floats(source, target)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        flat, out = _Flat(context, builder, source, args[0]), _Flat(context, builder, target, args[5])

        def mixed(left: Any, right: Any, places: list[int]) -> Any:
            return builder.shuffle_vector(left, right, ir.Constant(ir.VectorType(_I32, 4), places))

        a, b, c, d = (flat.load(at, 4) for at in args[1:5])
        low, high = [0, 4, 1, 5], [2, 6, 3, 7]
        upper, lower = (mixed(a, b, low), mixed(c, d, low)), (mixed(a, b, high), mixed(c, d, high))
        columns = [mixed(*pair, places) for pair in (upper, lower) for places in ([0, 1, 4, 5], [2, 3, 6, 7])]
        for k, column in enumerate(columns):
            out.store(column, _plus(builder, args[6], k, args[7]))
        return context.get_dummy_value()

    return types.void(source, *[_INDEX] * 4, target, _INDEX, _INDEX), generate


@intrinsic
def _add_tile(typing_context, source, i, target, j):
    """target[j..j+3] += source[i..i+3] as whole numbers."""
    _need_floats(source)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        steps = builder.fptosi(_Flat(context, builder, source, args[0]).load(args[1], 4), ir.VectorType(_I32, 4))
        wide = ir.VectorType(_I64, 4)
        start = context.make_array(target)(context, builder, args[2]).data
        place = builder.bitcast(builder.gep(start, [args[3]]), wide.as_pointer())
        builder.store(builder.add(builder.load(place, align=8), builder.sext(steps, wide)), place, align=8)
        return context.get_dummy_value()

    return types.void(source, _INDEX, target, _INDEX), generate


def _product(after: str) -> Callable[..., None]:
    """Make a kernel that runs tiles over all outputs of LANES samples."""
    many, one = _product_tile(_OUTPUTS, after), _product_tile(1, after)

    @njit(nogil=True)
    def product(w, at, step, leap, n, a, a_at, a_step, other, o_at, o_step, z, z_at, z_step, outputs):
        j = np.uint64(0)
        while j + np.uint64(_OUTPUTS) <= outputs:
            o, t = o_at + j * o_step, z_at + j * z_step
            many(w, at + j * leap, step, leap, n, a, a_at, a_step, other, o, o_step, z, t, z_step)
            j += np.uint64(_OUTPUTS)
        while j < outputs:
            o, t = o_at + j * o_step, z_at + j * z_step
            one(w, at + j * leap, step, leap, n, a, a_at, a_step, other, o, o_step, z, t, z_step)
            j += np.uint64(1)

    return product


_relu_product, _masked_product, _plain_product = _product("relu"), _product("mask"), _product("plain")
_dots, _dot = _dot_tile(_DOT_ROWS, _DOT_COLUMNS), _dot_tile(1, 1)


@njit(cache=True, nogil=True)
def layers_up(theta, sizes, acts, first, stride, n):
    """Fill the activations of a tower of ReLU layers from its input, for n samples (a multiple of LANES).

    `theta` holds W_1, b_1, W_2, ... and `acts` one row of `stride` numbers per unit, the input's from row `first` on.
    """
    one, step = np.uint64(1), np.uint64(stride)
    for lane in range(0, n, LANES):
        at, row = np.uint64(0), np.uint64(first)
        for k in range(sizes.size - 1):
            a, b = np.uint64(sizes[k]), np.uint64(sizes[k + 1])
            x, z = row * step + np.uint64(lane), (row + a) * step + np.uint64(lane)
            _relu_product(theta, at, b, one, a, acts, x, step, theta, at + a * b, one, acts, z, step, b)
            at += (a + one) * b
            row += a


@njit(cache=True, nogil=True)
def layers_down(theta, sizes, acts, back, first, stride, n):
    """Fill the gradients of all units in `back` from those of the last layer, which are zero where it is off."""
    one, step = np.uint64(1), np.uint64(stride)
    for lane in range(0, n, LANES):
        at, row = np.uint64(0), np.uint64(first)
        for k in range(sizes.size - 1):
            at += np.uint64((sizes[k] + 1) * sizes[k + 1])
            row += np.uint64(sizes[k])
        for k in range(sizes.size - 2, -1, -1):
            a, b = np.uint64(sizes[k]), np.uint64(sizes[k + 1])
            at -= (a + one) * b
            d, x = row * step + np.uint64(lane), (row - a) * step + np.uint64(lane)
            if k > 0:
                _masked_product(theta, at, one, b, b, back, d, step, acts, x, step, back, x, step, a)
            else:
                _plain_product(theta, at, one, b, b, back, d, step, acts, x, step, back, x, step, a)
            row -= a


@njit(cache=True, nogil=True)
def layers_gradient(acts, back, sizes, grad, first, stride, n):
    """Write the gradients of W_1, b_1, W_2, ... into `grad`: sums over n samples (a multiple of LANES)."""
    step, count = np.uint64(stride), np.uint64(n)
    at, row = np.uint64(0), np.uint64(first)
    for k in range(sizes.size - 1):
        a, b = np.uint64(sizes[k]), np.uint64(sizes[k + 1])
        whole_i, whole_j = a - a % np.uint64(_DOT_ROWS), b - b % np.uint64(_DOT_COLUMNS)
        for i in range(np.uint64(0), a):
            x = (row + i) * step
            if i < whole_i and i % np.uint64(_DOT_ROWS) == 0:
                for j in range(np.uint64(0), whole_j, np.uint64(_DOT_COLUMNS)):
                    _dots(acts, x, step, back, (row + a + j) * step, step, count, grad, at + i * b + j, b)
            for j in range(whole_j if i < whole_i else np.uint64(0), b):
                _dot(acts, x, step, back, (row + a + j) * step, step, count, grad, at + i * b + j, b)
        for j in range(np.uint64(0), b):
            line = (row + a + j) * step
            grad[at + a * b + j] = _total(back[line : line + count])
        at += (a + np.uint64(1)) * b
        row += a


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "nsz"})
def _total(values):
    total = np.float32(0)
    for k in range(values.size):
        total += values[k]
    return total


@njit(cache=True, nogil=True)
def rows_to_columns(table, starts, width, columns, stride, n):
    """Write rows of a flat table, which begin at starts[0..n-1] (n a multiple of 4), as columns [width, stride]."""
    step = np.uint64(stride)
    for k in range(np.uint64(0), np.uint64(n), np.uint64(4)):
        a, b, c, d = starts[k], starts[k + np.uint64(1)], starts[k + np.uint64(2)], starts[k + np.uint64(3)]
        f = np.uint64(0)
        while f + np.uint64(4) <= np.uint64(width):
            _transpose_tile(table, a + f, b + f, c + f, d + f, columns, f * step + k, step)
            f += np.uint64(4)
        while f < np.uint64(width):
            for j in range(np.uint64(4)):
                columns[f * step + k + j] = table[starts[k + j] + f]
            f += np.uint64(1)


@njit(cache=True, nogil=True)
def columns_to_rows(columns, stride, width, lines, n):
    """Write the first n columns (a multiple of 4) of [width, stride] as rows [n, width] into flat `lines`."""
    step, wide = np.uint64(stride), np.uint64(width)
    for k in range(np.uint64(0), np.uint64(n), np.uint64(4)):
        f = np.uint64(0)
        while f + np.uint64(4) <= wide:
            i = f * step + k
            _transpose_tile(columns, i, i + step, i + step + step, i + np.uint64(3) * step, lines, k * wide + f, wide)
            f += np.uint64(4)
        while f < wide:
            for j in range(np.uint64(4)):
                lines[(k + j) * wide + f] = columns[f * step + k + j]
            f += np.uint64(1)


@njit(cache=True, nogil=True)
def add_whole(steps, i, sums, j, width):
    """Add `width` whole numbers, held as floats from steps[i] on, to the int64 from sums[j] on; both are flat."""
    f, i, j = np.uint64(0), np.uint64(i), np.uint64(j)
    while f + np.uint64(4) <= np.uint64(width):
        _add_tile(steps, i + f, sums, j + f)
        f += np.uint64(4)
    while f < np.uint64(width):
        sums[j + f] += np.int64(np.int32(steps[i + f]))
        f += np.uint64(1)
