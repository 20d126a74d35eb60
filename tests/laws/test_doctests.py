"""Examples in docstrings hold, in every module that has one."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import tacit

ROOT = Path(tacit.__file__).parent
MODULES = sorted(
    ".".join(("tacit", *path.relative_to(ROOT).with_suffix("").parts))
    for path in ROOT.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name: str) -> None:
    ran = doctest.testmod(importlib.import_module(name.removesuffix(".__init__")))
    assert ran.attempted
    assert not ran.failed
