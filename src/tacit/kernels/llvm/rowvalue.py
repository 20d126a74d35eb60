"""A row in registers as a value: what a loop carries from step to step without a way through memory.

numba reads and writes memory in every step, because it cannot know that nothing else is written there. A chain of
steps on one row then waits for each of these stores to be read again.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model

from tacit.kernels.llvm.rowvec import RowCode, chunks


class RowValue(types.Type):
    """A row of so many floats."""

    def __init__(self, length: int) -> None:
        self.length = length
        super().__init__(name=f"RowValue({length})")


@register_model(RowValue)
class _RowValueModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: RowValue) -> None:
        vectors = [ir.VectorType(ir.FloatType(), width) for _, width in chunks(kind.length)]
        super().__init__(manager, kind, ir.LiteralStructType(vectors))


def vectors_of(builder: Any, row: Any) -> list[Any]:
    """Code for the vectors of a row."""
    return [builder.extract_value(row, at) for at in range(len(row.type.elements))]


def join_vectors(builder: Any, vectors: list[Any]) -> Any:
    """Code for a row of these vectors."""
    row = ir.Constant(ir.LiteralStructType([vector.type for vector in vectors]), ir.Undefined)
    for at, vector in enumerate(vectors):
        row = builder.insert_value(row, vector, at)
    return row


@intrinsic
def load_row(typing_context, table, r):
    """Return a row of a table."""

    def generate(context, builder, signature, args):
        return join_vectors(builder, RowCode(context, builder, table, *args).load())

    return RowValue(table.dtype.size // 4)(table, types.uint64), generate


@intrinsic
def store_row(typing_context, table, r, row):
    """Put a row into a table."""

    def generate(context, builder, signature, args):
        RowCode(context, builder, table, *args[:2]).store(vectors_of(builder, args[2]))
        return context.get_dummy_value()

    return types.void(table, types.uint64, row), generate
