"""Flush-to-zero for the calling thread.

Confident predictions make tiny gradients; squared by Adam they become denormal numbers, which make training several
times slower the longer it runs. Every kernel family that uses Adam calls this at its entry, in each worker thread,
so that results do not depend on which thread ran. Other processors than x86 keep their own rule.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

_FTZ_AND_DAZ = 0x8040


@intrinsic
def _set_flags(typing_context: Any) -> tuple[Any, Callable[..., Any]]:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if platform.machine() not in ("x86_64", "AMD64"):
            return context.get_dummy_value()
        i32 = ir.IntType(32)
        slot = cgutils.alloca_once(builder, i32)
        pointer = builder.bitcast(slot, ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer()])
        builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse.stmxcsr"), [pointer])
        builder.store(builder.or_(builder.load(slot), ir.Constant(i32, _FTZ_AND_DAZ)), slot)
        builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse.ldmxcsr"), [pointer])
        return context.get_dummy_value()

    return types.void(), generate


@njit(cache=True)
def flush_denormals() -> None:
    """Treat denormal numbers as zero in this thread from now on."""
    _set_flags()
