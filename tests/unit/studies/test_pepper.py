"""PEPPER's tables and figures, run quickly on a small town: everything is there, and what is printed is as printed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tacit.studies.base import reproduce, reproductions
from tacit.studies.pepper import GossipResult
from tacit.studies.pepper_published import METHODS, published_value

pytestmark = pytest.mark.slow

TINY = {"data.users": 30, "data.places": 60, "data.visits": 20, "split.test": 0.3, "evaluation.protocol": "sampled-5"}
NAMES = [name for name in reproductions() if name.startswith(("pepper-", "gossip-"))]


def test_all_of_them_are_known() -> None:
    expected = {"quality", "tails", "sparsity", "alpha", "view", "overhead", "order"}
    assert set(NAMES) == {f"pepper-{name}" for name in expected} | {
        "gossip-churn",
        "gossip-exposure",
        "gossip-promotion",
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_quick_run_leaves_a_table(name: str, tmp_path: Path) -> None:
    made = reproduce(name, "town", quick=True, settings=TINY, out=tmp_path)[0]
    assert made.found.rows
    assert all(row.ours is not None and np.isfinite(row.ours) for row in made.found.rows)
    assert (made.folder / "table.md").is_file()
    if name == "pepper-quality":
        found = {row.method for row in made.found.rows}
        assert set(METHODS) <= found
        assert "pepper (PRME-G)" in found, "a town has places and times"
        assert len(made.found.notes) == 11


def test_printed_numbers() -> None:
    assert published_value("ml-100k", "fedfast", "HR@20") == 0.8279
    assert published_value("foursquare-nyc", "pepper", "NDCG@5") == 0.1924
    assert published_value("gowalla-nyc", "dec-reptile", "F1@10") == 0.0766
    assert published_value("ml-100k", "pepper", "HR@1") is None


def test_rounds_until_converged() -> None:
    seen = GossipResult([10, 20, 30], [{"HR@20": v} for v in (0.5, 0.795, 0.8)])
    assert seen.converged() == 20
