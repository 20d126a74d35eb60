"""Small cohorts written as lists."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tacit.testing import make_clients
from tacit.types import Clients

Cohort = Callable[..., Clients]


@pytest.fixture
def cohort() -> Cohort:
    return make_clients


@pytest.fixture
def crowd(cohort: Cohort) -> Clients:
    """25 people with 1 to 8 of 12 items; no client has item 11."""
    rng = np.random.default_rng(0)
    return cohort([sorted(rng.choice(11, rng.integers(1, 9), replace=False).tolist()) for _ in range(25)], 12)
