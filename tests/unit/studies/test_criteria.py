"""The study of criteria is made on the built-in town, and says who counted and why."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tacit.protocols.criteria import weigh_clients
from tacit.protocols.weighing import WeightLog
from tacit.report.weights import criteria_of, draw_weights, explain_weights
from tacit.studies import criteria, reproduce


def test_orders_hold_every_criterion_alone_and_every_order_of_three() -> None:
    found = criteria.orders()
    assert found[0] == ((), "share")
    assert len(found) == len(set(found)) == 13
    relative = [order for order, scale in found if scale == "relative"]
    assert len(relative) == 6
    assert {order[0] for order in relative} == set(criteria.PERMUTED)


@pytest.mark.slow
def test_the_study_leaves_a_table_and_two_figures(tmp_path: Path) -> None:
    tiny = {"data.users": 60, "data.places": 60, "data.visits": 15}
    made = reproduce("criteria-recommenders", "town", quick=True, settings=tiny, out=tmp_path)[0]
    assert {row.method for row in made.found.rows} == {"unweighted", "size", "diversity"}
    text = (made.folder / "table.md").read_text()
    assert "The heaviest and the lightest of the last round" in text
    for name in ("shares", "weights"):
        assert (made.folder / "figures" / f"{name}.svg").stat().st_size > 3_000


def test_weights_are_explained_in_a_table() -> None:
    told = WeightLog()
    told.note(
        4, pl.Series([7, 8, 9]).to_numpy(), weigh_clients(("size", "diversity"), [[10.0, 30.0, 0.0], [1.0, 3.0, 4.0]])
    )
    columns, lines = explain_weights(told.frame())
    assert columns == ["client", "size", "of all", "diversity", "of all", "score", "counts"]
    assert lines[0][:5] == ["8", "30", "75.00%", "3", "37.50%"]
    assert lines[-1][0] == "9"
    assert lines[-1][-1] == "0.00 times", "whoever has nothing counts for nothing, however diverse"
    assert criteria_of(told.frame()) == ["size", "diversity"]
    assert draw_weights(told.frame(), 4).axes[0].get_xlabel().startswith("users of round 5")
