"""A function that needs more than seven things needs an object."""

from __future__ import annotations

from pathlib import Path

import pytest

import parameters

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
def test_no_function_outside_the_kernels_takes_too_many_parameters() -> None:
    assert parameters.problems(ROOT / "src" / "tacit") == []


def test_the_check_itself_counts(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    eight = "a, b, /, c, d, *e, f, g, **h"
    (tmp_path / "kernels" / "loops.py").write_text(f"def f({eight}): ...\n")
    (tmp_path / "rooms.py").write_text(
        f"class A:\n    def f(self, {eight}): ...\n    async def g(self, a, b, c, d, e, f, g): ...\n"
        f"def outer():\n    def inner({eight}): ...\n"
    )
    found = parameters.problems(tmp_path, frozenset({"rooms.py: outer.inner", "rooms.py: gone"}))
    assert len(found) == 2
    assert "rooms.py:2: A.f takes 8 parameters" in found[0]
    assert "'rooms.py: gone'" in found[1]
