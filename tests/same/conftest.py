"""Device processes, started once for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from helpers.flower_federation import Nodes


@pytest.fixture(scope="module")
def models() -> Iterator[Nodes]:
    from helpers.flower_federation import Nodes  # needs Flower, which other tests here do not

    made = Nodes()
    yield made
    made.close()
