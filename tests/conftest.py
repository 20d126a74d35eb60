"""Fixtures that every test may use."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def real_data() -> Callable[[str], Path]:
    """Return the folder of a real dataset under TACIT_DATA, or skip the test by name with the reason."""

    def find(name: str) -> Path:
        root = os.environ.get("TACIT_DATA")
        if not root:
            pytest.skip(f"{name}: TACIT_DATA is not set, so no real data is at hand")
        folder = Path(root) / name
        if not folder.is_dir():
            pytest.skip(f"{name}: not found under TACIT_DATA")
        return folder

    return find
