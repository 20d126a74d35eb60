"""Fixtures of the report room."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from helpers.report_runs import METHODS, Comparing, made_row
from tacit.report.compared import Compared, Row


@pytest.fixture(scope="session")
def comparison() -> Comparing:
    """Make a comparison of the first n methods, or of given rows."""

    def make(n: int = 6, rows: Sequence[Row] | None = None, seeds: Sequence[int] = (42,)) -> Compared:
        made = rows or [made_row(label, place, seeds) for place, label in enumerate(METHODS[:n])]
        return Compared("tour", "NDCG@10", tuple(made))

    return make
