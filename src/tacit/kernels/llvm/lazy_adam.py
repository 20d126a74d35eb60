"""Dense Adam on rows that are read now and then: a row makes the steps it has missed at once, when it is next read.

Dense Adam moves a row at every step, whether it has a gradient or not. But between two gradients its moments only
decay, m by b1 and v by b2 a step. So all those steps go in one direction, and what is due is a number times a vector.
With t0 the step of the last gradient, after which m and v were what they are:

    w <- w - sum over steps t = t0, t0 + 1, ... of pace_t (b1 / sqrt(b2))^(t - t0) m / (sqrt(v) + eps_t)
    pace_t = rate sqrt(1 - b2^t) / (1 - b1^t),   eps_t = eps sqrt(1 - b2^t) / sqrt(b2)^(t - t0)

`tail[t]` is the sum of the weights of m from t on without end, so those of the steps from t0 until before t sum to
tail[t0] - (b1 / sqrt(b2))^(t - t0) tail[t]. The work is in proportion to the samples, not to rows times steps.

One thing is not exact: in the place of the eps_t stands their mean by these weights, for all the steps that are due.
The error is of the second order in eps_t / sqrt(v). After 90 steps with gradients of 1e-4 the most that a number
differs is .02 % of the longest move, with gradients of 1e-6 .2 % (`tests/unit/kernels/llvm/test_lazy_adam.py`). Numbers
that hardly move have the largest relative error: a single gradient of 1e-8 moves a number by 13 % too much.

Rows stand in a flat array of float32, each as w, m and v one after the other; their width is that of the rows of
`items` (`rows_of`), which all intrinsics take for that reason. Offsets are in numbers and not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from tacit.kernels.adam import BETA1, BETA2, EPSILON, corrections
from tacit.kernels.llvm.rowvec import RowCode, broadcast, chunks
from tacit.kernels.llvm.tiles import emit_fused, sum_of

_FLOAT, _I64 = ir.FloatType(), ir.IntType(64)
_G1, _G2 = ir.Constant(_FLOAT, float(np.float32(1 - BETA1))), ir.Constant(_FLOAT, float(np.float32(1 - BETA2)))
_TERMS = 512  # of the sum without end: what follows is below the last bit
_INDEX = types.uint64
STATE = 3  # w, m and v
_LOW = np.uint64(0xFFFFFFFF)
_HAS_GRADIENT = np.int64(1 << 32)  # a mark: the step from bit 33 on, this bit, the place of the sample below it


class AdamSchedule(NamedTuple):
    """What the steps of a round have in common; steps are numbered from 0."""

    rate: NDArray[np.float32]  # with `root`: the corrections of a step made at once, for `adam_step`
    root: NDArray[np.float32]
    tail: NDArray[np.float64]  # [steps, 2] the sums without end from a step on: of weights, of weights times eps_t
    fade: NDArray[np.float64]  # [gaps, 2] how much less they count after a gap
    fade_m: NDArray[np.float32]
    fade_v: NDArray[np.float32]


def adam_schedule(steps: int, learning_rate: float) -> AdamSchedule:
    """Return the pace of at least so many steps from the first one on; its numbers do not depend on how many."""
    return _adam_schedule((1 << steps.bit_length()) + 1, learning_rate)


@lru_cache(maxsize=8)
def _adam_schedule(n: int, learning_rate: float) -> AdamSchedule:
    t, gap = np.arange(1, n + _TERMS + 1, dtype=np.float64), np.arange(n, dtype=np.float64)
    root = np.sqrt(1 - BETA2**t)
    each = (learning_rate * root / (1 - BETA1**t))[:, None] * np.stack([np.ones(len(t)), EPSILON * root], axis=1)
    tail, slower = np.zeros((n, 2)), np.array([BETA1 / np.sqrt(BETA2), BETA1 / BETA2])
    for k in range(_TERMS, -1, -1):
        tail = each[k : k + n] + slower * tail
    fades = (BETA1**gap).astype(np.float32), (BETA2**gap).astype(np.float32)
    return AdamSchedule(*corrections(0, n, learning_rate), tail, slower ** gap[:, None], *fades)


@njit(inline="always")
def due(pace, last, step):
    """Return the weight of the steps from `last` until before `step`, and the mean of their eps_t."""
    weight = pace.tail[last, 0] - pace.fade[step - last, 0] * pace.tail[step, 0]
    slack = pace.tail[last, 1] - pace.fade[step - last, 1] * pace.tail[step, 1]
    return np.float32(weight), np.float32(slack + 1e-30) / np.float32(weight + 1e-25)  # of no steps: 0 and not 0


class BatchRows(NamedTuple):
    """What a batch does with rows; places are those of samples in the batch."""

    first: NDArray[np.int32]  # places of samples whose row has not been in the batch before them
    again: NDArray[np.int64]  # ... and of all others; above bit 32 the place of the first sample of the same row
    known: NDArray[np.int64]  # slots of the rows that have had a gradient before; above bit 32 the step of the last one


@njit(cache=True, nogil=True)
def room_for(batch):
    """Return room for batches of that many samples."""
    return BatchRows(np.empty(batch + 1, np.int32), np.empty(batch + 1, np.int64), np.empty(batch + 1, np.int64))


@njit(inline="always")
def not_before(step):
    """Return a mark for `when`: a row with moments that has made all steps before `step`, without a gradient in it."""
    return np.int64(step) << 33


@njit(inline="always")
def step_of(mark):
    """Return the step of a mark in `when`."""
    return mark >> 33


@njit(inline="always")
def pair(again):
    """Return the places of the first sample of a row and of another one, from an entry of `BatchRows.again`."""
    return np.uint64(again) >> np.uint64(32), np.uint64(again) & _LOW


@njit(cache=True, nogil=True)
def sort_out(samples, step, when, batch):
    """Fill `batch`; return how many of (first, again, known) there are.

    `when` [slots] holds the step of a row's last gradient and the place of the sample, or -1; this step is put there.
    """
    stamp = not_before(step) | _HAS_GRADIENT
    n_first, n_again, n_known = np.uint64(0), np.uint64(0), np.uint64(0)
    for k in range(samples.size):
        slot = np.uint64(samples[k] >> np.uint32(1))
        was = when[slot]
        is_again, is_known = was >= stamp, was >= 0
        when[slot] = was if is_again else stamp | k
        batch.first[n_first] = k
        batch.again[n_again] = was << 32 | k
        batch.known[n_known] = step_of(was) << 32 | np.int64(slot)
        n_first += np.uint64(not is_again)
        n_again += np.uint64(is_again)
        n_known += np.uint64(is_known and not is_again)
    return n_first, n_again, n_known


@njit(cache=True, nogil=True, error_model="numpy")
def catch_up(state, items, width, batch, n_known, step, pace):
    """Let the known rows of a batch make the steps that are due before `step`."""
    for k in range(n_known):
        last, slot = batch.known[k] >> 32, np.uint64(batch.known[k]) & _LOW
        gap, at = step - last, slot * np.uint64(STATE * width)
        weight, epsilon = due(pace, last, step)
        make_due(state, at, items, weight, epsilon, pace.fade_m[gap], pace.fade_v[gap])


@njit(cache=True, nogil=True, error_model="numpy")
def catch_up_all(state, items, width, when, step, pace):
    """Let all rows make the steps that are due before `step`; their moments are then as `step` will find them."""
    for slot in range(when.size):
        last = step_of(when[slot])
        gap, at = step - last, np.uint64(slot) * np.uint64(STATE * width)
        weight, epsilon = due(pace, last, step)
        make_due(state, at, items, weight, epsilon, pace.fade_m[gap], pace.fade_v[gap])


class _RowState:
    """Code for w, m and v of one row, each as a list of vectors. For intrinsics only."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any, at: Any, width: int) -> None:
        self.builder, self.at, self.width = builder, at, width
        self.start = context.make_array(kind)(context, builder, value).data

    def _places(self, part: int) -> Iterator[Any]:
        for offset, count in chunks(self.width):
            index = self.builder.add(self.at, ir.Constant(_I64, part * self.width + offset))
            yield self.builder.bitcast(self.builder.gep(self.start, [index]), ir.VectorType(_FLOAT, count).as_pointer())

    def load(self, part: int) -> list[Any]:
        return [self.builder.load(place, align=4) for place in self._places(part)]

    def store(self, part: int, vectors: list[Any]) -> None:
        for place, vector in zip(self._places(part), vectors, strict=True):
            self.builder.store(vector, place, align=4)


