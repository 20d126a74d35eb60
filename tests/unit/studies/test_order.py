"""What order is worth, made on the built-in town: both splits, every row, the leak check."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tacit.methods.base import names
from tacit.studies import order, reproduce

TINY = {"data.users": 120, "data.places": 60}


@pytest.mark.slow
def test_order_quality_has_both_splits_and_chooses_on_validation(tmp_path: Path) -> None:
    made = reproduce("order-quality", "town", quick=True, settings=TINY, out=tmp_path)[0]
    rows = json.loads((made.folder / "result.json").read_text())["detail"]["rows"]
    assert {row["split"] for row in rows} == {*order.SPLITS}
    assert {row["name"] for row in rows} >= {"slist", "fed-slist"}
    for row in rows:
        assert np.isfinite(row["values"]["NDCG@10"]).all()
        assert row["is_clean"] is not False
        _, values = order.ROWS[row["name"]]
        assert all(row["method"][option] in tried for option, tried in values.items())


def test_rows_name_methods_that_are_there() -> None:
    known = {*names("centralised"), *names("federated")}
    assert {method["name"] for method, _ in order.ROWS.values()} <= known
