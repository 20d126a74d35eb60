"""Small cohorts written as lists."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tacit.types import Clients, offsets

Cohort = Callable[..., Clients]


@pytest.fixture
def cohort() -> Cohort:
    """Build clients from histories: cohort([[0, 2], [1]], n_items=3)."""

    def build(histories: list[list[int]], n_items: int, avoid: Clients | None = None) -> Clients:
        items = np.array([item for history in histories for item in history], np.int32)
        ptr = offsets(np.array([len(history) for history in histories], np.int64))
        return Clients(np.arange(len(histories)), ptr, items, n_items, avoid=avoid)

    return build


@pytest.fixture
def crowd(cohort: Cohort) -> Clients:
    """25 people with 1 to 8 of 12 items; item 11 is nobody's."""
    rng = np.random.default_rng(0)
    return cohort([sorted(rng.choice(11, rng.integers(1, 9), replace=False).tolist()) for _ in range(25)], 12)
