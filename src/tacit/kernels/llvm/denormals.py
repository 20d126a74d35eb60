"""Flush-to-zero, for as long as a kernel runs.

Confident predictions make tiny gradients; squared by Adam they become denormal numbers, which make training several
times slower the longer it runs. Every kernel family that uses Adam flushes them at its entry, in each worker thread, so
that results do not depend on which thread ran. At its end it restores the thread's own arithmetic. Other processors
than x86 keep their own rule.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

_FTZ_AND_DAZ = 0x8040
_I32 = ir.IntType(32)
_IS_X86 = platform.machine() in ("x86_64", "AMD64")


def _control(builder: Any, name: str, slot: Any) -> None:
    """Code that stores the thread's control word into a slot, or loads it from there."""
    pointer = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [pointer])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.sse.{name}")
    builder.call(function, [builder.bitcast(slot, pointer)])


@intrinsic
def _read(typing_context: Any) -> tuple[Any, Callable[..., Any]]:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if not _IS_X86:
            return ir.Constant(_I32, 0)
        slot = cgutils.alloca_once(builder, _I32)
        _control(builder, "stmxcsr", slot)
        return builder.load(slot)

    return types.uint32(), generate


@intrinsic
def _write(typing_context: Any, word: Any) -> tuple[Any, Callable[..., Any]]:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if _IS_X86:
            slot = cgutils.alloca_once(builder, _I32)
            builder.store(args[0], slot)
            _control(builder, "ldmxcsr", slot)
        return context.get_dummy_value()

    return types.void(types.uint32), generate


@njit(cache=True)
def flush_denormals():
    """Treat denormal numbers as zero in this thread from now on; return what `restore_denormals` needs to end that."""
    before = _read()
    _write(before | _FTZ_AND_DAZ)
    return before


@njit(cache=True)
def restore_denormals(before):
    """Give this thread the arithmetic back that it had before `flush_denormals`."""
    _write(before)


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Treat denormal numbers as zero within a block."""
    before = flush_denormals()
    try:
        yield
    finally:
        restore_denormals(before)
