"""Every compiled kernel keeps its own copies of the functions it calls, so that its bits do not depend on the process.

numba links what a kernel calls into the kernel's object, optimises the copy there once more, and leaves its name
visible and weak. A process that has loaded the called function by itself before then runs that one; a process that
loads the kernel alone from the cache runs the copy. Both are right, but the copy may add in another order, so a run
that compiled (the first one) and a run that loaded from the cache gave other bits. Here copies become private to their
object as soon as they are optimised: always the copy runs, which is what a warm cache has always run.

What a kernel passes on to its own callers goes through bitcode once, as it would from the cache. Bitcode does not keep
in which order the uses of a value were made, and passes that follow this order would see a difference.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen


class SelfContainedLibrary(JITCodeLibrary):
    """The code of one compiled function, of which nothing but the function itself can be seen from outside."""

    def _optimize_final_module(self) -> None:
        super()._optimize_final_module()
        for function in self._final_module.functions:
            is_copy = not function.is_declaration and function.linkage == llvm.Linkage.linkonce_odr
            if is_copy and function.name.startswith("_ZN"):  # names of others, as NRT_incref, are known to LLVM passes
                function.linkage = "internal"

    def _get_module_for_linking(self) -> Any:
        if self._shared_module is None:
            self._shared_module = llvm.parse_bitcode(super()._get_module_for_linking().as_bitcode())
        return self._shared_module


def install() -> None:
    """Make numba build such libraries from now on, in this process."""
    JITCPUCodegen._library_class = SelfContainedLibrary
