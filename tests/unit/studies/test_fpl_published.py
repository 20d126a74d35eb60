"""FPL on the papers' own data reaches what they print. Minutes each: `make reproduce` runs them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tacit.studies import reproduce

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


@pytest.mark.parametrize("data", ["ml-1m", "foursquare-italy"])
def test_what_pi_costs_depends_on_how_dense_the_data_is(data: str, real_data: Find, out: Path) -> None:
    """Negatives alone betray popularity where people have much of the catalogue; elsewhere they say next to nothing."""
    real_data(data)
    rows = reproduce("fpl-pi", data, out=out)[0].found.rows
    f1 = {row.method: row.ours for row in rows if row.metric == "F1@10" and row.ours is not None}
    for name in ("sFPL", "sFPL+", "pFPL", "pFPL+"):
        everything = f1[f"{name} pi=1"]
        if data == "ml-1m":
            assert f1[f"{name} pi=0.1"] > 0.9 * everything
        elif f"{name} pi=0" in f1:  # at a large step, learning from negatives only may diverge
            assert f1[f"{name} pi=0"] < 0.2 * everything
