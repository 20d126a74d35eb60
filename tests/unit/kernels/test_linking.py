"""A compiled kernel shows nothing of the functions it has linked in."""

from __future__ import annotations

import llvmlite.binding as llvm
import numpy as np
import pytest
from numba import njit

import tacit.kernels  # noqa: F401 - installs the linking under test


@njit(fastmath=True)
def called(values):
    total = np.float32(0)
    for k in range(values.size):
        total += np.sqrt(values[k]) * values[k]
    order = np.argsort(values)
    return total + values[order[0]]


@njit
def middle(values):
    return called(values) + called(values[1:])


@njit
def outer(values):
    return middle(values) * called(values[2:]) + middle(values[3:])


@pytest.mark.slow
def test_what_a_kernel_calls_is_private_to_it() -> None:
    values = np.linspace(1, 2, 50).astype(np.float32)
    expected = outer.py_func(values)
    assert np.isclose(outer(values), expected)
    own = outer.overloads[outer.signatures[0]].library._final_module
    defined = [function for function in own.functions if not function.is_declaration]
    copies = [function for function in defined if function.name.startswith("_ZN") and "outer" not in function.name]
    assert copies, "nothing was left to link: the test needs functions that are not inlined"
    assert {function.linkage for function in copies} == {llvm.Linkage.internal}
    shown = [function for function in defined if function.linkage == llvm.Linkage.external]
    assert shown
    assert all("outer" in function.name for function in shown)
