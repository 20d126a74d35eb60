"""Small worlds whose right answer is known by construction."""

from __future__ import annotations

import pytest

from tacit.testing import two_tastes
from tacit.types import Catalog, Clients


@pytest.fixture
def tastes() -> tuple[Clients, Catalog]:
    clients, catalog = two_tastes()
    for array in (clients.ids, clients.ptr, clients.items):
        array.flags.writeable = False
    return clients, catalog
