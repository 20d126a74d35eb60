"""A fast exp for float32 kernels: a polynomial of degree 5, relative error below 1e-6.

numba calls the scalar `expf` of the C library, which costs more than the rest of a BPR step.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

_F = np.float32
_LOG2_E = _F(1.4426950408889634)


@intrinsic
def _float_of_bits(typing_context, bits):
    """Read a 32-bit pattern as a float32."""

    def generate(context, builder, signature, args):
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), generate


@intrinsic
def fused_multiply_add(typing_context, a, b, c):
    """Return a b + c, rounded once: always, where the compiler alone would do so here and not there."""

    def generate(context, builder, signature, args):
        kind = ir.FloatType()
        function = ir.FunctionType(kind, [kind] * 3)
        return builder.call(cgutils.get_or_insert_function(builder.module, function, "llvm.fma.f32"), args)

    return types.float32(types.float32, types.float32, types.float32), generate


@njit(inline="always")
def exp32(x):
    """Return e^x in float32; x is held within +-87, so the result is finite and above zero. NaN stays NaN."""
    y = x * _LOG2_E
    y = _F(-125.5) if y < _F(-125.5) else y
    y = _F(125.5) if y > _F(125.5) else y
    whole = np.floor(y + _F(0.5))
    f = y - whole  # 2^y = 2^whole 2^f, f in [-1/2, 1/2]
    p = _F(0.00132764718)
    p = fused_multiply_add(p, f, _F(0.00967554133))
    p = fused_multiply_add(p, f, _F(0.0555071327))
    p = fused_multiply_add(p, f, _F(0.240221197))
    p = fused_multiply_add(p, f, _F(0.693146967))
    p = fused_multiply_add(p, f, _F(1.00000007))
    return p * _float_of_bits((np.int32(whole) + np.int32(127)) << np.int32(23))


@njit(inline="always")
def sigmoid_complement(x):
    """Return 1 / (1 + e^x): how wrong a preference of x still is."""
    return _F(1.0) / (_F(1.0) + exp32(x))
