"""No test here may hang."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from patience import not_for_ever


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """Every test ends, well or not."""
    with not_for_ever():
        yield