def _call(builder: Any, name: str, vector: Any) -> Any:
    """Code for a function of every number of a vector."""
    kind = ir.FunctionType(vector.type, [vector.type])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.v{vector.type.count}f32")
    return builder.call(function, [vector])


def _move(builder: Any, state: _RowState, weight: Any, epsilon: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """Code for w after the steps that are due, with the moments as they are."""
    w, m, v = state.load(0), state.load(1), state.load(2)
    back = builder.fneg(weight)
    for k, (w_k, m_k, v_k) in enumerate(zip(w, m, v, strict=True)):
        count = w_k.type.count
        root = builder.fadd(_call(builder, "sqrt", v_k), broadcast(builder, epsilon, count))
        w[k] = emit_fused(builder, broadcast(builder, back, count), builder.fdiv(m_k, root), w_k)
    return w, m, v


def _width(items: Any) -> int:
    return int(items.dtype.size // 4)


EmittedCode = tuple[Any, Callable[..., Any]]


@intrinsic
def start_row(typing_context: Any, state: Any, at: Any, items: Any, item: Any) -> EmittedCode:
    """Put a row of `items` at `at`, with moments of zero."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        row = _RowState(context, builder, state, args[0], args[1], _width(items))
        w = RowCode(context, builder, items, args[2], args[3]).load()
        row.store(0, w)
        for part in (1, 2):
            row.store(part, [ir.Constant(vector.type, None) for vector in w])
        return context.get_dummy_value()

    return types.void(state, _INDEX, items, _INDEX), generate


@intrinsic
def make_due(
    typing_context: Any, state: Any, at: Any, items: Any, weight: Any, epsilon: Any, fade_m: Any, fade_v: Any
) -> EmittedCode:
    """Let the row at `at` make the steps of a weight, and its moments fade."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        row = _RowState(context, builder, state, args[0], args[1], _width(items))
        w, m, v = _move(builder, row, args[3], args[4])
        row.store(0, w)
        row.store(1, [builder.fmul(x, broadcast(builder, args[5], x.type.count)) for x in m])
        row.store(2, [builder.fmul(x, broadcast(builder, args[6], x.type.count)) for x in v])
        return context.get_dummy_value()

    return types.void(state, _INDEX, items, *[types.float32] * 4), generate


@intrinsic
def leave_steps(
    typing_context: Any, state: Any, at: Any, items: Any, item: Any, weight: Any, epsilon: Any, factor: Any, limit: Any
) -> EmittedCode:
    """Make the last steps that are due, and put in the row's place by how many steps of the grid it has moved.

    Returns whether a number of steps is beyond the limit, or is none.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        row = _RowState(context, builder, state, args[0], args[1], _width(items))
        w, _, _ = _move(builder, row, args[4], args[5])
        beyond = ir.Constant(ir.IntType(1), 0)
        for k, before in enumerate(RowCode(context, builder, items, args[2], args[3]).load()):
            count = before.type.count
            by = builder.fmul(builder.fsub(w[k], before), broadcast(builder, args[6], count))
            w[k] = _call(builder, "rint", by)
            far = builder.fcmp_unordered(">", _call(builder, "fabs", w[k]), broadcast(builder, args[7], count))
            bits = builder.bitcast(far, ir.IntType(count))
            beyond = builder.or_(beyond, builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0)))
        row.store(0, w)
        return beyond

    return types.boolean(state, _INDEX, items, _INDEX, *[types.float32] * 4), generate


@intrinsic
def add_steps(typing_context: Any, state: Any, at: Any, items: Any, sums: Any, begin: Any) -> EmittedCode:
    """Add the whole numbers of a row at `at` to the int64 that begin at sums[begin]."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        steps = _RowState(context, builder, state, args[0], args[1], _width(items)).load(0)
        start = context.make_array(sums)(context, builder, args[3]).data
        for (offset, count), vector in zip(chunks(_width(items)), steps, strict=True):
            wide = ir.VectorType(_I64, count)
            index = builder.add(args[4], ir.Constant(_I64, offset))
            place = builder.bitcast(builder.gep(start, [index]), wide.as_pointer())
            whole = builder.sext(builder.fptosi(vector, ir.VectorType(ir.IntType(32), count)), wide)
            builder.store(builder.add(builder.load(place, align=8), whole), place, align=8)
        return context.get_dummy_value()

    return types.void(state, _INDEX, items, sums, _INDEX), generate


@intrinsic
def dot_row(typing_context: Any, state: Any, at: Any, items: Any, c: Any) -> EmittedCode:
    """Return c . w."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        width, zero = _width(items), ir.Constant(_I64, 0)
        w = _RowState(context, builder, state, args[0], args[1], width).load(0)
        weights = _RowState(context, builder, c, args[3], zero, width).load(0)
        return sum_of(builder, [builder.fmul(x, y) for x, y in zip(w, weights, strict=True)])

    return types.float32(state, _INDEX, items, c), generate


def _take_in(builder: Any, row: _RowState, gradient: list[Any]) -> None:
    """Code that adds a gradient to moments which have faded already."""
    m, v = row.load(1), row.load(2)
    for k, g in enumerate(gradient):
        first, second = (broadcast(builder, part, g.type.count) for part in (_G1, _G2))
        m[k] = emit_fused(builder, first, g, m[k])
        v[k] = emit_fused(builder, builder.fmul(second, g), g, v[k])
    row.store(1, m)
    row.store(2, v)


@intrinsic
def take_in(typing_context: Any, state: Any, at: Any, items: Any, lines: Any, begin: Any) -> EmittedCode:
    """Take the gradient that begins at lines[begin] into the moments of a row."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        gradient = _RowState(context, builder, lines, args[3], args[4], _width(items)).load(0)
        _take_in(builder, _RowState(context, builder, state, args[0], args[1], _width(items)), gradient)
        return context.get_dummy_value()

    return types.void(state, _INDEX, items, lines, _INDEX), generate


@intrinsic
def take_product(typing_context: Any, state: Any, at: Any, items: Any, r: Any, c: Any, total: Any) -> EmittedCode:
    """Take the gradient r c into the moments of a row, and add r w to `total`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        width, zero = _width(items), ir.Constant(_I64, 0)
        row = _RowState(context, builder, state, args[0], args[1], width)
        weights = _RowState(context, builder, c, args[4], zero, width).load(0)
        sums = _RowState(context, builder, total, args[5], zero, width)
        each = [broadcast(builder, args[3], x.type.count) for x in weights]
        added = zip(each, row.load(0), sums.load(0), strict=True)
        sums.store(0, [emit_fused(builder, *parts) for parts in added])
        _take_in(builder, row, [builder.fmul(r_k, x) for r_k, x in zip(each, weights, strict=True)])
        return context.get_dummy_value()

    return types.void(state, _INDEX, items, types.float32, c, total), generate
