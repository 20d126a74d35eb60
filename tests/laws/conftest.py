"""Small worlds whose right answer is known by construction."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tacit.testing import two_tastes
from tacit.types import Catalog, Clients

TASTES = two_tastes()


@pytest.fixture
def tastes() -> Iterator[tuple[Clients, Catalog]]:
    """Clients of two tastes, which a test must leave as they are.

    Arrays may be written to, as those of a run: kernels would be compiled once more for arrays that may not.
    """
    clients, catalog = two_tastes()
    yield clients, catalog
    for name in ("ids", "ptr", "items", "places", "times"):
        assert np.array_equal(getattr(clients, name), getattr(TASTES[0], name)), f"the test has changed '{name}'"
