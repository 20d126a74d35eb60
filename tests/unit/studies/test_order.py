"""What order is worth, made on the built-in town: both splits, every row, the leak check."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tacit.methods.base import names
from tacit.studies import order, order_pauses, reproduce

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


@pytest.mark.slow
def test_users_are_counted_by_pause_once_under_each_split(tmp_path: Path) -> None:
    made = reproduce("order-pauses", "town", settings=TINY, out=tmp_path)[0]
    lines = made.found.sheets[0].lines
    assert [line[0] for line in lines] == [*order_pauses.PAUSES]
    users = [sum(int(line[at].replace(",", "")) for line in lines) for at in (1, 2 + len(order_pauses.ROWS))]
    assert users[0] >= users[1] > 0
    assert {*made.found.detail["medians"]} == {*order.SPLITS}


@pytest.mark.reproduce
def test_a_readable_message_of_fed_slist_tells_the_order_and_a_sum_of_others_does_not(tmp_path: Path) -> None:
    made = reproduce("order-sums", "town", quick=True, settings=TINY, out=tmp_path)[0]
    _, left, told = made.found.sheets
    alone = [float(text) for text in told.lines[0][1:]]
    assert alone[0] > 0.9
    assert abs(alone[1] - 0.5) < 0.25
    assert all(float(line[1]) >= float(line[3]) for line in left.lines), "pairs are rarer than items"
