"""FPL on the papers' own data reaches what they print. Minutes each: `make reproduce` runs them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tacit.reproduce import reproduce

ENOUGH = 0.97  # of the published figure

pytestmark = [pytest.mark.reproduce, pytest.mark.data]
Find = Callable[[str], Path]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder, so that options are searched once per dataset."""
    return tmp_path_factory.mktemp("reproduced")


@pytest.mark.parametrize(
    ("data", "metric"), [("ml-1m", "Precision@10"), ("foursquare-italy", "Precision@10 / Most Popular")]
)
def test_precision_reaches_what_was_published(data: str, metric: str, real_data: Find, out: Path) -> None:
    real_data(data)
    rows = reproduce("fpl-accuracy", data, seeds=3, out=out)[0].found.rows
    for name in ("sFPL", "sFPL+", "pFPL", "pFPL+"):
        row = next(row for row in rows if row.method == name and row.metric == metric)
        assert row.ours is not None
        assert row.seeds == 3
        if row.published is not None:
            assert row.ours >= ENOUGH * row.published, f"{name}: {row.ours:.4f}, published {row.published:.4f}"


def test_disclosing_nothing_is_clearly_worse_and_a_little_is_nearly_enough(real_data: Find, out: Path) -> None:
    real_data("ml-1m")
    rows = {(row.method, row.metric): row.ours for row in reproduce("fpl-pi", "ml-1m", out=out)[0].found.rows}
    for name in ("sFPL", "sFPL+", "pFPL", "pFPL+"):
        nothing, little, all_ = (rows[f"{name} pi={pi}", "F1@10"] for pi in ("0", "0.1", "1"))
        assert nothing is not None
        assert little is not None
        assert all_ is not None
        assert nothing < 0.5 * all_
        assert little > 0.9 * all_
