"""How it is learnt: one file per method.

The package can be called: `tacit.methods()` lists all methods, also once a method was imported. Python then finds this
package under the name of the function.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tacit.methods.registry import Entry


class _MethodsPackage(ModuleType):
    def __call__(self) -> dict[str, Entry]:
        """Return every known method by name: see `registry.methods`."""
        from tacit.methods.registry import methods

        return methods()


sys.modules[__name__].__class__ = _MethodsPackage
