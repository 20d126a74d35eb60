"""Fixtures of the report room."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from helpers.report_runs import METHODS, Comparing, made_row
from tacit.report.comparison import ComparisonResult, MethodRow


@pytest.fixture(scope="session")
def comparison() -> Comparing:
    """Make a comparison of the first n methods, or of given rows."""

    def make(n: int = 6, rows: Sequence[MethodRow] | None = None, seeds: Sequence[int] = (42,)) -> ComparisonResult:
        made = rows or [made_row(label, place, seeds) for place, label in enumerate(METHODS[:n])]
        return ComparisonResult("tour", "NDCG@10", tuple(made))

    return make
