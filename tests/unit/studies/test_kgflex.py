"""KGFlex's tables and figures are made on the built-in town; the printed numbers are those of the thesis."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tacit.studies import kgflex, kgflex_published, reproduce

pytestmark = pytest.mark.slow

TINY = {"data.users": 80, "data.places": 60, "data.visits": 15}


def test_the_printed_numbers_are_those_of_the_thesis() -> None:
    books = kgflex_published.TABLE_6_1["facebook-books"]
    assert books["kgflex", "NDCG@10"] == 0.0853
    assert books["kgflex", "Gini@10"] == 0.307
    assert books["kgflex", "ItemCoverage@10"] == 606
    assert books["kgflex", "PopREO@10"] == 0.1521
    assert books["kgflex", "PopRSP@1"] == 0.5554
    assert kgflex_published.TABLE_6_1["ml-1m"]["kahfm", "NDCG@1"] == 0.4203
    assert set(kgflex.GIVEN) - {"ease"} == {name for name, _ in books}, "EASE is ours, beside the printed rows"


def test_data_is_cut_as_in_the_thesis() -> None:
    books, movies = kgflex.recipe("facebook-books"), kgflex.recipe("ml-1m")
    assert books["data"]["core"] == 5
    assert (movies["data"]["core"], movies["data"]["min_per_feature"]) == (10, 11)
    assert all("min_rating" not in data["data"] for data in (books, movies))
    assert movies["split"] == {"kind": "random", "test": 0.2, "rounding": "up"}


def test_every_method_stands_in_the_table(tmp_path: Path) -> None:
    made = reproduce("kgflex-quality", "town", quick=True, settings=TINY, out=tmp_path)[0]
    rows = json.loads((made.folder / "result.json").read_text())["rows"]
    assert {row["method"] for row in rows} == set(kgflex.GIVEN)
    assert {row["metric"] for row in rows} == set(kgflex_published.COLUMNS)
    assert all(np.isfinite(row["ours"]) and row["published"] is None for row in rows)


def test_hops_and_semantics_leave_tables_and_figures(tmp_path: Path) -> None:
    hops = reproduce("kgflex-hops", "town", quick=True, settings=TINY, out=tmp_path)[0]
    found = {(row.method, row.metric): row.ours for row in hops.found.rows}
    assert found["1 and 2 hops, 2 factors", "NDCG@10"] is not None
    assert (hops.folder / "figures" / "hops.svg").stat().st_size > 3_000
    kept = reproduce("kgflex-semantics", "town", quick=True, settings=TINY, out=tmp_path)[0]
    shares = {(row.method, row.metric): row.ours for row in kept.found.rows}
    assert all(share is not None and 0 <= share <= 1 for share in shares.values())
    assert (kept.folder / "figures" / "words-before.svg").stat().st_size > 3_000
