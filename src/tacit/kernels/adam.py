"""Adam with the semantics of a dense optimiser, paid for only where something moves.

One step with gradient g, number t counted from 1 (the two corrections are float64 scalars, rounded once):

    m <- b1 m + (1 - b1) g      v <- b2 v + (1 - b2) g^2
    w <- w - lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)

A row of an embedding table that is not in a batch has g = 0 and still moves while its m is not zero. Moving all rows at
every batch would stream the whole table through memory, so each row remembers the step it is at (`last`), and the steps
it missed are replayed when it is next needed: the same operations in the same order, hence the same bits as moving all.
A row that never had a gradient has m = v = 0, does not move and is never visited.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

BETA1 = np.float32(0.9)
BETA2 = np.float32(0.999)
GAIN1 = np.float32(0.1)
GAIN2 = np.float32(0.001)
EPSILON = np.float32(1e-8)


class Vector(NamedTuple):
    """Parameters that all move at every step, with their moments and gradient, each [P]."""

    w: NDArray[np.float32]
    m: NDArray[np.float32]
    v: NDArray[np.float32]
    g: NDArray[np.float32]


class Table(NamedTuple):
    """An embedding table with its moments and gradient, each [R, D]; g is zero between batches.

    `last` [R] is the step of the current epoch that a row is at, 0 before the first; -1: it never had a gradient.
    """

    w: NDArray[np.float32]
    m: NDArray[np.float32]
    v: NDArray[np.float32]
    g: NDArray[np.float32]
    last: NDArray[np.int32]


def vector(w: NDArray[np.float32]) -> Vector:
    """Return parameters at rest; `w` itself is what will move."""
    return Vector(w, np.zeros_like(w), np.zeros_like(w), np.zeros_like(w))


def table(w: NDArray[np.float32]) -> Table:
    """Return an embedding table at rest; `w` itself is what will move."""
    return Table(w, np.zeros_like(w), np.zeros_like(w), np.zeros_like(w), np.full(len(w), -1, np.int32))


def corrections(
    done: int, steps: int, learning_rate: float
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the factors of m and of sqrt(v) for the steps after `done`: entry k belongs to step done + k."""
    t = done + np.arange(steps + 1, dtype=np.float64)
    t[0] = max(t[0], 1.0)  # entry 0 is never used
    rate = learning_rate / (1.0 - 0.9**t)
    root = 1.0 / np.sqrt(1.0 - 0.999**t)
    return rate.astype(np.float32), root.astype(np.float32)


@njit(cache=True, nogil=True, error_model="numpy")
def adam_step(p, rate, root):
    """Move all parameters of a `Vector` by one step along `p.g`."""
    w, m, v, g = p.w, p.m, p.v, p.g
    for k in range(w.size):
        m[k] = BETA1 * m[k] + GAIN1 * g[k]
        v[k] = BETA2 * v[k] + GAIN2 * g[k] * g[k]
        w[k] -= rate * m[k] / (np.sqrt(v[k]) * root + EPSILON)


@njit(cache=True, nogil=True, error_model="numpy")
def adam_row(p, r, rate, root):
    """Move row r of a `Table` by one step along its gradient, and clear that."""
    w, m, v, g = p.w[r], p.m[r], p.v[r], p.g[r]
    for k in range(w.size):
        m[k] = BETA1 * m[k] + GAIN1 * g[k]
        v[k] = BETA2 * v[k] + GAIN2 * g[k] * g[k]
        w[k] -= rate * m[k] / (np.sqrt(v[k]) * root + EPSILON)
        g[k] = np.float32(0)


def _idle_lanes(lanes: int) -> Any:
    """Build the replay of idle steps for `lanes` neighbours at once, kept in registers from the first to the last."""

    @intrinsic
    def idle(typing_context: Any, w: Any, m: Any, v: Any, at: Any, rate: Any, root: Any, first: Any, stop: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = ir.VectorType(ir.FloatType(), lanes)
            sqrt = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(kind, [kind]), f"llvm.sqrt.v{lanes}f32"
            )

            def data(position: int) -> Any:
                array = signature.args[position]
                return context.make_array(array)(context, builder, args[position]).data

            def splat(scalar: Any) -> Any:
                one = builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0))
                mask = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
                return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), mask)

            def constant(number: np.float32) -> Any:
                return splat(ir.Constant(ir.FloatType(), float(number)))

            slots = []  # local copies, which the optimiser turns into registers
            for position in range(3):
                pointer = builder.bitcast(builder.gep(data(position), [args[3]]), kind.as_pointer())
                slot = cgutils.alloca_once(builder, kind)
                loaded = builder.load(pointer)
                loaded.align = 4
                builder.store(loaded, slot)
                slots.append((pointer, slot))
            (_, w_slot), (_, m_slot), (_, v_slot) = slots
            beta1, beta2, epsilon = constant(BETA1), constant(BETA2), constant(EPSILON)
            with cgutils.for_range(builder, args[7], start=args[6]) as loop:
                moved = builder.fmul(builder.load(m_slot), beta1)
                spread = builder.fmul(builder.load(v_slot), beta2)
                scale = splat(builder.load(builder.gep(data(4), [loop.index])))
                width = splat(builder.load(builder.gep(data(5), [loop.index])))
                below = builder.fadd(builder.fmul(builder.call(sqrt, [spread]), width), epsilon)
                change = builder.fdiv(builder.fmul(scale, moved), below)
                builder.store(builder.fsub(builder.load(w_slot), change), w_slot)
                builder.store(moved, m_slot)
                builder.store(spread, v_slot)
            for pointer, slot in slots:
                builder.store(builder.load(slot), pointer).align = 4
            return context.get_dummy_value()

        return types_void(w, m, v, at, rate, root, first, stop), generate

    return idle


def types_void(*kinds: Any) -> Any:
    """Return the signature of a procedure over these types."""
    from numba import types

    return types.void(*kinds)


_idle8 = _idle_lanes(8)
_idle4 = _idle_lanes(4)


@njit(cache=True, nogil=True, error_model="numpy")
def idle_row(p, r, rate, root, first, stop):
    """Move row r of a `Table` by the steps first..stop-1, all without gradient."""
    width = p.w.shape[1]
    at = np.int64(r) * width
    end = at + width
    first, stop = np.int64(first), np.int64(stop)
    while at + 8 <= end:
        _idle8(p.w, p.m, p.v, at, rate, root, first, stop)
        at += 8
    if at + 4 <= end:
        _idle4(p.w, p.m, p.v, at, rate, root, first, stop)
        at += 4
    for k in range(at - np.int64(r) * width, width):
        w, m, v = p.w[r, k], p.m[r, k], p.v[r, k]
        for t in range(first, stop):
            m *= BETA1
            v *= BETA2
            w -= rate[t] * m / (np.sqrt(v) * root[t] + EPSILON)
        p.w[r, k], p.m[r, k], p.v[r, k] = w, m, v


@njit(cache=True, nogil=True, error_model="numpy")
def wake_row(p, r, rate, root, step):
    """Bring row r of a `Table` to where it stands before `step`, so that it can be read and given a gradient."""
    last = p.last[r]
    if last < 0:
        p.last[r] = step - 1
    elif last < step - 1:
        idle_row(p, r, rate, root, last + 1, step)
        p.last[r] = step - 1


@njit(cache=True, nogil=True, error_model="numpy")
def wake_all(p, rate, root, step):
    """Bring all rows of a `Table` to where they stand after `step`, and start counting anew."""
    for r in range(p.w.shape[0]):
        if p.last[r] >= 0:
            wake_row(p, r, rate, root, step + 1)
            p.last[r] = 0
